"""Plan nodes: equality includes the types of columns and literals, and a node that makes no sense cannot be made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from headgate.cql.queries import parse_query
from headgate.plan import nodes as n
from headgate.plan.expressions import AggregateCall, Column, Compare, Expr, In, Literal, Type
from headgate.plan.lowering import lower
from headgate.plan.queries import Stream, bind_query

S = n.Source("joe.s")
A, B = Column(0, "a", Type.INT), Column(1, "a", Type.INT)
WIDE = Column(0, "a", Type.BIGINT)
ONE = Literal(1, Type.INT)
WINDOW = n.Window(S, "ROWS", rows=5)


def _is_one(column: Expr, one: Expr = ONE) -> Expr:
    return Compare("=", column, one)


def _count(column: Expr) -> AggregateCall:
    return AggregateCall("COUNT", column, False, Type.BIGINT)


PAIRS: dict[str, tuple[n.Node, n.Node]] = {
    "a selection": (n.Select(S, frozenset({_is_one(A)})), n.Select(S, frozenset({_is_one(WIDE)}))),
    "a literal": (
        n.Select(S, frozenset({_is_one(A)})),
        n.Select(S, frozenset({_is_one(A, Literal(1, Type.BIGINT))})),
    ),
    "a list of literals": (
        n.Select(S, frozenset({In(A, frozenset({ONE, Literal(2, Type.INT)}))})),
        n.Select(S, frozenset({In(A, frozenset({ONE, Literal(2, Type.BIGINT)}))})),
    ),
    "a projection": (n.Project(S, (("a", A),)), n.Project(S, (("a", WIDE),))),
    "a partitioned window": (
        n.Window(S, "PARTITIONED", rows=5, partition=(A,)),
        n.Window(S, "PARTITIONED", rows=5, partition=(WIDE,)),
    ),
    "a group": (
        n.Aggregate(WINDOW, frozenset({A}), frozenset()),
        n.Aggregate(WINDOW, frozenset({WIDE}), frozenset()),
    ),
    "a call": (
        n.Aggregate(WINDOW, frozenset(), frozenset({_count(A)})),
        n.Aggregate(WINDOW, frozenset(), frozenset({_count(WIDE)})),
    ),
    "the result of a call": (
        n.Aggregate(WINDOW, frozenset(), frozenset({AggregateCall("SUM", A, False, Type.BIGINT)})),
        n.Aggregate(WINDOW, frozenset(), frozenset({AggregateCall("SUM", A, False, Type.INT)})),
    ),
    "a join": (
        n.Join((WINDOW, WINDOW), frozenset({Compare("=", A, B)})),
        n.Join((WINDOW, WINDOW), frozenset({Compare("=", WIDE, B)})),
    ),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_nodes_that_differ_in_a_type_are_not_equal(kind: str) -> None:
    one, other = PAIRS[kind]
    assert str(one) == str(other)
    assert one != other
    assert one.key != other.key
    assert n.Distinct(one) != n.Distinct(other)


@pytest.mark.parametrize("kind", PAIRS)
def test_nodes_of_the_same_types_are_equal(kind: str) -> None:
    one, _ = PAIRS[kind]
    again = replace(one)
    assert again == one and hash(again) == hash(one) and again.key == one.key


@pytest.mark.parametrize("text", ["SELECT a WHERE a = 1 FROM s", "SELECT a, COUNT(*) FROM s [ROWS 5] GROUP BY a"])
def test_a_query_over_an_int_and_the_same_over_a_bigint_are_two_plans(text: str) -> None:
    def planned(type_: Type) -> n.Node:
        return lower(bind_query(parse_query(text), lambda _: Stream("joe.s", (("a", type_),))))

    assert planned(Type.INT) == planned(Type.INT)
    assert planned(Type.INT) != planned(Type.BIGINT)


SENSELESS: dict[str, tuple[str, Callable[[], n.Node]]] = {
    "no stream": ("a source has a name", lambda: n.Source("")),
    "no condition": ("a condition is BOOLEAN, `a` is INT", lambda: n.Select(S, frozenset({A}))),
    "no such input": ("`a@1` reads input 1 of 1", lambda: n.Select(S, frozenset({_is_one(B)}))),
    "an aggregate without groups": (
        "`COUNT(a)` stands above no aggregate",
        lambda: n.Select(WINDOW, frozenset({_is_one(_count(A))})),
    ),
    "a call that was not computed": (
        "`COUNT(a)` stands above no aggregate",
        lambda: n.Project(n.Aggregate(WINDOW, frozenset({A}), frozenset()), (("n", _count(A)),)),
    ),
    "nothing projected": ("a projection has columns", lambda: n.Project(S, ())),
    "no rows": ("a window of ROWS has 1 row or more", lambda: n.Window(S, "ROWS")),
    "rows of a range": ("a window of RANGE has no rows", lambda: n.Window(S, "RANGE", rows=3, range=5)),
    "a negative range": ("a window of RANGE has a range", lambda: n.Window(S, "RANGE", range=-1)),
    "a size of NOW": ("a window of NOW has no range", lambda: n.Window(S, "NOW", range=5)),
    "a slide of rows": ("a window of ROWS has no range", lambda: n.Window(S, "ROWS", rows=5, slide=5)),
    "no partition": ("a window of PARTITIONED has columns", lambda: n.Window(S, "PARTITIONED", rows=5)),
    "a partition of rows": (
        "a window of ROWS has no columns",
        lambda: n.Window(S, "ROWS", rows=5, partition=(A,)),
    ),
    "a join of one": ("a join has 2 sides or more", lambda: n.Join((WINDOW,), frozenset())),
    "a join over more": (
        "`a@2` reads input 2 of 2",
        lambda: n.Join((WINDOW, WINDOW), frozenset({Compare("=", A, Column(2, "a", Type.INT))})),
    ),
    "a union of one": ("a union has 2 blocks or more", lambda: n.Union((n.Project(S, (("a", A),)),))),
    "a union of unlike blocks": (
        "the blocks of a union have the same types",
        lambda: n.Union((n.Project(S, (("a", A),)), n.Project(S, (("a", WIDE),)))),
    ),
}


@pytest.mark.parametrize("kind", SENSELESS)
def test_a_node_that_makes_no_sense_cannot_be_made(kind: str) -> None:
    message, make = SENSELESS[kind]
    with pytest.raises(ValueError, match="cannot make") as caught:
        make()
    assert str(caught.value).endswith(f": {message}")
