"""A policy's rules at work: facts of its own and statements of others in, rights out (paper 003, section 2.1).

A policy is a SeNDlog program of one context that sends nothing. It derives `may_access(Role, Permission, Object)`,
`plays(User, Role)` and `cleared(User, Level)`; what these give is decided by whoever asks. Rules and statements come
from people who are not trusted with the machine, so all that a policy looks at counts towards one limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.errors import TextError
from headgate.lexing import fail
from headgate.sendlog.check import load
from headgate.sendlog.compiled import Compiled, compile_program
from headgate.sendlog.core import Core, Lit, Rel
from headgate.sendlog.derivations import Fact
from headgate.sendlog.engine import Diverged, Engine
from headgate.sendlog.proofs import Step, prove
from headgate.sendlog.syntax import Const
from headgate.sendlog.values import Row

RIGHTS: Mapping[str, int] = {"may_access": 3, "plays": 2, "cleared": 2}
"""What a policy derives for others, and how many arguments each has."""
MAX_TEXT = 64_000
BUDGET = 250_000
"""Rows that a policy may look at, from nothing to all that it derives; seconds at most, however rules are written."""


@dataclass(frozen=True)
class Said:
    """One statement in force: `speaker says name(row)`."""

    speaker: str
    name: str
    row: Row


@dataclass(frozen=True)
class StatementPredicate:
    """A predicate that rules read as a statement; `speakers` is None if anybody's counts."""

    arity: int
    speakers: frozenset[str] | None
    lifetime: float | None


@dataclass(frozen=True)
class Rules:
    """A policy's program, checked and compiled."""

    compiled: Compiled
    predicates: Mapping[str, StatementPredicate]


def read_rules(text: str) -> Rules:
    """The rules of a policy; a TextError with a position for what is none, or does what a policy may not."""
    if len(text) > MAX_TEXT:
        raise fail(text, MAX_TEXT, f"the rules of a policy must not be longer than {MAX_TEXT:,} characters")
    core = load(text)
    _check_context(core)
    _check_tables(core)
    _check_rights(core)
    return Rules(compile_program(core, tracing=True, charged=True), _predicates(core))


def _check_context(core: Core) -> None:
    for rule in (*core.rules, *core.facts):
        if rule.owner is not None:
            raise fail(core.text, rule.at, "a policy has one context: write its rules without `At` and a name")
        if rule.rel.kind == "out":
            raise fail(core.text, rule.at, "a policy sends no statements: write its heads without `@`")
    if core.carries:
        raise fail(core.text, 0, "a policy carries no statements: leave `carry` out")


def _check_tables(core: Core) -> None:
    stated = {fact.rel.name for fact in core.facts}
    for table in core.tables.values():
        if table.lifetime == 0:
            raise fail(core.text, table.at, f"`{table.name}` is an event, and a policy has none: give it a lifetime")
        if table.keys:
            raise fail(core.text, table.at, f"`{table.name}` has keys, and statements to a policy replace none")
        if table.lifetime is not None and table.name in stated:
            raise fail(core.text, table.at, f"`{table.name}` is a fact of the policy: only statements have lifetimes")


def _check_rights(core: Core) -> None:
    derived = False
    for rule in (*core.rules, *core.facts):
        arity = RIGHTS.get(rule.rel.name)
        if arity is not None and rule.rel.kind == "local":
            derived = True
            if len(rule.args) != arity:
                raise fail(core.text, rule.at, f"`{rule.rel.name}` has {arity} arguments")
    if not derived:
        hint = "`plays(User, Role)`, `may_access(Role, Permission, Object)` or `cleared(User, Level)`"
        raise fail(core.text, 0, "this policy gives no rights", hint)


def _predicates(core: Core) -> dict[str, StatementPredicate]:
    found: dict[str, StatementPredicate] = {}
    for atom in (atom for rule in core.rules for atom in rule.atoms() if atom.rel.kind == "said"):
        name, speakers = atom.rel.name, _speakers(atom)
        known = found.get(name)
        if known is not None:
            speakers = None if known.speakers is None or speakers is None else known.speakers | speakers
        table = core.tables.get(name)
        found[name] = StatementPredicate(len(atom.args) - 1, speakers, table.lifetime if table is not None else None)
    return found


def _speakers(atom: Lit) -> frozenset[str] | None:
    speaker = atom.args[0]
    return frozenset({str(speaker.value)}) if isinstance(speaker, Const) else None


class PolicyEngine:
    """What a policy derives from the statements in force. `hold` sets these; it costs what has changed."""

    def __init__(self, name: str, rules: Rules) -> None:
        self.name, self.rules = name, rules
        self._engine: Engine | None = None
        self._held: dict[str, Said] = {}
        self._spent = 0

    def hold(self, statements: Mapping[str, Said]) -> None:
        """The statements by identity, all of them. Diverged if they derive more than the budget allows: then nothing
        is derived until other statements are set."""
        if self._engine is not None:
            try:
                self._change(
                    [said for key, said in statements.items() if key not in self._held],
                    [said for key, said in self._held.items() if key not in statements],
                )
            except Diverged:  # many small changes may have used the budget up: what counts is the whole
                self._engine = None
        if self._engine is None:
            self._held = {}
            self._begin(statements)
        self._held = dict(statements)

    def _begin(self, statements: Mapping[str, Said]) -> None:
        engine = Engine(self.rules.compiled, self.name, limit=BUDGET, undo=False)
        self._engine, self._spent = engine, engine.steps
        try:
            self._change(list(statements.values()), [])
        except Diverged:
            self._engine = None
            raise

    def _change(self, new: list[Said], gone: list[Said]) -> None:
        if self._engine is not None and (new or gone):
            self._engine.limit = BUDGET - self._spent
            self._engine.apply(insert=self._facts(new), delete=self._facts(gone))
            self._spent += self._engine.steps

    def _facts(self, statements: Iterable[Said]) -> list[Fact]:
        rels = [rel for rel in self.rules.compiled.rels if rel.kind == "said"]
        return [(rel, (x.speaker, *x.row)) for x in statements for rel in rels if rel.name == x.name]

    def rights(self) -> set[tuple[str, Row]]:
        if self._engine is None:
            return set()
        return {(name, row) for name in RIGHTS for row in self._engine.rows(Rel(name))}

    def proof(self, name: str, row: Row) -> list[Step]:
        return prove(self._engine, (Rel(name), row)) if self._engine is not None else []


__all__ = [
    "BUDGET",
    "RIGHTS",
    "Diverged",
    "PolicyEngine",
    "Rules",
    "Said",
    "StatementPredicate",
    "TextError",
    "read_rules",
]
