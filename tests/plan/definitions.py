"""The definitions of paper 002, section 4.2, that the product does not need, and Algorithm 1: trees, overlap, splitting
and merging. Tests reproduce the paper's tables and figures with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate.plan.expressions import Column
from headgate.plan.nodes import Arrivals, Join, Node, Project, Select, Source, Unary
from headgate.plan.sharing import SharingKind, equivalent, equivalent_trees, operators, pairs, relation, subsumed

Edge = tuple[Node, Node]


@dataclass(frozen=True)
class Relation:
    """How an incoming query is shared with an executing one, and through which of the latter's nodes, inputs first."""

    kind: SharingKind
    shared: tuple[Node, ...] = ()

    @property
    def named(self) -> tuple[Node, ...]:
        """The shared selections and joins, which distinguish queries; windows and the operators above follow from
        them."""
        return tuple(node for node in self.shared if isinstance(node, Select | Join))


@dataclass(frozen=True)
class OperatorTree:
    """Nodes, and edges from a node to the node that reads it (Definition 1)."""

    nodes: frozenset[Node]
    edges: frozenset[Edge]


def operator_tree(root: Node) -> OperatorTree:
    nodes = frozenset(root.walk())
    return OperatorTree(nodes, frozenset((below, node) for node in nodes for below in node.inputs))


def partial(x: Node, y: Node, *, implication: bool = True) -> bool:
    """Definition 6: the trees differ, and some nodes are equivalent or one of them is subsumed by the other."""
    return not equivalent_trees(x, y) and any(
        equivalent(a, b) or subsumed(a, b, implication=implication) or subsumed(b, a, implication=implication)
        for a, b in pairs(x, y)
    )


def decompose(a: Node, b: Node) -> tuple[Node, Node]:
    """Definition 9: a, subsumed by b, becomes b and a second node over b, which does what remains.

    The second node has the results of a. Of a projection the paper names the columns that remain to be dropped; here
    the second node names those that stay.
    """
    match a, b:
        case Select(), Select():
            return b, Select(b, a.conditions - b.conditions)
        case Project(), Project():
            return b, Project(b, tuple((name, Column(0, name, expr.type)) for name, expr in a.items))
    raise ValueError(f"{a} is not subsumed by {b}")


def overlap(x: Node, y: Node) -> bool:
    """Definition 10: the trees differ, and some nodes are equivalent."""
    return not equivalent_trees(x, y) and any(equivalent(a, b) for a, b in pairs(x, y))


def decomposed(x: Node, y: Node, *, implication: bool = True) -> OperatorTree:
    """The tree of x, with each node that y's tree properly subsumes split in two; the node's readers read the second
    part."""
    tree = operator_tree(x)
    parts: dict[Node, tuple[Node, Node]] = {}
    for a, b in pairs(x, y):
        if a != b and a not in parts and subsumed(a, b, implication=implication):
            parts[a] = decompose(a, b)
    nodes = (tree.nodes - parts.keys()).union(*parts.values())
    edges = {(parts.get(below, (below, below))[1], parts.get(node, (node, node))[0]) for below, node in tree.edges}
    return OperatorTree(nodes, frozenset(edges | set(parts.values())))


def merge(x: OperatorTree, y: OperatorTree) -> OperatorTree:
    """Algorithm 1: all nodes and edges of x, and those of y that have no equivalent there."""
    return OperatorTree(x.nodes | y.nodes, x.edges | y.edges)


def related(incoming: Node, executing: Node, *, implication: bool = True) -> Relation:
    """How the incoming query can be shared with the executing one, and through which nodes."""
    kind = relation(incoming, executing, implication=implication)
    if kind in (SharingKind.COMPLETE, SharingKind.NONE):
        return Relation(kind, tuple(operators(executing)) if kind == SharingKind.COMPLETE else ())
    found = pairs(incoming, executing)
    serving = {b.key for a, b in found if equivalent(a, b) or subsumed(a, b, implication=implication)}
    return Relation(kind, tuple(b for b in operators(executing) if b.key in serving))


def as_in_the_paper(node: Node) -> Node:
    """The same tree, with one kind of source: the paper does not tell tuples that arrive from tuples in order."""
    match node:
        case Arrivals(stream):
            return Source(stream)
        case Unary(input=below):
            return replace(node, input=as_in_the_paper(below))
    return node
