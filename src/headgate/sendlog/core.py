"""The small language under SeNDlog: relations, and rules whose atoms hold only variables and constants.

Tuples of one predicate live in different relations: what a principal holds itself (`local`), what others said to it
(`said`, the speaker is the first column) and what it exports (`out`: destination, speaker, then the arguments).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal as OneOf

from headgate.sendlog.syntax import Aggregate, Compare, Const, Table, Var
from headgate.sendlog.values import Row

Kind = OneOf["local", "said", "out", "body"]


@dataclass(frozen=True, slots=True)
class Rel:
    """`level` is the least authentication of a `said` relation, and that of the exports of an `out` relation."""

    name: str
    kind: Kind = "local"
    level: int | None = None

    def __str__(self) -> str:
        level = "" if self.level is None else f"_{self.level}"
        match self.kind:
            case "said":
                return f"says{level} {self.name}"
            case "out":
                return f"export{level} {self.name}"
            case "body":
                return f"body of {self.name}"
            case _:
                return self.name


Arg = Var | Const


@dataclass(frozen=True, slots=True)
class Lit:
    """One atom of a body, over a relation."""

    rel: Rel
    args: tuple[Arg, ...]
    negated: bool = False
    at: int = field(default=0, compare=False)


Step = Lit | Compare


@dataclass(frozen=True, slots=True)
class CoreRule:
    """`owner` is the one principal whose rule it is, None for everyone's; `self_name` stands for that principal."""

    label: str
    owner: str | None
    self_name: str
    rel: Rel
    args: tuple[Arg, ...]
    body: tuple[Step, ...]
    aggregate: Aggregate | None = None
    at: int = field(default=0, compare=False)

    def atoms(self) -> list[Lit]:
        return [step for step in self.body if isinstance(step, Lit)]


@dataclass(frozen=True)
class Core:
    """A program as it runs. `carries` maps a predicate to those whose signed tuples also prove it."""

    text: str
    rules: tuple[CoreRule, ...]
    facts: tuple[CoreRule, ...]
    tables: Mapping[str, Table]
    carries: Mapping[str, frozenset[str]]

    def is_event(self, name: str) -> bool:
        table = self.tables.get(name)
        return table is not None and table.lifetime == 0

    def triggered(self, rule: CoreRule) -> bool:
        """Whether an event sets this rule off: what it derives is inserted once and not maintained."""
        return any(self.is_event(atom.rel.name) for atom in rule.atoms() if not atom.negated)

    def facts_of(self, principal: str) -> list[tuple[Rel, Row]]:
        """What the program itself states at a principal."""
        found = []
        for fact in self.facts:
            if fact.owner in (None, principal):
                row = tuple([arg.value if isinstance(arg, Const) else principal for arg in fact.args])
                found.append((fact.rel, row))
        return found
