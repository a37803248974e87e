"""What a SeNDlog program is made of, as the parser leaves it (paper 003, sections 2 and 3).

Frozen values. `at` is the offset in the program's text and takes no part in equality.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as OneOf

from headgate.sendlog.values import Value


@dataclass(frozen=True, slots=True)
class Var:
    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Const:
    value: Value
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function (`f_...`), an operation (`+ - * / %`), a list (`[]`) or a location (`::`)."""

    function: str
    args: tuple[Term, ...]
    at: int = field(default=0, compare=False)


Term = Var | Const | Call


@dataclass(frozen=True, slots=True)
class Atom:
    """`p(X)`, or with a speaker `alice says p(X)`. `level` is the least authentication: 0 none, 1 MAC, 2 signature;
    None is the node's own. `delegated`: whoever may speak for the speaker may have said it."""

    name: str
    args: tuple[Term, ...]
    at: int = field(default=0, compare=False)
    speaker: Term | None = None
    level: int | None = None
    delegated: bool = False


@dataclass(frozen=True, slots=True)
class Negated:
    atom: Atom


@dataclass(frozen=True, slots=True)
class AtLeast:
    """`2 of [alice, bob, carol] says p(X)`, or `2 of board says p(X)` where `board(P)` lists the principals."""

    count: int
    group: tuple[Term, ...] | str
    atom: Atom
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """`=` gives a variable its value where it has none yet, and compares where it has one."""

    op: str
    left: Term
    right: Term
    at: int = field(default=0, compare=False)


Literal = Atom | Negated | AtLeast | Compare
AggregateName = OneOf["min", "max", "count", "sum"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`min<C, P>` at column `column` of the head: the least C and, among those, the least P; fills as many columns."""

    name: AggregateName
    over: tuple[Var, ...]
    column: int
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Head:
    """`to` is where an export predicate goes (`@X`); None keeps the tuple here."""

    atom: Atom
    to: Term | None = None
    aggregate: Aggregate | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """`At N, c1, c2`: whose rules these are, and what must hold there."""

    principal: Term
    conditions: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, or with an empty body a fact."""

    label: str
    head: Head
    body: tuple[Literal, ...]
    context: Context
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Table:
    """`materialize(p, 30, keys(1)).`: how long a tuple lives (None: until deleted; 0: an event) and what replaces
    it."""

    name: str
    lifetime: float | None
    keys: tuple[int, ...] = ()
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Carry:
    """`carry rehashA of storeA.`: a signature on `storeA(...)` also proves `rehashA(...)` of the same speaker."""

    name: str
    of: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Program:
    text: str
    rules: tuple[Rule, ...] = ()
    tables: tuple[Table, ...] = ()
    carries: tuple[Carry, ...] = ()


def variables(term: Term) -> Iterator[Var]:
    """In the order in which they are written."""
    match term:
        case Var():
            yield term
        case Call():
            for arg in term.args:
                yield from variables(arg)


def terms(literal: Literal) -> Iterator[Term]:
    """All terms of a literal; the speaker of an import predicate comes first."""
    match literal:
        case Compare():
            yield literal.left
            yield literal.right
        case Negated():
            yield from terms(literal.atom)
        case AtLeast():
            yield from terms(literal.atom)
            if not isinstance(literal.group, str):
                yield from literal.group
        case Atom():
            if literal.speaker is not None:
                yield literal.speaker
            yield from literal.args
