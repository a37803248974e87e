"""What holds for all queries, tuples and rights: arrival adds nothing to the meaning, hidden tuples tell nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.labels import Clearance, Rules
from headgate.plan.queries import Query
from headgate.testing.oracle import Change, Event, Tuple, cumulative, exact, meaning

from .given import bound, label_of
from .strategies import clearances, events, in_order, queries, subscribers, tuples, unbounded_queries

RULES = Rules()
LATENESS = {"A": 2, "B": 1}
few, many = settings(max_examples=250, deadline=None), settings(max_examples=2000, deadline=None)
columns = st.sampled_from(["r1", "r2", "r1 & r2"])


def permitted(seen: Tuple, *clearances: Clearance) -> bool:
    return any(RULES.permits(seen.label, clearance) for clearance in clearances)


def on_time(query: Query, seen: Sequence[Tuple], lateness: Mapping[str, int]) -> list[Tuple]:
    """Without those that are below the watermark when they arrive."""
    greatest = {reading.stream.name: -math.inf for block in query.blocks for reading in block.readings}
    kept = []
    for tuple_ in seen:
        if tuple_.stream in greatest:
            if tuple_.time >= min(greatest[stream] - lateness[stream] for stream in greatest):
                kept.append(tuple_)
            greatest[tuple_.stream] = max(greatest[tuple_.stream], tuple_.time)
    return kept


# The laws, each checked on few examples and, in the long suite, on many ----------------------------------------------


def exact_is_the_meaning_of_what_is_visible(text: str, arriving: Sequence[Tuple], clearance: Clearance) -> None:
    query = bound(text)
    visible = [x for x in arriving if permitted(x, clearance)]
    expected = meaning(query, on_time(query, visible, LATENESS))
    assert exact(query, arriving, {"ann": clearance}, lateness=LATENESS)["ann"] == expected


def hidden_columns_are_null(text: str, arriving: Sequence[Tuple], clearance: Clearance, label: str) -> None:
    """A column that may not be read might as well be empty and without a label."""
    query = bound(text, {"A": {"v": label}})
    if RULES.permits(label_of(label), clearance):
        plain, emptied = query, list(arriving)
    else:
        plain = bound(text)
        emptied = [Tuple(x.stream, x.time, {n: v for n, v in x.values.items() if n != "v"}, x.label) for x in arriving]
    visible = [x for x in emptied if permitted(x, clearance)]
    expected = meaning(plain, on_time(plain, visible, LATENESS))
    assert exact(query, arriving, {"ann": clearance}, lateness=LATENESS)["ann"] == expected


def invisible_tuples_do_not_matter(text: str, happening: Sequence[Event], clearance: Clearance) -> None:
    """Neither their values, nor their number, nor their times: without them everything is the same."""
    query = bound(text)
    now: list[Clearance] = [clearance]
    visible: list[Event] = []
    for event in happening:
        if isinstance(event, Change):
            visible.append(event)
            if event.subscriber == "ann":
                now = [event.clearance] if event.clearance else []
        elif not isinstance(event, Tuple) or permitted(event, *now):
            visible.append(event)
    whole = exact(query, happening, {"ann": clearance}, lateness=LATENESS)
    assert whole == exact(query, visible, {"ann": clearance}, lateness=LATENESS)


def results_permit_whom_they_are_delivered_to(
    text: str, happening: Sequence[Event], people: Mapping[str, Clearance]
) -> None:
    for receive in (exact, cumulative):
        for name, results in receive(bound(text), happening, people, lateness=LATENESS).items():
            for result in results:
                changed = [
                    x.clearance for x in happening[: result.after] if isinstance(x, Change) and x.subscriber == name
                ]
                clearance = [people[name], *changed][-1]
                assert clearance is not None
                assert RULES.permits(result.label, clearance)


def cumulative_is_the_meaning_of_what_anybody_sees(
    text: str, arriving: Sequence[Tuple], people: Mapping[str, Clearance]
) -> None:
    query = bound(text)
    visible = [x for x in arriving if permitted(x, *people.values())]
    whole = meaning(query, on_time(query, visible, LATENESS))
    expected = {name: [x for x in whole if RULES.permits(x.label, people[name])] for name in people}
    assert cumulative(query, arriving, people, lateness=LATENESS) == expected


def cumulative_contains_exact(text: str, happening: Sequence[Event], people: Mapping[str, Clearance]) -> None:
    """Where windows are unbounded and nothing is late, without aggregates and DISTINCT, whatever rights change."""
    query, ordered = bound(text), in_order(happening)
    less, more = exact(query, ordered, people), cumulative(query, ordered, people)
    for name in people:
        assert Counter(less[name]) <= Counter(more[name])


def what_was_delivered_does_not_depend_on_what_comes(
    text: str, happening: Sequence[Event], people: Mapping[str, Clearance], place: int
) -> None:
    query, before = bound(text), happening[: place + 1]
    for receive in (exact, cumulative):
        whole, begun = receive(query, happening, people), receive(query, before, people)
        for name in people:
            early = [(x, x.after) for x in whole[name] if x.after < len(before)]
            assert early == [(x, x.after) for x in begun[name] if x.after < len(before)]


def the_order_of_from_does_not_matter(condition: str, windows: tuple[str, str], arriving: Sequence[Tuple]) -> None:
    left, right = windows
    one = bound(f"SELECT RSTREAM v, w FROM A {left}, B {right} WHERE {condition}")
    other = bound(f"SELECT RSTREAM v, w FROM B {right}, A {left} WHERE {condition}")
    assert meaning(one, arriving) == meaning(other, arriving)


LAWS = {
    exact_is_the_meaning_of_what_is_visible: (queries, tuples, clearances),
    hidden_columns_are_null: (queries, tuples, clearances, columns),
    invisible_tuples_do_not_matter: (queries, events, clearances),
    results_permit_whom_they_are_delivered_to: (queries, events, subscribers),
    cumulative_is_the_meaning_of_what_anybody_sees: (queries, tuples, subscribers),
    cumulative_contains_exact: (unbounded_queries, events, subscribers),
    what_was_delivered_does_not_depend_on_what_comes: (queries, events, subscribers, st.integers(0, 18)),
    the_order_of_from_does_not_matter: (
        st.sampled_from(["A.k = B.k", "v < w", "TRUE"]),
        st.tuples(st.sampled_from(["", "[ROWS 2]", "[NOW]"]), st.sampled_from(["[ROWS 1]", "[RANGE 3 MILLISECONDS]"])),
        tuples,
    ),
}
each_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)


@each_law
def test_a_law_holds(law: object) -> None:
    few(given(*LAWS[law])(law))()  # type: ignore[index, arg-type]


@pytest.mark.long
@each_law
def test_a_law_holds_for_many(law: object) -> None:
    many(given(*LAWS[law])(law))()  # type: ignore[index, arg-type]
