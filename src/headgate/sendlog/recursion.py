"""Which rules may depend on themselves.

Negation never may, neither here nor through other principals. `min` and `max` may, where a better input never gives
a worse result: the aggregated value passes only through monotone functions and comparisons that a better value
passes more easily. Then the least solution is reached by keeping the best tuple of each group (shortest paths).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.errors import TextError
from headgate.lexing import fail
from headgate.sendlog.core import Core, CoreRule, Lit, Rel
from headgate.sendlog.functions import FUNCTIONS
from headgate.sendlog.strata import components
from headgate.sendlog.syntax import Call, Compare, Term, Var, variables

Node = tuple[str, bool]
"""A predicate, and whether it is what others said: relations of all levels of `says` are one node."""


def node(rel: Rel) -> Node:
    return rel.name, rel.kind in ("said", "out")


def check_recursion(made: Core) -> None:
    """Refuses negation and aggregates in recursion, but for monotone ones. Events only set off rules, and order
    nothing."""
    rules = [rule for rule in made.rules if not made.triggered(rule)]
    needs: dict[Node, list[Node]] = {}
    for rule in rules:
        needs.setdefault(node(rule.rel), []).extend(node(atom.rel) for atom in rule.atoms())
    place = {n: i for i, component in enumerate(components(list(needs), needs)) for n in component}
    for rule in rules:
        inside = [atom for atom in rule.atoms() if place[node(atom.rel)] == place[node(rule.rel)]]
        for atom in inside:
            if atom.negated:
                message = f"`{rule.rel.name}` depends on `not {atom.rel.name}`, which depends on `{rule.rel.name}`"
                raise fail(made.text, atom.at, message, hint="negation must not be recursive")
        if rule.aggregate is not None and inside:
            _check_monotone(made, rule, [r for r in rules if place[node(r.rel)] == place[node(rule.rel)]], place)


def _check_monotone(made: Core, rule: CoreRule, component: list[CoreRule], place: dict[Node, int]) -> None:
    aggregate = rule.aggregate
    if aggregate is None:
        return
    if aggregate.name not in ("min", "max"):
        hint = "only `min` and `max` may be recursive"
        message = f"`{rule.rel.name}` depends on its own `{aggregate.name}`"
        raise fail(made.text, aggregate.at, message, hint=hint)
    for other in component:
        if other.aggregate is not None and other.aggregate.name != aggregate.name:
            raise fail(made.text, other.aggregate.at, "`min` and `max` must not depend on each other")
        if node(other.rel) == node(rule.rel) and other.aggregate is None:
            hint = f"give this head `{aggregate.name}<...>` too"
            raise fail(made.text, other.at, f"`{other.rel.name}` is an aggregate in recursion", hint=hint)
    measured: set[tuple[Node, int]] = set()
    for other in component:
        if other.aggregate is not None:
            measured.add((node(other.rel), _shift(other.rel, other.aggregate.column)))
    while True:
        more = {found for other in component for found in _Flow(made, other, measured, place, aggregate.name).columns()}
        if more <= measured:
            return
        measured |= more


def _shift(rel: Rel, column: int) -> int:
    """Columns are counted without destination and speaker, so that exports and imports agree."""
    return column - {"out": 2, "said": 1}.get(rel.kind, 0)


@dataclass(frozen=True)
class _Flow:
    """How the aggregated value passes through one rule of the component."""

    made: Core
    rule: CoreRule
    measured: set[tuple[Node, int]]
    place: dict[Node, int]
    name: str

    def columns(self) -> Iterable[tuple[Node, int]]:
        """The columns of the head that hold the value; a TextError where it is used in a way that is not monotone."""
        held = {arg.name for atom in self.rule.atoms() for arg in self._measured_args(atom)}
        for atom in self.rule.atoms():
            for column, arg in enumerate(atom.args):
                if isinstance(arg, Var) and arg.name in held and not self._is_measured(atom, column):
                    raise self._refused(arg, "joined")
        if sum(arg.name in held for a in self.rule.atoms() for arg in self._measured_args(a)) > len(held):
            raise self._refused(Var(next(iter(held)), self.rule.at), "joined")
        before = -1
        while before != len(held):
            before = len(held)
            for step in self.rule.body:
                if isinstance(step, Compare):
                    self._compare(step, held)
        if self.rule.aggregate is not None:
            kept = range(self.rule.aggregate.column, self.rule.aggregate.column + 1)
            for column, term in enumerate(self.rule.args):
                if column not in kept and isinstance(term, Var) and term.name in held:
                    raise self._refused(term, "used as a group")
            return []
        head = enumerate(self.rule.args)
        return [
            (node(self.rule.rel), _shift(self.rule.rel, i)) for i, t in head if isinstance(t, Var) and t.name in held
        ]

    def _measured_args(self, atom: Lit) -> list[Var]:
        return [a for i, a in enumerate(atom.args) if isinstance(a, Var) and self._is_measured(atom, i)]

    def _is_measured(self, atom: Lit, column: int) -> bool:
        return (node(atom.rel), _shift(atom.rel, column)) in self.measured

    def _compare(self, step: Compare, held: set[str]) -> None:
        left = self._rises(step.left, held)
        right = self._rises(step.right, held)
        if not left and not right:
            return
        if step.op == "=" and isinstance(step.left, Var) and step.left.name not in held | self._given() and not left:
            held.add(step.left.name)
            return
        if step.op == "=" and isinstance(step.left, Var) and step.left.name in held:
            return
        easier = {"<", "<="} if self.name == "min" else {">", ">="}
        if step.op in easier and left and not right:
            return
        raise self._refused(next(v for t in (step.left, step.right) for v in variables(t)), f"compared by `{step.op}`")

    def _given(self) -> set[str]:
        return {arg.name for atom in self.rule.atoms() if not atom.negated for arg in atom.args if isinstance(arg, Var)}

    def _rises(self, term: Term, held: set[str]) -> bool:
        """Whether the value is in this term; a TextError where a larger value could make the term smaller."""
        if isinstance(term, Var):
            return term.name in held
        if not isinstance(term, Call):
            return False
        inside = [self._rises(arg, held) for arg in term.args]
        if not any(inside):
            return False
        if FUNCTIONS[term.function].monotone or (term.function == "-" and not inside[1]):
            return True
        raise self._refused(Var(term.function, term.at), "used in a function that is not monotone")

    def _refused(self, variable: Var, how: str) -> TextError:
        hint = "inside recursion an aggregated value may only be added to, and compared so that a better one passes"
        message = (
            f"`{self.rule.rel.name}` depends on its own `{self.name}`, whose value is {how} in `{self.rule.label}`"
        )
        return fail(self.made.text, variable.at or self.rule.at, message, hint=hint)
