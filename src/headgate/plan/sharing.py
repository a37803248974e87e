"""How two queries can be shared, by the definitions of paper 002, section 4.2, each as a function.

The functions compare two trees and tell why two queries share; `merged` keeps the plan of many queries without
comparing pairs. Where the definitions and the paper's own table of examples differ, the table decides, and the
function's docstring says how.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from headgate.plan.expressions import Column
from headgate.plan.implication import all_imply
from headgate.plan.nodes import Join, Node, Project, Select, Source

Edge = tuple[Node, Node]


class Kind(StrEnum):
    COMPLETE = "complete"
    STRICT = "strict"
    LOOSE = "loose"
    NONE = "none"


@dataclass(frozen=True)
class Relation:
    """How an incoming query is shared with an executing one, and through which of the latter's nodes, inputs first."""

    kind: Kind
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


def equivalent(a: Node, b: Node) -> bool:
    """Definition 2: the same operator, parameters, synopsis and inputs."""
    return a == b


def subsumed(a: Node, b: Node, *, implication: bool = True) -> bool:
    """Definition 3: a can be computed from the results of b, because both select from the same input and b keeps more.

    `implication` goes beyond the paper, which compares sets of conditions: b's conditions may then also follow from
    a's.
    """
    match a, b:
        case Select(), Select() if a.input == b.input:
            return b.conditions <= a.conditions or (implication and all_imply(a.conditions, b.conditions))
        case Project(), Project() if a.input == b.input:
            return frozenset(a.items) <= frozenset(b.items)
    return False


def equivalent_trees(x: Node, y: Node) -> bool:
    """Definition 4: every node of either tree has an equivalent node in the other."""
    return frozenset(x.walk()) == frozenset(y.walk())


def complete(x: Node, y: Node) -> bool:
    """Definition 5: nothing remains to be done for x where y is executing."""
    return equivalent_trees(x, y)


def partial(x: Node, y: Node, *, implication: bool = True) -> bool:
    """Definition 6: the trees differ, and some nodes are equivalent or one of them is subsumed by the other."""
    return not equivalent_trees(x, y) and any(
        equivalent(a, b) or subsumed(a, b, implication=implication) or subsumed(b, a, implication=implication)
        for a, b in _pairs(x, y)
    )


def strict(x: Node, y: Node) -> bool:
    """Definition 7: the trees differ, and some blocking nodes are equivalent.

    By the wording of the definition, any equivalent nodes would do, as long as none is subsumed; the paper's table
    counts equivalent nodes that do not block as loose.
    """
    return not equivalent_trees(x, y) and any(a.blocking and equivalent(a, b) for a, b in _pairs(x, y))


def loose(x: Node, y: Node, *, implication: bool = True) -> bool:
    """Definition 8: the trees differ, and some node of the incoming x is subsumed by one of the executing y.

    An equivalent node is subsumed too, so some trees are both strict and loose; `relation` calls those strict.
    """
    return not equivalent_trees(x, y) and any(subsumed(a, b, implication=implication) for a, b in _pairs(x, y))


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
    return not equivalent_trees(x, y) and any(equivalent(a, b) for a, b in _pairs(x, y))


def decomposed(x: Node, y: Node, *, implication: bool = True) -> OperatorTree:
    """The tree of x, with each node that y's tree properly subsumes split in two; the node's readers read the second
    part."""
    tree = operator_tree(x)
    parts: dict[Node, tuple[Node, Node]] = {}
    for a, b in _pairs(x, y):
        if a != b and a not in parts and subsumed(a, b, implication=implication):
            parts[a] = decompose(a, b)
    nodes = (tree.nodes - parts.keys()).union(*parts.values())
    edges = {(parts.get(below, (below, below))[1], parts.get(node, (node, node))[0]) for below, node in tree.edges}
    return OperatorTree(nodes, frozenset(edges | set(parts.values())))


def merge(x: OperatorTree, y: OperatorTree) -> OperatorTree:
    """Algorithm 1: all nodes and edges of x, and those of y that have no equivalent there."""
    return OperatorTree(x.nodes | y.nodes, x.edges | y.edges)


def relation(incoming: Node, executing: Node, *, implication: bool = True) -> Relation:
    """The strongest way in which the incoming query can be shared with the executing one."""
    if complete(incoming, executing):
        return Relation(Kind.COMPLETE, tuple(_operators(executing)))
    if strict(incoming, executing):
        kind = Kind.STRICT
    elif loose(incoming, executing, implication=implication):
        kind = Kind.LOOSE
    else:
        return Relation(Kind.NONE)
    pairs = _pairs(incoming, executing)
    serving = {b.key for a, b in pairs if equivalent(a, b) or subsumed(a, b, implication=implication)}
    return Relation(kind, tuple(b for b in _operators(executing) if b.key in serving))


def _operators(root: Node) -> Iterator[Node]:
    """All nodes but sources: streams are there for everybody and do not count as shared."""
    return (node for node in root.walk() if not isinstance(node, Source))


def _pairs(x: Node, y: Node) -> Iterator[tuple[Node, Node]]:
    """The pairs of nodes that can be equivalent or subsumed at all: they have the same first input."""
    others: dict[str, list[Node]] = {}
    for b in _operators(y):
        others.setdefault(b.inputs[0].key, []).append(b)
    return ((a, b) for a in _operators(x) for b in others.get(a.inputs[0].key, ()))
