"""How two queries can be shared, by the definitions of paper 002, section 4.2, each as a function.

The functions compare two trees and tell by which definition two queries share; EXPLAIN names it. What they share is in
`merged`, which keeps the plan of many queries without comparing pairs. Where the definitions and the paper's own table
of examples differ, the table decides, and the function's docstring says how.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from headgate.plan.implication import all_imply
from headgate.plan.nodes import Node, Project, Select, Source


class SharingKind(StrEnum):
    COMPLETE = "complete"
    STRICT = "strict"
    LOOSE = "loose"
    NONE = "none"


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


def strict(x: Node, y: Node) -> bool:
    """Definition 7: the trees differ, and some blocking nodes are equivalent.

    By the wording of the definition, any equivalent nodes would do, as long as none is subsumed; the paper's table
    counts equivalent nodes that do not block as loose.
    """
    return not equivalent_trees(x, y) and any(a.blocking and equivalent(a, b) for a, b in pairs(x, y))


def loose(x: Node, y: Node, *, implication: bool = True) -> bool:
    """Definition 8: the trees differ, and some node of the incoming x is subsumed by one of the executing y.

    An equivalent node is subsumed too, so some trees are both strict and loose; `relation` calls those strict.
    """
    return not equivalent_trees(x, y) and any(subsumed(a, b, implication=implication) for a, b in pairs(x, y))


def relation(incoming: Node, executing: Node, *, implication: bool = True) -> SharingKind:
    """The strongest way in which the incoming query can be shared with the executing one."""
    if complete(incoming, executing):
        return SharingKind.COMPLETE
    if strict(incoming, executing):
        return SharingKind.STRICT
    return SharingKind.LOOSE if loose(incoming, executing, implication=implication) else SharingKind.NONE


def operators(root: Node) -> Iterator[Node]:
    """All nodes but sources: streams are there for everybody and do not count as shared."""
    return (node for node in root.walk() if not isinstance(node, Source))


def pairs(x: Node, y: Node) -> Iterator[tuple[Node, Node]]:
    """The pairs of nodes that can be equivalent or subsumed at all: they have the same first input."""
    others: dict[str, list[Node]] = {}
    for b in operators(y):
        others.setdefault(b.inputs[0].key, []).append(b)
    return ((a, b) for a in operators(x) for b in others.get(a.inputs[0].key, ()))
