"""What subscribers receive of queries over the results of other queries (SPEC.md, section 4.3), in examples computed by
hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headgate.cql.names import Target
from headgate.cql.queries import parse_query
from headgate.labels import Clearance, Rules, Semantics, parse_label
from headgate.plan.queries import Stream, bind_query
from headgate.testing.oracle import (
    CascadedQuery,
    CascadeSetting,
    Change,
    ClockEvent,
    Event,
    Limit,
    OracleResult,
    cascade,
)

from .given import ORDER, STREAMS, a, b, shown, who


def links(*texts: str) -> list[CascadedQuery]:
    """Queries whose results make the streams O1, O2 and so on, which later ones read."""
    known = dict(STREAMS)
    found: list[CascadedQuery] = []
    for number, text in enumerate(texts, 1):

        def find(target: Target) -> Stream:
            return known[target.name]

        query = bind_query(parse_query(text), find)
        found.append(CascadedQuery(query, f"O{number}"))
        known[f"O{number}"] = Stream(f"O{number}", query.columns)
    return found


def ann(
    *texts: str,
    events: list[Event],
    has: Clearance | None = None,
    lateness: Mapping[str, int] | None = None,
    delay: Mapping[str, int] | None = None,
    without: Collection[str] = (),
    rules: Rules | None = None,
    declared: Mapping[str, str] | None = None,
) -> list[OracleResult]:
    """What ann receives of the last query, if she may read all streams but those `without`."""
    made = links(*texts)
    sources = frozenset({*STREAMS, *(link.output for link in made)}.difference(without))
    mine = has or who()
    clearance = Clearance(mine.roles, mine.level, sources)
    labels = {name: parse_label(f"{(declared or {}).get(name, 'TRUE')} FROM {name}") for name in STREAMS}
    setting = CascadeSetting(rules or Rules(ORDER), lateness or {}, delay or {}, labels)
    return cascade(made, events, {"ann": clearance}, setting)[made[-1].output]["ann"]


def when(results: list[OracleResult]) -> list[tuple[int, tuple[object, ...], int]]:
    return [(result.time, result.values, result.after) for result in results]


BOTH = "SELECT v FROM A UNION ALL SELECT w FROM B"


def test_a_window_over_two_streams_read_one_after_the_other_loses_nothing() -> None:
    events: list[Event] = [*(a(t, v=t) for t in range(60)), *(b(t, w=t) for t in range(60))]
    found = ann(BOTH, "SELECT COUNT(*) AS n FROM O1 [UNBOUNDED]", events=events)
    assert len(found) == 120 and found[-1].values == (120,)
    assert {x.after for x in found if x.time < 59} == set(range(61, 120))  # as far as B has come
    assert [x.after for x in found if x.time == 59] == [120, 120]


def test_an_output_comes_as_far_as_the_least_of_its_blocks() -> None:
    """The window's results wait for A, and A's own tuples are there before them; neither makes the other late."""
    texts = "SELECT v FROM A UNION ALL SELECT MAX(v) AS v FROM A [RANGE 2 SECONDS SLIDE 2 SECONDS]"
    events: list[Event] = [a(1000, v=1), a(2500, v=2), a(4500, v=3)]
    found = ann(texts, "SELECT v FROM O1 [ROWS 1]", events=events)
    assert when(found) == [
        (1000, (1,), 1),
        (2000, (1,), 1),
        (2500, (2,), 2),
        (4000, (2,), 2),
        (4500, (3,), 3),
        (6000, (3,), 3),
    ]


def test_what_is_late_for_a_stream_is_late_behind_a_stateless_block_too() -> None:
    events: list[Event] = [a(5, v=1), a(3, v=2), a(9, v=3)]
    whole = ann("SELECT v FROM A", "SELECT v FROM O1 [ROWS 1]", events=events)
    assert shown(whole) == shown(ann("SELECT v FROM A [ROWS 1]", events=events)) == [(5, (1,)), (9, (3,))]
    patient = ann("SELECT v FROM A", "SELECT v FROM O1 [ROWS 1]", events=events, lateness={"A": 2})
    assert shown(patient) == [(3, (2,)), (5, (1,)), (9, (3,))]


def test_time_passes_behind_a_condition_that_nothing_meets() -> None:
    """No result comes of the second tuple, but it says that nothing earlier will."""
    texts = "SELECT v FROM A WHERE v > 0", "SELECT v FROM O1 [ROWS 1]"
    assert when(ann(*texts, events=[a(1, v=1), a(2, v=0)])) == [(1, (1,), 1)]


def test_time_does_not_pass_by_tuples_that_may_not_be_seen() -> None:
    texts = "SELECT v FROM A", "SELECT v FROM O1 [ROWS 1]"
    assert when(ann(*texts, events=[a(1, v=1), a(9, v=0, label="nurse"), a(2, v=2)])) == [(1, (1,), 2), (2, (2,), 3)]


def test_three_stages_are_final_with_the_tuple_that_made_the_first_final() -> None:
    texts = "SELECT v FROM A [ROWS 1]", "SELECT v FROM O1 [ROWS 1]", "SELECT SUM(v) AS s FROM O2 [ROWS 2]"
    assert when(ann(*texts, events=[a(1, v=1), a(2, v=2), a(3, v=3)])) == [(1, (1,), 1), (2, (3,), 2), (3, (5,), 3)]


def test_a_stream_and_what_is_made_of_it_meet_at_the_same_instant() -> None:
    texts = "SELECT v FROM A [ROWS 1]", "SELECT A.v, O1.v AS o FROM A [NOW], O1 [NOW]"
    assert when(ann(*texts, events=[a(1, v=1), a(2, v=2)])) == [(1, (1, 1), 1), (2, (2, 2), 2)]


def test_the_end_makes_all_stages_final_in_order() -> None:
    texts = "SELECT v FROM A [ROWS 1]", "SELECT v FROM O1 [ROWS 1]"
    assert when(ann(*texts, events=[a(1, v=1), a(1, v=2)])) == [(1, (1,), 2), (1, (2,), 2)]


def test_a_right_that_is_lost_takes_the_results_behind_along() -> None:
    texts = "SELECT v FROM A [ROWS 1]", "SELECT COUNT(*) AS n FROM O1 [ROWS 9]"
    sources = {"A", "O1", "O2"}
    events: list[Event] = [
        a(1, v=1, label="nurse"),
        a(2, v=2),
        Change("ann", who(sources=sources)),
        a(3, v=3),
    ]
    found = ann(*texts, events=events, has=who("nurse"))
    assert shown(found) == [(1, (1,)), (2, (1,)), (3, (2,))]


def test_a_query_ends_with_one_that_it_reads_after_what_that_made_last() -> None:
    """The third result of a second is one too many: the first query ends with it, and the second knows of no later
    time than that of the tuple before."""
    texts = "SELECT v FROM A", "SELECT v FROM O1 [ROWS 1]"
    events: list[Event] = [Limit(results=2), a(1, v=1), a(2, v=2), a(3, v=3), a(4, v=4)]
    assert when(ann(*texts, events=events)) == [(1, (1,), 2)]


def test_the_clock_makes_final_what_can_no_longer_change() -> None:
    texts = "SELECT v FROM A [ROWS 1]", "SELECT v FROM O1 [ROWS 1]"
    events: list[Event] = [a(1000, v=1), ClockEvent("A", 1900), ClockEvent("A", 2001), a(1500, v=2), a(900, v=3)]
    assert when(ann(*texts, events=events, delay={"A": 1000})) == [(1000, (1,), 2), (1500, (2,), 5)]


def test_the_clock_moves_nothing_on_a_stream_without_a_declared_delay() -> None:
    texts = "SELECT v FROM A [ROWS 1]", "SELECT v FROM O1 [ROWS 1]"
    events: list[Event] = [a(1000, v=1), ClockEvent("A", 5000)]
    assert when(ann(*texts, events=events, delay={"B": 0})) == [(1000, (1,), 2)]


# Streams that a reader may not read -----------------------------------------------------------------------------------

COUNT = "SELECT COUNT(*) AS n FROM O1 [UNBOUNDED]"
ALL = {"A", "B", "C", "O1", "O2"}


def a_(time: int) -> Event:
    return a(time, v=time, label="TRUE FROM A")


def b_(time: int) -> Event:
    return b(time, w=time, label="TRUE FROM B")


def test_a_stream_without_a_right_to_it_holds_nothing_back() -> None:
    """The two tables of the documentation."""
    given: list[Event] = [a_(1), a_(2), a_(3), b_(1), b_(3)]
    assert when(ann(BOTH, COUNT, events=given)) == [
        (1, (1,), 4),
        (1, (2,), 4),
        (2, (3,), 4),
        (3, (4,), 5),
        (3, (5,), 5),
    ]
    events: list[Event] = [
        *(a_(1), a_(2), a_(3)),
        Change("ann", who(sources=ALL)),
        *(a_(5), b_(2), b_(4)),
        Change("ann", who(sources=ALL - {"B"})),
    ]
    found = ann(BOTH, COUNT, events=events, without={"B"})
    assert when(found) == [(1, (1,), 1), (2, (2,), 2), (3, (3,), 6), (5, (4,), 8)]


def test_what_comes_on_a_closed_stream_changes_nothing() -> None:
    given: list[Event] = [a_(1), a_(2), a_(3)]
    noisy: list[Event] = [b_(9), a_(1), b_(1), a_(2), a_(3), b_(0)]
    found, beside = (ann(BOTH, COUNT, events=x, without={"B"}) for x in (given, noisy))
    assert shown(found) == shown(beside) and [x.after for x in beside] == [3, 4, 6]


def test_a_revoked_right_makes_final_what_waited_for_the_stream() -> None:
    """Its own tuples are gone; the change is a moment of its own, so results do not wait for the next tuple."""
    events: list[Event] = [b_(1), a_(1), a_(2), Change("ann", who(sources=ALL - {"B"})), a_(3)]
    assert when(ann(BOTH, COUNT, events=events)) == [(1, (1,), 3), (2, (2,), 4), (3, (3,), 5)]


def test_a_declared_label_closes_a_stream() -> None:
    events: list[Event] = [a_(1), a_(2)]
    assert [x.after for x in ann(BOTH, COUNT, events=events, declared={"B": "doctor"})] == [1, 2]
    assert [x.after for x in ann(BOTH, COUNT, events=events, declared={"B": "doctor"}, has=who("doctor"))] == [2, 2]


def test_a_weak_stream_is_open_because_its_tuples_may_name_other_sources() -> None:
    rules = Rules(ORDER, {"B": Semantics.WEAK})
    events: list[Event] = [a_(1), a_(2), b(1, w=7, label="TRUE FROM A, B")]
    found = ann(BOTH, COUNT, events=events, without={"B"}, rules=rules)
    assert when(found) == [(1, (1,), 3), (1, (2,), 3), (2, (3,), 3)]


def test_an_output_whose_inputs_are_closed_is_closed() -> None:
    both, count = "SELECT v FROM A UNION ALL SELECT v FROM O1", "SELECT COUNT(*) AS n FROM O2 [UNBOUNDED]"
    events: list[Event] = [a_(1), a_(2), Change("ann", who(sources={*ALL, "O3"})), b_(2), b_(3), a_(4)]
    found = ann("SELECT w AS v FROM B", both, count, events=events, without={"B"})
    assert when(found) == [(1, (1,), 1), (2, (2,), 5), (2, (3,), 5), (3, (4,), 6), (4, (5,), 6)]


def test_a_reader_without_any_right_receives_nothing() -> None:
    events: list[Event] = [a_(1), b_(2)]
    assert ann(BOTH, COUNT, events=events, without={"A", "B"}) == []
