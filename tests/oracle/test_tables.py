"""What tables mean (SPEC.md, 4.2 and 4.3), in examples computed by hand; here B is a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.cql.queries import parse_query
from headgate.labels import Rules
from headgate.plan.queries import Query, bind_query
from headgate.testing.oracle import Change, Event, Tuple, cumulative, exact, meaning

from .given import ORDER, STREAMS, a, b, label_of, labelled, shown, who

TABLE = [b(0, k=1, w=10), b(0, k=1, w=11, label="doctor"), b(0, k=2, w=20)]
JOINED = "SELECT A.v, B.w FROM A, B WHERE A.k = B.k"


def bound(text: str, label: str = "") -> Query:
    """With a label on column w, if there is one."""
    labels = (("w", label_of(label)),) if label else ()
    streams = {**STREAMS, "B": replace(STREAMS["B"], labels=labels, table=True)}
    return bind_query(parse_query(text), lambda target: streams[target.name])


def received(
    text: str, *events: Event, label: str = "", table: list[Tuple] = TABLE
) -> list[tuple[int, tuple[object, ...]]]:
    """By ann, a nurse at first."""
    found = exact(bound(text, label), events, {"ann": who("nurse")}, tables=table, rules=Rules(ORDER))
    return shown(found["ann"])  # type: ignore[return-value]


def test_all_of_a_table_is_there_before_the_first_tuple_of_a_stream() -> None:
    found = meaning(bound(JOINED), [a(-5_000, k=1, v=1), a(1_000, k=3, v=2)], tables=TABLE)
    assert labelled(found) == [(-5_000, (1, 10), "TRUE"), (-5_000, (1, 11), "doctor")]


def test_a_table_is_no_instant_and_moves_no_watermark() -> None:
    found = meaning(bound("SELECT RSTREAM COUNT(*) AS n FROM A [ROWS 9], B"), [a(1, k=1), a(2, k=1)], tables=TABLE)
    assert shown(found) == [(1, (3,)), (2, (6,))]
    assert received(JOINED, a(1_000, k=1, v=1), a(2_000, k=2, v=2)) == [(1_000, (1, 10)), (2_000, (2, 20))]


def test_an_empty_table_yields_nothing() -> None:
    assert received(JOINED, a(1_000, k=1, v=1), table=[]) == []


@pytest.mark.parametrize("window", ["", "[UNBOUNDED]", "[NOW]"])
def test_changed_rights_to_a_table_emit_nothing_by_themselves(window: str) -> None:
    text = f"SELECT A.v, B.w FROM A {window}, B WHERE A.k = B.k"
    doctor, nurse = Change("ann", who("doctor", "nurse")), Change("ann", who("nurse"))
    events: list[Event] = [a(1, k=1, v=1), a(2, k=9), doctor, a(3, k=1, v=3), a(4, k=9), nurse, a(5, k=1, v=5)]
    assert received(text, *events) == [(1, (1, 10)), (3, (3, 10)), (3, (3, 11)), (5, (5, 10))]


def test_what_a_table_lost_is_not_reported_and_what_it_gained_leaves_with_its_row() -> None:
    text = "SELECT DSTREAM A.v, B.w FROM A [ROWS 1], B WHERE A.k = B.k"
    doctor, nurse = Change("ann", who("doctor", "nurse")), Change("ann", who("nurse"))
    assert received(text, doctor, a(1, k=1, v=1), a(2, k=9), nurse) == [(2, (1, 10))]
    gained = received(text, a(1, k=1, v=1), a(2, k=1, v=2), doctor, a(3, k=9))
    assert gained == [(2, (1, 10)), (2, (1, 11)), (3, (2, 10)), (3, (2, 11))]


def test_a_column_of_a_table_is_null_only_while_it_may_not_be_read() -> None:
    doctor, nurse = Change("ann", who("doctor")), Change("ann", who("nurse"))
    events: list[Event] = [a(1, k=2, v=1), a(2, k=9), doctor, a(3, k=2, v=3), a(4, k=9), nurse, a(5, k=2, v=5)]
    assert received(JOINED, *events, label="doctor") == [(1, (1, None)), (3, (3, 20)), (5, (5, None))]


def test_conditions_before_and_after_from_choose_alike_from_a_table() -> None:
    before = "SELECT A.v, B.w WHERE B.w > 10 FROM A [ROWS 2], B"
    after = "SELECT A.v, B.w FROM A [ROWS 2], B WHERE B.w > 10"
    events = [a(1, v=1), a(2, v=2)]
    assert received(before, *events) == received(after, *events) == [(1, (1, 20)), (2, (2, 20))]


def test_in_cumulative_mode_the_labels_of_a_table_protect_results() -> None:
    people = {"doc": who("doctor"), "ann": who("nurse")}
    found = cumulative(
        bound(JOINED), [a(1, k=1, v=1, label="nurse | doctor")], people, tables=TABLE, rules=Rules(ORDER)
    )
    assert {name: shown(results) for name, results in found.items()} == {
        "doc": [(1, (1, 10)), (1, (1, 11))],
        "ann": [(1, (1, 10))],
    }
