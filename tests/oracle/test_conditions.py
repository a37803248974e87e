"""Normal forms keep the value of a condition, and what `implies` claims holds, by the oracle's judgement.

Conditions are made as they might be written, in no normal form, over columns of every kind. Values come from where
types meet: bounds of FLOAT and DOUBLE, texts beyond the letters, zeros of both signs, and NULL.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.plan import normal
from headgate.plan.expressions import And, Column, Compare, Expr, In, IsNull, Like, Literal, Not, Or, Type, Value
from headgate.plan.implication import implies, minimal
from headgate.testing.oracle import value_of

few, many = settings(max_examples=60, deadline=None), settings(max_examples=3000, deadline=None)

WHOLE = [-1, 0, 1, 2, 16777216, 16777217, 2147483647]
LARGE = [*WHOLE, 9007199254740992, 9007199254740993, -9007199254740993, 9223372036854775807]
SINGLE = [-1.5, -0.0, 0.0, 0.10000000149011612, 1.0, 16777216.0, 16777218.0, 9007199254740992.0]
DOUBLE = [*SINGLE, 0.1, 16777217.0, 9007199254740994.0, 9223372036854775808.0]
DOMAINS: dict[Type, list[Value]] = {
    Type.INT: [None, *WHOLE],
    Type.BIGINT: [None, *LARGE],
    Type.FLOAT: [None, *SINGLE],
    Type.DOUBLE: [None, *DOUBLE],
    Type.STRING: [None, "", "a", "ab", "b", "B", "\uff5e", "\U0001f600"],
    Type.BOOLEAN: [None, False, True],
    Type.DATE: [None, dt.date(2026, 1, 1), dt.date(2026, 1, 2)],
}
COLUMNS = {Column(number % 2, type_.lower(), type_): domain for number, (type_, domain) in enumerate(DOMAINS.items())}
NUMBERS = [column for column in COLUMNS if column.type.numeric]
Row = dict[Column, Value]


def literals(type_: Type) -> st.SearchStrategy[Literal]:
    """What may stand beside a value of this type; there are no literals of FLOAT."""
    if not type_.numeric:
        return st.sampled_from([Literal(x, type_ if x is not None else Type.NULL) for x in DOMAINS[type_]])
    whole = [Literal(x, Type.INT if abs(x) < 1 << 31 else Type.BIGINT) for x in LARGE]
    return st.sampled_from([Literal(None, Type.NULL), *whole, *(Literal(x, Type.DOUBLE) for x in DOUBLE)])


@st.composite
def atoms(draw: st.DrawFn, columns: Iterable[Column] = COLUMNS) -> Expr:
    column = draw(st.sampled_from(list(columns)))
    beside = literals(column.type)
    match draw(st.integers(0, 5)):
        case 0 if column.type == Type.BOOLEAN:
            return column
        case 1 if column.type == Type.STRING:
            return Like(column, draw(st.sampled_from(["a%", "_", "%"])))
        case 2:
            return IsNull(column)
        case 3:
            return In(column, frozenset(draw(st.lists(beside, min_size=1, max_size=3))))
        case 4 if column.type.numeric:
            return Compare(draw(st.sampled_from(list(normal.FLIPPED))), column, draw(st.sampled_from(NUMBERS)))
        case _:
            sides: tuple[Expr, Expr] = column, draw(beside)
            left, right = draw(st.sampled_from([sides, sides, sides[::-1]]))
            return Compare(draw(st.sampled_from(list(normal.FLIPPED))), left, right)


def conditions(atom: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """As somebody might write them."""
    return st.recursive(
        atom,
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=1, max_size=3).map(lambda x: And(frozenset(x))),
            st.lists(inner, min_size=1, max_size=3).map(lambda x: Or(frozenset(x))),
        ),
        max_leaves=6,
    )


def value(expr: Expr, row: Row) -> Value:
    return value_of(expr, lambda column: row[column])  # type: ignore[index]


def normalised(expr: Expr) -> Expr:
    """As the binder makes it."""
    match expr:
        case Compare(operator, left, right):
            return normal.compare(operator, left, right)
        case In(operand, items):
            return normal.membership(operand, items)
        case Not(operand):
            return normal.negate(normalised(operand))
        case And(operands):
            return normal.conjunction(map(normalised, operands))
        case Or(operands):
            return normal.disjunction(map(normalised, operands))
        case _:
            return expr


def both(values: Iterable[Value]) -> Value:
    """AND of three truth values."""
    found = list(values)
    if all(x is True for x in found):
        return True
    return False if any(x is False for x in found) else None


# The laws ------------------------------------------------------------------------------------------------------------


def normal_forms_keep_the_value(condition: Expr, rows: list[Row]) -> None:
    normal_form = normalised(condition)
    for row in rows:
        assert value(normal_form, row) is value(condition, row)


def negation_is_the_opposite(condition: Expr, rows: list[Row]) -> None:
    negated = normal.negate(normalised(condition))
    for row in rows:
        assert (value(negated, row), value(condition, row)) in [(True, False), (False, True), (None, None)]


def conjuncts_together_are_the_condition(condition: Expr, rows: list[Row]) -> None:
    found = normal.conjuncts(normalised(condition))
    for row in rows:
        assert both(value(conjunct, row) for conjunct in found) is value(condition, row)


def moving_keeps_the_value(condition: Expr, rows: list[Row]) -> None:
    def other(column: Column) -> Column:
        return Column(1 - column.input, column.name, column.type)

    moved = normal.moved(normalised(condition), other)
    for row in rows:
        assert value(moved, {other(column): x for column, x in row.items()}) is value(condition, row)


def what_is_implied_holds(about: tuple[list[Expr], list[Row]]) -> None:
    found, rows = list(map(normalised, about[0])), about[1]
    for first, second in permutations(found, 2):
        if implies(first, second):
            assert all(value(second, row) is True for row in rows if value(first, row) is True)


def minimal_conditions_decide_the_same(about: tuple[list[Expr], list[Row]]) -> None:
    found, rows = frozenset(map(normalised, about[0])), about[1]
    for row in rows:
        met = all(value(condition, row) is True for condition in found)
        assert met is all(value(condition, row) is True for condition in minimal(found))


@st.composite
def about_one_column(draw: st.DrawFn) -> tuple[list[Expr], list[Row]]:
    """Conditions on one column, and rows with every value of it."""
    column = draw(st.sampled_from(list(COLUMNS)))
    rows: list[Row] = [dict.fromkeys(COLUMNS) | {column: x} for x in COLUMNS[column]]
    return draw(st.lists(conditions(atoms([column])), min_size=2, max_size=4)), rows


def random_rows(seed: int) -> list[Row]:
    rng = Random(seed)
    return [{column: rng.choice(domain) for column, domain in COLUMNS.items()} for _ in range(20)]


anything = conditions(atoms())
rows = st.integers(0, 1 << 32).map(random_rows)
LAWS = {
    normal_forms_keep_the_value: (anything, rows),
    negation_is_the_opposite: (anything, rows),
    conjuncts_together_are_the_condition: (anything, rows),
    moving_keeps_the_value: (anything, rows),
    what_is_implied_holds: (about_one_column(),),
    minimal_conditions_decide_the_same: (about_one_column(),),
}
each_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)


@each_law
def test_a_law_of_conditions_holds(law: object) -> None:
    few(given(*LAWS[law])(law))()  # type: ignore[index, arg-type]


@pytest.mark.long
@each_law
def test_a_law_of_conditions_holds_for_many(law: object) -> None:
    many(given(*LAWS[law])(law))()  # type: ignore[index, arg-type]
