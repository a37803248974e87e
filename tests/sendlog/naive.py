"""What a program means, as plainly as possible: all rules, all principals, all tuples, again and again until nothing
changes.

No indexes, no deltas, no messages: an export is a tuple in its receiver's relation. Relations are computed component by
component, so negation and aggregates see finished tables; aggregates inside recursion are computed anew in every pass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headgate.sendlog.core import Core, CoreRule, Lit, Rel
from headgate.sendlog.functions import FAILURES, FUNCTIONS
from headgate.sendlog.recursion import node
from headgate.sendlog.strata import components
from headgate.sendlog.syntax import Call, Compare, Const, Term, Var, variables
from headgate.sendlog.values import Row, Value

State = dict[tuple[str, Rel], set[Row]]
Bindings = dict[str, Value]
PASSES = 500
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def evaluate(core: Core, principals: Iterable[str], facts: Iterable[tuple[str, Rel, Row]]) -> State:
    """The tables of all principals."""
    people = list(principals)
    base: State = {}
    for who, rel, row in facts:
        base.setdefault((who, rel), set()).add(row)
    for who in people:
        for rel, row in core.facts_of(who):
            base.setdefault((who, rel), set()).add(row)
    needs: dict[tuple[str, bool], list[tuple[str, bool]]] = {}
    for rule in core.rules:
        needs.setdefault(node(rule.rel), []).extend(node(atom.rel) for atom in rule.atoms())
    state: State = {key: set(rows) for key, rows in base.items()}
    _deliver(state)
    for component in components(list(needs), needs):
        rules = [rule for rule in core.rules if node(rule.rel) in component]
        for _ in range(PASSES):
            found = {key: set(rows) for key, rows in state.items()}
            for who, rel in list(found):
                if any(rule.rel == rel for rule in rules) or (rel.name, rel.kind != "local") in component:
                    found[who, rel] = set(base.get((who, rel), ()))
            for who in people:
                for rel in dict.fromkeys(rule.rel for rule in rules):
                    mine = [r for r in rules if r.rel == rel and r.owner in (None, who)]
                    found.setdefault((who, rel), set()).update(_derived(mine, who, state))
            _deliver(found)
            if found == state:
                break
            state = found
        else:
            raise AssertionError("no fixpoint")
    return {key: rows for key, rows in state.items() if rows}


def _deliver(state: State) -> None:
    for (_, rel), rows in list(state.items()):
        if rel.kind == "out":
            for to, *rest in rows:
                state.setdefault((str(to), Rel(rel.name, "said")), set()).add(tuple(rest))


def _derived(rules: list[CoreRule], who: str, state: State) -> set[Row]:
    found: set[Row] = set()
    groups: dict[tuple[str, int, Row], list[tuple[Value, ...]]] = {}
    for rule in rules:
        solutions = {
            tuple(sorted(b.items())): b for b in _solutions(rule, list(rule.body), {rule.self_name: who}, who, state)
        }
        for bindings in solutions.values():
            if rule.aggregate is None:
                found.add(tuple([_value(arg, bindings) for arg in rule.args]))
                continue
            aggregate, width = rule.aggregate, len(rule.aggregate.over)
            kept = [a for i, a in enumerate(rule.args) if not aggregate.column <= i < aggregate.column + width]
            group = (aggregate.name, aggregate.column, tuple([_value(arg, bindings) for arg in kept]))
            groups.setdefault(group, []).append(tuple([bindings.get(v.name, 0) for v in aggregate.over]))
    for (name, column, kept_key), values in groups.items():
        if name == "count":
            value: tuple[Value, ...] = (len(values),)
        elif name == "sum":
            value = (sum(v[0] for v in values if not isinstance(v[0], str | tuple)),)
        else:
            value = min(values) if name == "min" else max(values)
        found.add((*kept_key[:column], *value, *kept_key[column:]))
    return found


def _solutions(
    rule: CoreRule, steps: list[Lit | Compare], bindings: Bindings, who: str, state: State
) -> Iterator[Bindings]:
    if not steps:
        yield dict(bindings)
        return
    step = next((s for s in steps if _ready(s, bindings)), None) or next(
        s for s in steps if isinstance(s, Lit) and not s.negated
    )
    rest = [s for s in steps if s is not step]
    if isinstance(step, Compare):
        for extended in _compared(step, bindings):
            yield from _solutions(rule, rest, extended, who, state)
        return
    rows = state.get((who, step.rel), set())
    matches = [m for row in rows if (m := _matched(step.args, row, bindings)) is not None]
    if step.negated:
        if not matches:
            yield from _solutions(rule, rest, bindings, who, state)
        return
    for match in matches:
        yield from _solutions(rule, rest, match, who, state)


def _ready(step: Lit | Compare, bindings: Bindings) -> bool:
    def known(term: Term) -> bool:
        return all(v.name in bindings for v in variables(term))

    if isinstance(step, Lit):
        return step.negated and all(known(a) or (isinstance(a, Var) and a.name.startswith("_.")) for a in step.args)
    if known(step.left) and known(step.right):
        return True
    return step.op == "=" and (
        (isinstance(step.left, Var) and known(step.right)) or (isinstance(step.right, Var) and known(step.left))
    )


def _matched(args: tuple[Var | Const, ...], row: Row, bindings: Bindings) -> Bindings | None:
    found = dict(bindings)
    for arg, value in zip(args, row, strict=True):
        if isinstance(arg, Const):
            if arg.value != value:
                return None
        elif found.setdefault(arg.name, value) != value:
            return None
    return found


def _compared(step: Compare, bindings: Bindings) -> Iterator[Bindings]:
    try:
        if step.op == "=":
            for target, source in ((step.left, step.right), (step.right, step.left)):
                if isinstance(target, Var) and target.name not in bindings:
                    yield bindings | {target.name: _value(source, bindings)}
                    return
        left, right = _value(step.left, bindings), _value(step.right, bindings)
        holds: bool = _COMPARED[step.op](left, right)
    except FAILURES:
        return
    if holds:
        yield bindings


def _value(term: Term, bindings: Bindings) -> Value:
    match term:
        case Var(name=name):
            return bindings[name]
        case Const(value=value):
            return value
        case Call(function=function, args=args):
            return FUNCTIONS[function].python(*[_value(arg, bindings) for arg in args])
