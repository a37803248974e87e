"""What subscribers receive as tuples arrive and rights change (SPEC.md, section 4.3), in examples computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headgate.labels import Clearance, Rules, Semantics
from headgate.testing.oracle import Change, Event, OracleResult, cumulative, exact

from .given import ORDER, a, b, bound, label_of, labelled, level_of, shown, who

Labels = Mapping[str, Mapping[str, str]]


def ann(
    query: str,
    *events: Event,
    has: Clearance,
    lateness: int = 0,
    labels: Labels | None = None,
    rules: Rules | None = None,
) -> list[OracleResult]:
    """What ann receives exactly."""
    late = {"A": lateness, "B": lateness}
    return exact(bound(query, labels), events, {"ann": has}, rules=rules or Rules(ORDER), lateness=late)["ann"]


def when(results: list[OracleResult]) -> list[tuple[int, tuple[object, ...], int]]:
    """With the number of the event after which each came."""
    return [(result.time, result.values, result.after) for result in results]


def test_the_example_of_the_documentation_is_true() -> None:
    events = a(1000, v=120, label="nurse"), Change("ann", who("doctor")), a(2000, v=130, label="doctor")
    found = exact(bound("SELECT COUNT(*) AS n FROM A [ROWS 10]"), events, {"ann": who("nurse")})
    assert found == {"ann": [OracleResult(2000, (1,), label_of("doctor"))]}


# Finality and lateness -----------------------------------------------------------------------------------------------


def test_an_instant_is_final_when_the_watermark_has_passed_it() -> None:
    found = ann("SELECT v FROM A [ROWS 1]", a(1, v=1), a(1, v=2), a(2, v=3), has=who())
    assert when(found) == [(1, (1,), 2), (1, (2,), 2), (2, (3,), 3)]


def test_lateness_holds_instants_open() -> None:
    found = ann("SELECT v FROM A [ROWS 1]", a(10, v=1), a(13, v=2), a(9, v=3), a(16, v=4), has=who(), lateness=5)
    assert when(found) == [(9, (3,), 3), (10, (1,), 3), (13, (2,), 4), (16, (4,), 4)]


def test_time_does_not_run_ahead_of_the_clock() -> None:
    """The tuple of 3500 comes when the clock stands at 2: what comes at 4 with the time 3 is not late."""
    events = a(1, v=1), replace(a(3500, v=2), clock=2), replace(a(3, v=3), clock=4), replace(a(5, v=4), clock=5)
    found = ann("SELECT v FROM A [ROWS 1]", *events, has=who())
    assert when(found) == [(1, (1,), 1), (3, (3,), 3), (5, (4,), 4), (3500, (2,), 4)]


def test_a_tuple_ahead_of_the_clock_moves_time_to_the_clock() -> None:
    events = replace(a(3500, v=1), clock=10), replace(a(9, v=2), clock=11), replace(a(3500, v=3), clock=12), a(8, v=4)
    found = ann("SELECT v FROM A [ROWS 1]", *events, has=who(), lateness=3)
    assert when(found) == [(9, (2,), 4), (3500, (1,), 4), (3500, (3,), 4)]  # 9 waits for 12, 8 is late by then


def test_a_late_tuple_does_not_enter() -> None:
    events = a(10, v=1), a(5, v=2), a(4, v=3), a(11, v=4)
    assert shown(ann("SELECT v FROM A [ROWS 1]", *events, has=who(), lateness=5)) == [
        (5, (2,)),
        (10, (1,)),
        (11, (4,)),
    ]


def test_a_stateless_block_waits_for_nothing_and_knows_no_lateness() -> None:
    found = ann("SELECT v FROM A", a(10, v=1), a(4, v=2), a(11, v=3), has=who())
    assert when(found) == [(10, (1,), 0), (4, (2,), 1), (11, (3,), 2)]


def test_a_stream_on_which_nothing_was_seen_holds_everything_back() -> None:
    events = a(1, 1, 10), a(50, 1, 11), b(1, 1, 20), b(9, 1, 21)
    found = ann("SELECT v, w FROM A [ROWS 1], B [ROWS 1]", *events, has=who())
    assert when(found) == [(1, (10, 20), 3), (9, (10, 21), 4), (50, (11, 21), 4)]


def test_the_watermark_is_the_least_of_all_streams() -> None:
    events = a(10, v=1), b(100, w=1), a(5, v=2), a(20, v=3), a(15, v=4), b(50, w=2)
    found = ann("SELECT v FROM A [ROWS 1] UNION ALL SELECT w FROM B [ROWS 1]", *events, has=who())
    assert when(found) == [(10, (1,), 3), (20, (3,), 6), (50, (2,), 6), (100, (1,), 6)]


def test_a_sliding_instant_waits_for_the_watermark_to_pass_it() -> None:
    query = "SELECT SUM(v) AS s FROM A [RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS]"
    assert when(ann(query, a(1, v=1), a(10, v=2), a(10, v=3), a(11, v=4), has=who())) == [(10, (6,), 3), (20, (4,), 4)]


def test_results_come_in_the_order_of_instants_then_blocks() -> None:
    query = "SELECT v FROM A UNION ALL SELECT v + 100 FROM A [ROWS 1] UNION ALL SELECT v + 200 FROM A [ROWS 1]"
    found = ann(query.replace("SELECT v FROM", "SELECT v + 0 FROM"), a(1, v=1), a(2, v=2), has=who())
    assert [(r.values, r.block, r.after) for r in found] == [
        ((1,), 0, 0),
        *[((101,), 1, 1), ((201,), 2, 1), ((2,), 0, 1)],
        *[((102,), 1, 2), ((202,), 2, 2)],
    ]


def test_instants_that_become_final_together_keep_their_order() -> None:
    query = "SELECT w FROM B [ROWS 1] UNION ALL SELECT v FROM A [ROWS 1]"
    found = ann(query, a(3, v=3), b(2, w=2), a(1, v=1), b(4, w=4), b(3, w=5), has=who(), lateness=9)
    assert shown(found) == [(1, (1,)), (2, (2,)), (3, (3,)), (3, (5,)), (4, (4,))]


# What may be seen ----------------------------------------------------------------------------------------------------


def test_exact_is_over_the_tuples_that_may_be_seen() -> None:
    events = a(1, v=1, label="r1"), a(2, v=2, label="r2"), a(3, v=3, label="r1 | r2"), a(4, v=4, label="r1 & r2")
    query = "SELECT COUNT(*) AS n, SUM(v) AS s FROM A"
    assert labelled(ann(query, *events, has=who("r1"))) == [(1, (1, 1), "r1"), (3, (2, 4), "r1")]
    assert labelled(ann(query, *events, has=who("r2"))) == [(2, (1, 2), "r2"), (3, (2, 5), "r2")]
    assert shown(ann(query, *events, has=who())) == []


def test_tuples_that_may_not_be_seen_move_no_watermark() -> None:
    events = a(1, v=1), a(50, v=2, label="secret"), a(2, v=3), a(3, v=4)
    assert when(ann("SELECT v FROM A [ROWS 1]", *events, has=who())) == [(1, (1,), 2), (2, (3,), 3), (3, (4,), 4)]


def test_a_window_counts_only_what_may_be_seen() -> None:
    events = a(1, v=1), a(2, v=2, label="secret"), b(3, w=3)
    query = "SELECT v, w FROM A [ROWS 1], B [ROWS 1]"
    assert shown(ann(query, *events, has=who())) == [(3, (1, 3))]
    assert shown(ann(query, *events, has=who("secret"))) == [(3, (2, 3))]


def test_a_query_reads_up_to_its_own_level() -> None:
    events = a(1, v=1), a(2, v=2, label="TRUE AT C"), a(3, v=3, label="TRUE AT S")
    for level, login, expected in (
        ("S", "S", [(1, (1,), "TRUE AT S"), (2, (2,), "TRUE AT S"), (3, (3,), "TRUE AT S")]),
        ("C", "C", [(1, (1,), "TRUE AT C"), (2, (2,), "TRUE AT C")]),
        ("C", "S", [(1, (1,), "TRUE AT C"), (2, (2,), "TRUE AT C")]),
        ("S", "C", []),
    ):
        found = exact(
            bound("SELECT v FROM A"), events, {"ann": who(level=login)}, rules=Rules(ORDER), level=level_of(level)
        )
        assert labelled(found["ann"]) == expected


def test_sources_are_rights_too() -> None:
    events = a(1, v=1, label="TRUE FROM in1"), a(2, v=2, label="TRUE FROM in2")
    assert shown(ann("SELECT v FROM A", *events, has=who(sources=["in2"]))) == [(2, (2,))]


# Rights lost and gained ----------------------------------------------------------------------------------------------


def test_a_right_counts_from_the_next_arrival() -> None:
    events = (
        *(a(1, v=1, label="r"), Change("ann", who("r")), a(2, v=2, label="r")),
        *(Change("ann", who()), a(3, v=3, label="r")),
    )
    assert when(ann("SELECT v FROM A", *events, has=who())) == [(2, (2,), 2)]


def test_what_is_lost_leaves_the_window_and_does_not_come_back() -> None:
    events = (
        *(a(1, v=1, label="r"), a(2, v=2), a(3, v=3)),
        *(Change("ann", who()), Change("ann", who("r"))),
        a(4, v=4, label="r"),
    )
    query = "SELECT COUNT(*) AS n, SUM(v) AS s FROM A"
    assert shown(ann(query, *events, has=who("r"))) == [(1, (1, 1)), (2, (2, 3)), (3, (2, 5)), (4, (3, 9))]


def test_final_instants_are_untouched_and_open_ones_lose_what_was_lost() -> None:
    events = a(1, v=1, label="r"), a(2, v=2, label="r"), Change("ann", who()), a(3, v=3)
    query = "SELECT COUNT(*) AS n FROM A"
    assert when(ann(query, *events, has=who("r"))) == [(1, (1,), 1), (3, (1,), 4)]


def test_a_window_refills_with_new_tuples_not_with_displaced_ones() -> None:
    before = a(1, v=1), a(2, v=2, label="r"), a(3, v=3, label="r"), a(4, v=4)
    after = Change("ann", who()), a(6, v=6), a(7, v=7)
    assert shown(ann("SELECT RSTREAM v FROM A [ROWS 2]", *before, *after, has=who("r"))) == [
        *[(1, (1,)), (2, (1,)), (2, (2,)), (3, (2,)), (3, (3,))],
        (4, (4,)),
        *[(6, (4,)), (6, (6,)), (7, (6,)), (7, (7,))],
    ]


def test_a_window_refills_also_when_other_sources_make_the_instants() -> None:
    before = b(0, w=0), a(1, v=1), a(2, v=2, label="r"), a(3, v=3, label="r"), a(4, v=4), b(4, w=4)
    after = Change("ann", who()), b(5, w=5), a(6, v=6), a(7, v=7), b(8, w=8)
    found = ann("SELECT RSTREAM w, v FROM A [ROWS 2], B [NOW]", *before, *after, has=who("r"))
    assert [values for _, values in shown(found)] == [(4, 4), (5, 4), (8, 6), (8, 7)]


def test_what_was_not_yet_displaced_when_a_right_was_lost_stays() -> None:
    events = a(1, v=1), a(2, v=2, label="r"), Change("ann", who()), a(3, v=3)
    assert shown(ann("SELECT RSTREAM v FROM A [ROWS 1]", *events, has=who("r"))) == [(1, (1,)), (3, (3,))]
    assert shown(ann("SELECT RSTREAM v FROM A [ROWS 2]", *events, has=who("r"))) == [
        (1, (1,)),
        *[(3, (1,)), (3, (3,))],
    ]


def test_between_sliding_instants_windows_move_with_each_tuple() -> None:
    sliding = "SELECT RSTREAM v, w FROM A [ROWS 1], B [RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS]"
    before = a(1, v=1), a(2, v=2, label="r"), b(3, w=3)
    lost = Change("ann", who())
    assert shown(ann(sliding, *before, a(4, v=4), b(4, w=5), lost, has=who("r"))) == [(10, (4, 3)), (10, (4, 5))]
    assert shown(ann(sliding, *before, lost, has=who("r"))) == [(10, (1, 3))]
    passed = *before, a(8, v=8, label="r"), b(9, w=9), lost
    assert shown(ann(sliding, *passed, has=who("r"))) == []


def test_partitions_lose_and_refill_each_for_itself() -> None:
    events = (
        *(a(1, 1, 1), a(2, 1, 2, "r"), a(3, 2, 3), a(4, 2, 4)),
        *(Change("ann", who()), a(5, 2, 5), a(6, 1, 6)),
    )
    found = shown(ann("SELECT RSTREAM k, v FROM A [PARTITIONED BY k ROWS 1]", *events, has=who("r")))
    assert [values for time, values in found if time == 5] == [(2, 5)]
    assert [values for time, values in found if time == 6] == [(2, 5), (1, 6)]


def test_what_was_lost_is_not_reported_as_gone() -> None:
    before, lost, after = (a(1, v=1, label="r"), a(2, v=2)), Change("ann", who()), (a(3, v=3), a(4, v=4))
    query = "SELECT DSTREAM v FROM A [ROWS 2]"
    assert shown(ann(query, *before, *after, has=who("r"))) == [(3, (1,)), (4, (2,))]
    assert shown(ann(query, *before, lost, *after, has=who("r"))) == [(4, (2,))]


def test_distinct_values_that_were_lost_are_new_again() -> None:
    events = a(1, v=1, label="r"), a(2, v=2), Change("ann", who()), a(3, v=1), a(4, v=2)
    assert shown(ann("SELECT DISTINCT v FROM A", *events, has=who("r"))) == [(1, (1,)), (2, (2,)), (3, (1,))]


def test_rows_that_stay_are_not_new_after_a_change() -> None:
    events = a(1, v=1), a(2, v=2, label="r"), Change("ann", who()), a(3, v=3)
    assert shown(ann("SELECT v FROM A", *events, a(4, v=4), has=who("r"))) == [
        (1, (1,)),
        (2, (2,)),
        (3, (3,)),
        (4, (4,)),
    ]
    assert shown(ann("SELECT v FROM A [ROWS 5]", *events, has=who("r"))) == [(1, (1,)), (3, (3,))]


def test_lost_rights_do_not_turn_the_watermark_back() -> None:
    events = a(1, v=1), a(50, v=2, label="r"), Change("ann", who()), a(2, v=3), a(51, v=4)
    assert shown(ann("SELECT v FROM A [ROWS 1]", *events, has=who("r"))) == [(1, (1,)), (51, (4,))]


def test_who_is_no_subscriber_receives_nothing() -> None:
    events = a(1, v=1), Change("ann", None), a(2, v=2), Change("ann", who()), a(3, v=3)
    assert shown(ann("SELECT v FROM A", *events, has=who())) == [(1, (1,)), (3, (3,))]
    assert shown(ann("SELECT COUNT(*) AS n FROM A", *events, has=who())) == [(3, (1,))]


def test_changes_of_others_change_nothing() -> None:
    events = a(1, v=1, label="r"), Change("bob", who()), a(2, v=2, label="r")
    received = exact(bound("SELECT COUNT(*) AS n FROM A"), events, {"ann": who("r"), "bob": who("r")})
    assert shown(received["ann"]) == [(1, (1,)), (2, (2,))]
    assert shown(received["bob"]) == []


# Labels of columns ---------------------------------------------------------------------------------------------------

DOCTORS = {"A": {"v": "doctor"}}


def test_a_column_that_may_not_be_read_is_null_everywhere() -> None:
    events = a(1, 1, 5), a(2, 2, None), a(3, 1, 7)
    for query, nurse, doctor in (
        (
            "SELECT k, v FROM A",
            [(1, (1, None)), (2, (2, None)), (3, (1, None))],
            [(1, (1, 5)), (2, (2, None)), (3, (1, 7))],
        ),
        ("SELECT k FROM A WHERE v > 1", [], [(1, (1,)), (3, (1,))]),
        ("SELECT k WHERE v IS NULL FROM A [ROWS 9]", [(1, (1,)), (2, (2,)), (3, (1,))], [(2, (2,))]),
        ("SELECT COUNT(v) AS n FROM A", [(1, (0,)), (2, (0,)), (3, (0,))], [(1, (1,)), (2, (1,)), (3, (2,))]),
        ("SELECT v, COUNT(*) AS n FROM A GROUP BY v", [(n, (None, n)) for n in (1, 2, 3)], None),
    ):
        assert shown(ann(query, *events, has=who(), labels=DOCTORS)) == nurse
        if doctor is not None:
            assert shown(ann(query, *events, has=who("doctor"), labels=DOCTORS)) == doctor


def test_a_partition_by_a_hidden_column_is_one() -> None:
    events = a(1, 1, 5), a(2, 2, 6)
    query = "SELECT RSTREAM k FROM A [PARTITIONED BY v ROWS 1]"
    assert shown(ann(query, *events, has=who(), labels=DOCTORS)) == [(1, (1,)), (2, (2,))]
    assert shown(ann(query, *events, has=who("doctor"), labels=DOCTORS)) == [(1, (1,)), (2, (1,)), (2, (2,))]


def test_a_hidden_column_adds_nothing_to_the_label() -> None:
    query = "SELECT k, v FROM A"
    assert labelled(ann(query, a(1, 1, 5, "nurse"), has=who("nurse"), labels=DOCTORS)) == [(1, (1, None), "nurse")]
    both = who("nurse", "doctor")
    assert labelled(ann(query, a(1, 1, 5, "nurse"), has=both, labels=DOCTORS)) == [(1, (1, 5), "doctor & nurse")]


def test_a_column_once_hidden_stays_hidden() -> None:
    events = (
        *(a(1, 1, 5), a(2, 1, 6), Change("ann", who()), a(3, 1, 7)),
        *(Change("ann", who("doctor")), a(4, 1, 8)),
    )
    query = "SELECT COUNT(*) AS n, SUM(v) AS s FROM A"
    found = ann(query, *events, has=who("doctor"), labels=DOCTORS)
    assert labelled(found) == [
        (1, (1, 5), "doctor"),
        (2, (2, None), "TRUE"),
        (3, (3, None), "doctor"),
        (4, (4, 8), "doctor"),
    ]


def test_what_entered_by_a_column_leaves_when_the_column_is_hidden() -> None:
    before, lost, after = (b(0), a(1, 1, 5), b(2), a(3, 2, 6)), Change("ann", who()), (b(4),)
    query = "SELECT A.k AS k, w WHERE v > 1 FROM A [ROWS 2], B"
    assert shown(ann(query, *before, *after, has=who("doctor"), labels=DOCTORS)) == [
        *[(1, (1, None)), (2, (1, None)), (3, (2, None)), (3, (2, None)), (4, (1, None)), (4, (2, None))],
    ]
    assert shown(ann(query, *before, lost, *after, has=who("doctor"), labels=DOCTORS)) == [(1, (1, None))]


def test_rows_neither_come_nor_go_by_a_column_that_is_lost() -> None:
    """Those of the instant before are read as those of now are."""
    before, lost, after = (a(1, 1, 5), a(2, 2, 6)), Change("ann", who()), (a(3, 3, 7), a(4, 4, 8))
    for query, expected in (
        ("SELECT DSTREAM k FROM A [UNBOUNDED] WHERE v > 1", []),
        ("SELECT k FROM A [UNBOUNDED] WHERE v IS NULL", [(2, (2,)), (3, (3,)), (4, (4,))]),
        ("SELECT DSTREAM x.k AS k FROM A [UNBOUNDED] x, A [UNBOUNDED] y WHERE x.v = y.v", []),
    ):
        assert shown(ann(query, *before, lost, *after, has=who("doctor"), labels=DOCTORS)) == expected


def test_partitions_that_a_lost_column_makes_one_keep_the_last_and_report_nothing() -> None:
    before, lost, back = (a(1, 1, 5), a(2, 2, 6)), Change("ann", who()), Change("ann", who("doctor"))
    query = "SELECT DSTREAM k FROM A [PARTITIONED BY v ROWS 1]"
    for events, expected in (
        ((*before, a(3, 3, 7), lost, a(4, 4, 8)), [(3, (2,)), (4, (3,))]),
        ((*before, a(3, 3, 7), lost, back, a(4, 4, 8)), [(3, (2,))]),
        ((*before, a(3, 3, 7), a(4, 4, 8)), []),
    ):
        assert shown(ann(query, *events, has=who("doctor"), labels=DOCTORS)) == expected


def test_losing_a_column_lets_nothing_into_a_window_that_did_not_enter() -> None:
    events = a(1, 1, 5), a(2, 2, 6), Change("ann", who()), a(3, 3, 7)
    query = "SELECT RSTREAM k WHERE v IS NULL FROM A [ROWS 9]"
    assert shown(ann(query, *events, has=who("doctor"), labels=DOCTORS)) == [(2, (2,)), (3, (2,)), (3, (3,))]


def test_sliding_windows_that_hold_nothing_are_passed_over_whatever_might_enter_now() -> None:
    events = a(1, 1), a(12, 2, 5), a(13, 9), Change("ann", who()), a(41, 3, 7)
    query = "SELECT DSTREAM k WHERE v IS NULL AND k < 9 FROM A [RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS]"
    assert shown(ann(query, *events, has=who("doctor"), labels=DOCTORS)) == [(50, (1,))]


# AGGREGATE READ ------------------------------------------------------------------------------------------------------

AGGREGATES_ONLY = Rules(ORDER, {"in1": Semantics.AGGREGATE})


def test_a_source_may_be_read_as_aggregates_only() -> None:
    events = a(1, v=1, label="TRUE FROM in1"), a(2, v=2), a(3, v=3, label="TRUE FROM in1")
    has = who(aggregates=["in1"])
    assert shown(ann("SELECT v FROM A", *events, has=has, rules=AGGREGATES_ONLY)) == [(2, (2,))]
    assert labelled(ann("SELECT SUM(v) AS s FROM A", *events, has=has, rules=AGGREGATES_ONLY)) == [
        *[(1, (1,), "TRUE FROM in1"), (2, (3,), "TRUE FROM in1"), (3, (6,), "TRUE FROM in1")],
    ]
    assert shown(ann("SELECT SUM(v) AS s FROM A", *events, has=who(), rules=AGGREGATES_ONLY)) == [(2, (2,))]
    assert shown(ann("SELECT SUM(v) AS s FROM A", *events, has=has)) == [(2, (2,))]


def test_each_block_reads_what_it_may() -> None:
    events = a(1, v=1, label="TRUE FROM in1"), a(2, v=2)
    query = "SELECT CAST(v AS BIGINT) AS v FROM A UNION ALL SELECT SUM(v) FROM A"
    found = ann(query, *events, has=who(aggregates=["in1"]), rules=AGGREGATES_ONLY)
    assert [(r.block, r.time, r.values) for r in found] == [(1, 1, (1,)), (0, 2, (2,)), (1, 2, (3,))]


# Cumulative ----------------------------------------------------------------------------------------------------------

PEOPLE = {"one": who("r1"), "two": who("r2"), "both": who("r1", "r2")}


def test_cumulative_is_over_what_anybody_sees_and_delivers_by_label() -> None:
    events = a(1, 1, 10, "r1"), b(2, 1, 20, "r2"), a(3, 1, 11, "r1 | r2"), a(4, 1, 12, "r3")
    received = cumulative(bound("SELECT v, w FROM A [ROWS 1], B [ROWS 1]"), events, PEOPLE)
    assert {name: labelled(found) for name, found in received.items()} == {
        "one": [],
        "two": [(3, (11, 20), "r2")],
        "both": [(2, (10, 20), "r1 & r2"), (3, (11, 20), "r2")],
    }


def test_a_cumulative_window_is_shared_by_all() -> None:
    events = a(1, v=1, label="r1"), a(2, v=2, label="r2"), b(3, w=3)
    query = bound("SELECT v, w FROM A [ROWS 1], B [ROWS 1]")
    assert shown(cumulative(query, events, PEOPLE)["one"]) == []
    assert shown(exact(query, events, PEOPLE)["one"]) == [(3, (1, 3))]


def test_a_cumulative_aggregate_reaches_readers_who_see_all_its_tuples() -> None:
    events = a(1, 1, 1, "r1"), a(2, 2, 2, "r2"), a(3, 1, 3, "r1"), a(4, 2, 4, "r1")
    received = cumulative(bound("SELECT k, SUM(v) AS s FROM A GROUP BY k"), events, PEOPLE)
    assert shown(received["one"]) == [(1, (1, 1)), (3, (1, 4))]
    assert shown(received["two"]) == [(2, (2, 2))]
    assert shown(received["both"]) == [(1, (1, 1)), (2, (2, 2)), (3, (1, 4)), (4, (2, 6))]


def test_cumulative_results_are_for_whom_they_permit_when_they_are_delivered() -> None:
    events = a(1, v=1, label="r1"), Change("two", who("r1")), Change("one", who()), a(2, v=2, label="r1"), a(3, v=3)
    received = cumulative(bound("SELECT v FROM A [ROWS 9]"), events, {"one": who("r1"), "two": who()})
    assert shown(received["one"]) == [(3, (3,))]
    assert shown(received["two"]) == [(1, (1,)), (2, (2,)), (3, (3,))]


def test_what_nobody_may_see_any_more_leaves_a_cumulative_window() -> None:
    events = a(1, v=1, label="r1"), a(2, v=2), Change("one", who()), a(3, v=3)
    received = cumulative(bound("SELECT COUNT(*) AS n FROM A"), events, {"one": who("r1"), "two": who()})
    assert shown(received["one"]) == [(1, (1,)), (2, (1,)), (3, (2,))]
    assert shown(received["two"]) == [(2, (1,)), (3, (2,))]


def test_the_cumulative_watermark_is_moved_by_what_anybody_sees() -> None:
    events = a(50, v=1, label="r1"), a(2, v=2), a(60, v=3)
    received = cumulative(bound("SELECT v FROM A [ROWS 1]"), events, {"one": who("r1"), "two": who()})
    assert shown(received["two"]) == [(60, (3,))]


def test_cumulative_reads_columns_whole_and_their_labels_protect_the_results() -> None:
    events = a(1, 1, 5), a(2, 2, 6)
    query = bound("SELECT k, v FROM A UNION ALL SELECT k, k AS v FROM A", DOCTORS)
    received = cumulative(query, events, {"nurse": who(), "doctor": who("doctor")})
    assert shown(received["nurse"]) == [(1, (1, 1)), (2, (2, 2))]
    assert shown(received["doctor"]) == [(1, (1, 5)), (1, (1, 1)), (2, (2, 6)), (2, (2, 2))]


def test_weak_sources_are_read_together_with_others() -> None:
    events = a(1, 1, 10, "TRUE FROM in1"), b(2, 1, 20, "TRUE FROM in2")
    people = {"one": who(sources=["in1"]), "two": who(sources=["in2"])}
    rules = Rules(ORDER, {"in1": Semantics.WEAK})
    received = cumulative(bound("SELECT v, w FROM A, B"), events, people, rules=rules)
    assert shown(received["one"]) == []
    assert received["two"] == [OracleResult(2, (10, 20), label_of("TRUE FROM in1, in2"))]


def test_cumulative_answers_have_the_level_of_the_query() -> None:
    events = a(1, v=1, label="r1 AT C"), a(2, v=2, label="TRUE AT S")
    people = {"one": who("r1", level="C"), "two": who(level="C")}
    query = bound("SELECT v FROM A UNION ALL SELECT v FROM A WHERE v < 0")
    received = cumulative(query, events, people, rules=Rules(ORDER), level=level_of("C"))
    assert {name: labelled(found) for name, found in received.items()} == {"one": [(1, (1,), "r1 AT C")], "two": []}
