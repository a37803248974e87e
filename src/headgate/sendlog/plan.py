"""Rules as relational plans: one rule strand for each way in which a change can set the rule off.

A strand begins with a changed tuple (a delta, paper 003 section 5.1), joins the other predicates of the body with their
tables, tests, assigns, and ends in a head. The embedded engine generates its loops from strands and
`headgate sendlog explain` prints the same strands: the plan that is shown is the plan that runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.sendlog.core import Arg, CoreRule, Lit
from headgate.sendlog.syntax import Compare, Term, Var, variables


@dataclass(frozen=True, slots=True)
class Join:
    """Rows of a table that agree with the bound columns; `absent`: go on only where there is none."""

    lit: Lit
    columns: tuple[int, ...]
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    variable: str
    term: Term


@dataclass(frozen=True, slots=True)
class Select:
    compare: Compare


Operator = Join | Assign | Select


@dataclass(frozen=True)
class Strand:
    """`trigger` is the place in the body of the changed atom; None begins with the head's values (`from_head`), to see
    whether a tuple can still be derived, or with nothing, to compute the whole."""

    rule: CoreRule
    trigger: int | None
    operators: tuple[Operator, ...]
    from_head: bool = False

    @property
    def changed(self) -> Lit | None:
        step = None if self.trigger is None else self.rule.body[self.trigger]
        return step if isinstance(step, Lit) else None


def strand(rule: CoreRule, trigger: int | None, *, from_head: bool = False) -> Strand:
    """Orders the body: what can be tested is tested first, then the table with most bound columns is joined."""
    bound = {rule.self_name}
    waiting = [(i, step) for i, step in enumerate(rule.body) if i != trigger or _negated(step)]
    if trigger is not None:
        changed = rule.body[trigger]
        if isinstance(changed, Lit):
            bound |= _named(changed.args, skip_anonymous=changed.negated)
    if from_head:
        bound |= _named(rule.args)
    operators: list[Operator] = []
    while waiting:
        found = next((x for x in waiting if _ready(x[1], bound)), None) or _best(waiting, bound)
        waiting.remove(found)
        operators.append(_operator(found[1], bound))
    return Strand(rule, trigger, tuple(operators), from_head)


def _negated(step: object) -> bool:
    return isinstance(step, Lit) and step.negated


def _named(args: list[Arg] | tuple[Arg, ...], *, skip_anonymous: bool = False) -> set[str]:
    return {arg.name for arg in args if isinstance(arg, Var) and not (skip_anonymous and arg.name.startswith("_."))}


def _ready(step: Lit | Compare, bound: set[str]) -> bool:
    if isinstance(step, Lit):
        return step.negated and _named(step.args, skip_anonymous=True) <= bound
    return _assigns(step, bound) is not None or all(_known(t, bound) for t in (step.left, step.right))


def _known(term: Term, bound: set[str]) -> bool:
    return all(v.name in bound for v in variables(term))


def _assigns(step: Compare, bound: set[str]) -> Assign | None:
    if step.op == "=":
        for target, source in ((step.left, step.right), (step.right, step.left)):
            if isinstance(target, Var) and target.name not in bound and _known(source, bound):
                return Assign(target.name, source)
    return None


def _best(waiting: list[tuple[int, Lit | Compare]], bound: set[str]) -> tuple[int, Lit | Compare]:
    atoms = [(i, step) for i, step in waiting if isinstance(step, Lit) and not step.negated]
    return max(atoms, key=lambda x: (len(_columns(x[1], bound)) == len(x[1].args), len(_columns(x[1], bound)), -x[0]))


def _columns(lit: Lit, bound: set[str]) -> tuple[int, ...]:
    return tuple([i for i, arg in enumerate(lit.args) if not isinstance(arg, Var) or arg.name in bound])


def _operator(step: Lit | Compare, bound: set[str]) -> Operator:
    """The operator, and its variables become bound."""
    if isinstance(step, Lit):
        columns = _columns(step, bound)
        if not step.negated:
            bound |= _named(step.args)
        return Join(step, columns, step.negated)
    assigned = _assigns(step, bound)
    if assigned is None:
        return Select(step)
    bound.add(assigned.variable)
    return assigned


def strands(rule: CoreRule) -> list[Strand]:
    """One for every atom of the body, negated ones included."""
    return [strand(rule, i) for i, step in enumerate(rule.body) if isinstance(step, Lit)]
