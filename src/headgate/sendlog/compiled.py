"""A program compiled once, for all principals that run it: components of relations in order, and generated strands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from headgate.sendlog.codegen import Generated, generate
from headgate.sendlog.core import Core, CoreRule, Rel
from headgate.sendlog.plan import Strand, strand, strands
from headgate.sendlog.strata import components
from headgate.sendlog.syntax import Aggregate, Const, Var
from headgate.sendlog.values import Row


@dataclass(frozen=True)
class Delta:
    """One strand's code: `derive` for changes that may add, `mark` for those that may take away."""

    trigger: Rel
    negated: bool
    derive: Generated
    mark: Generated


@dataclass(frozen=True)
class RuleCode:
    """`target` is where its rows go: its head, or for an aggregate the relation of its body's solutions.

    `grouping`: how an event's solutions are aggregated at once."""

    rule: CoreRule
    target: Rel
    deltas: tuple[Delta, ...]
    again: Generated | None
    full: Generated
    grouping: Grouping | None = None


@dataclass(frozen=True)
class Grouping:
    """How an aggregate's head is made of its solutions, those of all rules with the same head together.

    A solution is a row of the group's values, the aggregated values, the rule, and all that tells solutions apart."""

    rule: CoreRule
    aggregate: Aggregate
    body: Rel
    group: tuple[int, ...]
    over: tuple[int, ...]

    def key(self, row: Row) -> Row:
        return tuple([row[i] for i in self.group])

    def head(self, key: Row, value: Row) -> Row:
        """The head's row: the group's values, and the aggregate's in its columns."""
        column = self.aggregate.column
        return (*key[:column], *value, *key[column:])


@dataclass(frozen=True)
class Component:
    """Relations that depend on each other, or one alone. `best`: `min` or `max` inside the recursion."""

    rels: tuple[Rel, ...]
    codes: tuple[RuleCode, ...]
    groupings: tuple[Grouping, ...]
    best: str = ""

    @cached_property
    def inputs(self) -> frozenset[Rel]:
        read = {delta.trigger for code in self.codes for delta in code.deltas}
        return frozenset({*read, *(g.body for g in self.groupings)})


@dataclass(frozen=True)
class Compiled:
    """`triggers` are the rules that events set off, by the event."""

    core: Core
    rels: tuple[Rel, ...]
    components: tuple[Component, ...]
    triggers: dict[Rel, list[RuleCode]]
    tracing: bool


def compile_program(core: Core, *, tracing: bool = False, charged: bool = False) -> Compiled:
    """`tracing` keeps the derivations of every tuple, for provenance; `charged` counts towards the engine's limit all
    that rules look at, not only what they derive."""
    return _Compiler(core, tracing, charged).run()


class _Compiler:
    def __init__(self, core: Core, tracing: bool, charged: bool) -> None:
        self.core, self.tracing, self.charged = core, tracing, charged
        self.triggered = [rule for rule in core.rules if core.triggered(rule)]
        self.views = [rule for rule in core.rules if not core.triggered(rule)]

    def run(self) -> Compiled:
        needs: dict[Rel, list[Rel]] = {}
        for rule in self.views:
            needs.setdefault(rule.rel, []).extend(atom.rel for atom in rule.atoms())
        rels: dict[Rel, None] = dict.fromkeys(_all_relations(self.core))
        flat = [component for found in components(list(rels), needs) for component in self._components(found)]
        triggers: dict[Rel, list[RuleCode]] = {}
        for rule in self.triggered:
            event = next(a.rel for a in rule.atoms() if self.core.is_event(a.rel.name) and not a.negated)
            place = next(i for i, s in enumerate(rule.body) if getattr(s, "rel", None) == event)
            grouping, runs = (None, rule) if rule.aggregate is None else _solutions(rule, rule.aggregate)
            code = self._code(rule, runs, [strand(runs, place)])
            triggers.setdefault(event, []).append(replace(code, grouping=grouping))
        known = dict.fromkeys([*rels, *(rel for component in flat for rel in component.rels)])
        return Compiled(self.core, tuple(known), tuple(flat), triggers, self.tracing)

    def _components(self, rels: list[Rel]) -> list[Component]:
        """The component, after those of the solutions that its aggregates range over."""
        inside = set(rels)
        rules = [rule for rule in self.views if rule.rel in inside]
        best = next((r.aggregate.name for r in rules if r.aggregate and inside & {a.rel for a in r.atoms()}), "")
        if best:
            codes = [self._code(rule, rule, strands(rule)) for rule in rules]
            found = [_lattice(rule, rule.aggregate) for rule in rules if rule.aggregate]
            return [Component(tuple(rels), tuple(codes), tuple(found), best)]
        bodies: dict[Rel, list[RuleCode]] = {}
        groupings: dict[Rel, Grouping] = {}
        for rule in rules:
            if rule.aggregate is not None:
                grouping, runs = _solutions(rule, rule.aggregate)
                groupings.setdefault(grouping.body, grouping)
                bodies.setdefault(grouping.body, []).append(self._code(rule, runs, strands(runs)))
        before = [Component((body,), tuple(codes), ()) for body, codes in bodies.items()]
        plain = [self._code(rule, rule, strands(rule)) for rule in rules if rule.aggregate is None]
        return [*before, Component(tuple(rels), tuple(plain), tuple(groupings.values()))]

    def _code(self, rule: CoreRule, runs: CoreRule, made: list[Strand]) -> RuleCode:
        def code(one: Strand, *, marking: bool = False) -> Generated:
            return generate(one, marking=marking, tracing=self.tracing, charged=self.charged)

        deltas = []
        for one in made:
            changed = one.changed
            if changed is not None:
                derive = code(one)
                marks = any(atom.negated for atom in rule.atoms())
                deltas.append(Delta(changed.rel, changed.negated, derive, code(one, marking=True) if marks else derive))
        again = code(strand(runs, None, from_head=True)) if runs.aggregate is None else None
        return RuleCode(rule, runs.rel, tuple(deltas), again, code(strand(runs, None)))


def _solutions(rule: CoreRule, aggregate: Aggregate) -> tuple[Grouping, CoreRule]:
    """The grouping, and the rule that derives one row for each solution of the body."""
    width = len(aggregate.over)
    grouped = tuple([a for i, a in enumerate(rule.args) if not aggregate.column <= i < aggregate.column + width])
    over = tuple([v for v in aggregate.over if not v.name.startswith("_.")])
    body = Rel(f"{rule.rel} {aggregate.name} {aggregate.column} {width}", "body")
    rest = tuple([Var(name) for name in _body_variables(rule)])
    runs = replace(rule, rel=body, args=(*grouped, *over, Const(f"{rule.label} {rule.at}"), *rest), aggregate=None)
    start = len(grouped)
    return Grouping(rule, aggregate, body, tuple(range(start)), tuple(range(start, start + len(over)))), runs


def _body_variables(rule: CoreRule) -> list[str]:
    """The variables of a solution; what `=` assigns is determined by them."""
    found: dict[str, None] = {}
    for atom in rule.atoms():
        if not atom.negated:
            found |= {arg.name: None for arg in atom.args if isinstance(arg, Var)}
    return list(found)


def _lattice(rule: CoreRule, aggregate: Aggregate) -> Grouping:
    """In recursion the head's own rows are grouped: all columns but the aggregate's."""
    over = tuple(range(aggregate.column, aggregate.column + len(aggregate.over)))
    group = tuple([i for i in range(len(rule.args)) if i not in over])
    return Grouping(rule, aggregate, rule.rel, group, over)


def _all_relations(core: Core) -> list[Rel]:
    """Every relation; a predicate that is exported or said also has the relation it arrives in."""
    found: dict[Rel, None] = {}
    for rule in (*core.rules, *core.facts):
        for rel in (*(atom.rel for atom in rule.atoms()), rule.rel):
            found[rel] = None
            if rel.kind in ("out", "said"):
                found[Rel(rel.name, "said")] = None
    return list(found)
