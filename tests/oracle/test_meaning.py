"""The meaning of queries over given tuples (SPEC.md, section 4.2), in examples computed by hand.

Times are in milliseconds, results are (time, values).
"""

from __future__ import annotations

import pytest

from headgate.labels import Rules
from headgate.plan.expressions import Value
from headgate.testing.oracle import OracleResult, Tuple, meaning

from .given import ORDER, a, b, bound, c, label_of, labelled, level_of, shown

RULES = Rules(ORDER)


def answer(query: str, *tuples: Tuple) -> list[tuple[int, tuple[Value, ...]]]:
    return shown(meaning(bound(query), tuples, rules=RULES))


# Stateless -----------------------------------------------------------------------------------------------------------


def test_a_stateless_block_yields_each_tuple_that_meets_its_conditions() -> None:
    tuples = a(1, v=1), a(2, v=5), a(3, v=None), a(4, v=7)
    assert answer("SELECT v FROM A WHERE v > 1", *tuples) == [(2, (5,)), (4, (7,))]


def test_conditions_of_a_stateless_block_may_stand_before_and_after_from() -> None:
    tuples = a(1, v=1), a(2, v=5), a(3, v=9)
    assert answer("SELECT v WHERE v > 1 FROM A WHERE v < 9", *tuples) == [(2, (5,))]


def test_equal_tuples_are_different_tuples() -> None:
    twice = a(1, v=1)
    assert answer("SELECT v FROM A", twice, twice) == [(1, (1,)), (1, (1,))]
    assert answer("SELECT COUNT(*) AS n FROM A", twice, twice) == [(1, (1,)), (1, (2,))]


def test_tuples_of_other_streams_do_not_matter() -> None:
    assert answer("SELECT v FROM A", b(1, w=1), a(2, v=2), c(3)) == [(2, (2,))]


# Windows, shown by what they hold ------------------------------------------------------------------------------------


def held(window: str, *tuples: Tuple) -> list[tuple[int, list[object]]]:
    """What a window holds at each instant: the rows of RSTREAM."""
    instants: dict[int, list[object]] = {}
    for time, (value,) in answer(f"SELECT RSTREAM v FROM A {window}", *tuples):
        instants.setdefault(time, []).append(value)
    return list(instants.items())


FOUR = a(1, 1, 10), a(2, 2, 20), a(3, 1, 30), a(5, 1, 40)


@pytest.mark.parametrize(
    ("window", "contents"),
    [
        ("[ROWS 1]", [(1, [10]), (2, [20]), (3, [30]), (5, [40])]),
        ("[ROWS 2]", [(1, [10]), (2, [10, 20]), (3, [20, 30]), (5, [30, 40])]),
        ("[NOW]", [(1, [10]), (2, [20]), (3, [30]), (5, [40])]),
        ("[UNBOUNDED]", [(1, [10]), (2, [10, 20]), (3, [10, 20, 30]), (5, [10, 20, 30, 40])]),
        ("", [(1, [10]), (2, [10, 20]), (3, [10, 20, 30]), (5, [10, 20, 30, 40])]),
        ("[RANGE 2 MILLISECONDS]", [(1, [10]), (2, [10, 20]), (3, [10, 20, 30]), (5, [30, 40])]),
        ("[RANGE 1 MILLISECOND]", [(1, [10]), (2, [10, 20]), (3, [20, 30]), (5, [40])]),
        ("[PARTITIONED BY k ROWS 1]", [(1, [10]), (2, [10, 20]), (3, [20, 30]), (5, [20, 40])]),
        ("[PARTITIONED BY k ROWS 2]", [(1, [10]), (2, [10, 20]), (3, [10, 20, 30]), (5, [20, 30, 40])]),
        ("[RANGE 2 MILLISECONDS SLIDE 2 MILLISECONDS]", [(2, [10, 20]), (4, [30]), (6, [40])]),
        ("[RANGE 4 MILLISECONDS SLIDE 2 MILLISECONDS]", [(2, [10, 20]), (4, [10, 20, 30]), (6, [30, 40]), (8, [40])]),
        ("[RANGE 1 MILLISECOND SLIDE 3 MILLISECONDS]", [(3, [30])]),
    ],
)
def test_a_window_holds(window: str, contents: list[tuple[int, list[object]]]) -> None:
    assert held(window, *FOUR) == contents


def test_a_sliding_window_is_open_at_its_beginning_and_closed_at_its_end() -> None:
    window = "[RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS]"
    assert held(window, a(10, v=1), a(20, v=2), a(21, v=3)) == [(10, [1]), (20, [2]), (30, [3])]


def test_sliding_instants_without_tuples_are_passed_over() -> None:
    window = "[RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS]"
    assert held(window, a(1, v=1), a(95, v=2)) == [(10, [1]), (100, [2])]


def test_sliding_instants_are_multiples_also_before_1970() -> None:
    window = "[RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS]"
    assert held(window, a(-15, v=1), a(-10, v=2), a(-9, v=3)) == [(-10, [1, 2]), (0, [3])]


def test_a_window_of_now_holds_what_came_at_this_time_so_far() -> None:
    assert answer("SELECT RSTREAM v FROM A [NOW]", a(1, v=1), a(1, v=2), a(2, v=3)) == [
        *[(1, (1,)), (1, (1,)), (1, (2,))],
        (2, (3,)),
    ]


def test_tuples_are_taken_by_time_whatever_the_order_of_their_arrival() -> None:
    assert held("[ROWS 2]", a(3, v=3), a(1, v=1), a(2, v=2)) == [(1, [1]), (2, [1, 2]), (3, [2, 3])]


def test_tuples_of_one_time_are_taken_by_arrival() -> None:
    assert answer("SELECT v FROM A [ROWS 1]", a(1, v=2), a(1, v=1)) == [(1, (2,)), (1, (1,))]


def test_null_is_a_partition_of_its_own() -> None:
    tuples = a(1, None, 1), a(2, 1, 2), a(3, None, 3)
    assert held("[PARTITIONED BY k ROWS 1]", *tuples) == [(1, [1]), (2, [1, 2]), (3, [2, 3])]


def test_a_partition_may_have_several_columns() -> None:
    tuples = a(1, 1, 1, s="x"), a(2, 1, 2, s="y"), a(3, 1, 3, s="x")
    assert held("[PARTITIONED BY k, s ROWS 1]", *tuples) == [(1, [1]), (2, [1, 2]), (3, [2, 3])]


# Conditions before and after the window ------------------------------------------------------------------------------


def test_conditions_before_from_choose_what_enters_and_those_after_what_counts() -> None:
    tuples = a(1, v=5), a(2, v=1), a(3, v=6)
    assert answer("SELECT RSTREAM v WHERE v > 1 FROM A [ROWS 1]", *tuples) == [(1, (5,)), (3, (6,))]
    assert answer("SELECT RSTREAM v FROM A [ROWS 2] WHERE v > 1", *tuples) == [
        (1, (5,)),
        (2, (5,)),
        (3, (6,)),
    ]


def test_what_does_not_enter_is_no_instant() -> None:
    assert answer("SELECT RSTREAM v WHERE v > 1 FROM A [RANGE 1 HOUR]", a(1, v=5), a(2, v=1)) == [(1, (5,))]


def test_a_level_in_a_window_chooses_what_enters() -> None:
    tuples = a(1, v=1, label="TRUE AT S"), a(2, v=2), a(3, v=3, label="TRUE AT C"), a(4, v=4, label="TRUE AT S")
    query = bound("SELECT RSTREAM v FROM A [ROWS 2 LEVEL = 'S']")
    assert shown(meaning(query, tuples, rules=RULES, level=level_of("S"))) == [(1, (1,)), (4, (1,)), (4, (4,))]


def test_the_level_of_a_tuple_is_a_text() -> None:
    tuples = a(1, label="TRUE AT S{N, M}"), a(2), a(3, label="x AT C")
    found = meaning(bound("SELECT LEVEL AS l FROM A"), tuples, rules=RULES, level=level_of("S{M, N}"))
    assert shown(found) == [(1, ("S{M, N}",)), (2, ("U",)), (3, ("C",))]


def test_a_list_of_levels_is_short() -> None:
    tuples = a(1, v=1, label="TRUE AT S"), a(2, v=2), a(3, v=3, label="TRUE AT C")
    assert answer('SELECT v FROM A WHERE LEVEL = "S" OR "C"', *tuples) == [(1, (1,)), (3, (3,))]


def test_a_condition_on_several_sources_joins_even_before_from() -> None:
    tuples = a(1, 1, 1), b(2, 2, 2), b(3, 1, 3)
    rows = [(3, (1, 3))]
    assert answer("SELECT v, w WHERE A.k = B.k FROM A [ROWS 1], B [ROWS 1]", *tuples) == rows
    assert answer("SELECT v, w FROM A [ROWS 1], B [ROWS 1] WHERE A.k = B.k", *tuples) == rows


def test_each_conjunct_before_from_goes_to_its_own_source() -> None:
    query = "SELECT v, w WHERE (A.v > 1 AND B.w > 1) OR (A.v > 1 AND A.k = B.k) FROM A [ROWS 1], B [ROWS 1]"
    assert answer(query, a(1, 1, 5), a(2, 1, 0), b(3, 1, 0), b(4, 2, 0), b(5, 2, 2)) == [(3, (5, 0)), (5, (5, 2))]


def test_a_condition_that_is_never_met_yields_nothing() -> None:
    for condition in ("FALSE", "NULL", "1 = 2", "v = NULL"):
        assert answer(f"SELECT v WHERE {condition} FROM A [ROWS 1]", a(1, v=1)) == []
        assert answer(f"SELECT COUNT(*) AS n FROM A WHERE {condition}", a(1, v=1)) == []


# ISTREAM, DSTREAM, RSTREAM, DISTINCT ---------------------------------------------------------------------------------


def test_istream_is_the_default_and_yields_what_is_new() -> None:
    tuples = a(1, v=1), a(2, v=1), a(3, v=2)
    for operator in ("", "ISTREAM"):
        assert answer(f"SELECT {operator} v FROM A [ROWS 2]", *tuples) == [(1, (1,)), (2, (1,)), (3, (2,))]


def test_dstream_yields_what_has_gone() -> None:
    assert answer("SELECT DSTREAM v FROM A [ROWS 1]", a(1, v=1), a(2, v=2), a(3, v=3)) == [(2, (1,)), (3, (2,))]
    assert answer("SELECT DSTREAM v FROM A", a(1, v=1), a(2, v=2)) == []


def test_dstream_of_a_sliding_window_waits_for_the_next_instant() -> None:
    query = "SELECT DSTREAM v FROM A [RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS]"
    assert answer(query, a(1, v=1), a(2, v=2), a(41, v=3)) == [(50, (1,)), (50, (2,))]


def test_distinct_compares_values() -> None:
    tuples = a(1, v=1), a(2, v=1), a(3, v=None), a(4, v=1), a(5, v=None)
    assert answer("SELECT DISTINCT v FROM A", *tuples) == [(1, (1,)), (3, (None,))]
    assert answer("SELECT DISTINCT v FROM A [ROWS 1]", *tuples) == [(1, (1,)), (3, (None,)), (4, (1,)), (5, (None,))]
    assert answer("SELECT RSTREAM DISTINCT v FROM A [ROWS 2]", *tuples) == [
        (1, (1,)),
        (2, (1,)),
        *[(3, (1,)), (3, (None,))],
        *[(4, (None,)), (4, (1,))],
        *[(5, (1,)), (5, (None,))],
    ]
    assert answer("SELECT DSTREAM DISTINCT v FROM A [ROWS 1]", *tuples) == [(3, (1,)), (4, (None,)), (5, (1,))]


# Joins ---------------------------------------------------------------------------------------------------------------


def test_a_join_combines_what_its_windows_hold() -> None:
    tuples = a(1, 1, 10), b(2, 1, 20), a(3, 1, 11), b(4, 2, 21), b(5, 1, 22)
    query = "SELECT v, w FROM A [ROWS 1], B [ROWS 2] WHERE A.k = B.k"
    assert answer(query, *tuples) == [(2, (10, 20)), (3, (11, 20)), (5, (11, 22))]


def test_null_joins_nothing() -> None:
    assert answer("SELECT v FROM A, B WHERE A.k = B.k", a(1), b(2), a(3, 1, 3), b(4, 1)) == [(4, (3,))]


def test_a_join_without_condition_is_the_product() -> None:
    tuples = a(1, v=1), a(2, v=2), b(3, w=3), b(4, w=4)
    assert answer("SELECT v, w FROM A, B", *tuples) == [(3, (1, 3)), (3, (2, 3)), (4, (1, 4)), (4, (2, 4))]


def test_at_one_time_streams_come_in_the_order_of_their_names() -> None:
    tuples = b(1, 1, 20), a(1, 1, 10), b(1, 1, 21), a(1, 1, 11)
    query = "SELECT RSTREAM v, w FROM B [ROWS 1], A [ROWS 1] WHERE A.k = B.k"
    assert answer(query, *tuples) == [(1, (11, 20)), (1, (11, 21))]


def test_three_streams_join() -> None:
    tuples = a(1, 1, 10), b(2, 1, 20), c(3, 2, 0.5), c(4, 1, 1.5), a(5, 1, 11), b(6, 1, 21)
    query = "SELECT v, w, x FROM A [ROWS 1], B [UNBOUNDED], C [ROWS 1] WHERE A.k = B.k AND B.k = C.k"
    assert answer(query, *tuples) == [(4, (10, 20, 1.5)), (5, (11, 20, 1.5)), (6, (11, 21, 1.5))]


def test_a_stream_may_be_joined_with_itself() -> None:
    tuples = a(1, 1, 10), a(2, 2, 20), a(3, 1, 30)
    query = "SELECT old.v AS before, new.v AS now FROM A [ROWS 2] old, A [NOW] new WHERE old.v < new.v"
    assert answer(query, *tuples) == [(2, (10, 20)), (3, (20, 30))]


def test_a_tuple_enters_all_windows_of_its_stream_at_one_instant() -> None:
    query = "SELECT RSTREAM x.v AS x, y.v AS y WHERE y.v > 1 FROM A [ROWS 1] x, A [ROWS 1] y"
    assert answer(query, a(1, v=1), a(2, v=2), a(3, v=1)) == [(2, (2, 2)), (3, (1, 2))]


def test_the_order_of_from_is_not_the_order_of_results() -> None:
    tuples = a(1, v=1), a(2, v=2), b(3, w=3), b(4, w=4)
    expected = [(1, 3), (1, 4), (2, 3), (2, 4)]
    for sources in ("A, B", "B, A"):
        found = answer(f"SELECT RSTREAM v, w FROM {sources}", *tuples)
        assert [values for time, values in found if time == 4] == expected


def test_sources_of_one_stream_are_taken_in_the_order_of_from() -> None:
    tuples = a(1, v=1), a(2, v=2)
    assert answer("SELECT RSTREAM x.v AS x, y.v AS y FROM A x, A y", *tuples)[1:] == [
        *[(2, (1, 1)), (2, (1, 2)), (2, (2, 1)), (2, (2, 2))],
    ]


def test_with_a_sliding_window_other_windows_are_evaluated_when_it_slides() -> None:
    tuples = b(1, 1, 20), a(2, 1, 10), b(3, 1, 21), a(11, 1, 11), b(12, 1, 22), b(33, 1, 23), a(34, 1, 12), b(40, 1, 24)
    sliding = "A [RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS]"
    assert answer(f"SELECT RSTREAM v, w FROM {sliding}, B [ROWS 1]", *tuples) == [
        (10, (10, 21)),
        (20, (11, 22)),
        (40, (12, 24)),
    ]
    assert answer(f"SELECT RSTREAM v, w FROM {sliding}, B [NOW]", *tuples) == [(40, (12, 24))]
    assert answer(f"SELECT RSTREAM v, w FROM {sliding}, B [RANGE 7 MILLISECONDS]", *tuples) == [
        (10, (10, 21)),
        *[(40, (12, 23)), (40, (12, 24))],
    ]


def test_windows_that_slide_may_have_different_ranges() -> None:
    query = "SELECT v, w FROM A [RANGE 1 SECOND SLIDE 1 SECOND], B [RANGE 2 SECONDS SLIDE 1 SECOND]"
    assert answer(query, b(100, w=1), a(200, v=2), a(1200, v=3)) == [(1000, (2, 1)), (2000, (3, 1))]


# Groups --------------------------------------------------------------------------------------------------------------


def test_groups_that_gained_a_row_are_yielded() -> None:
    tuples = a(1, 1, 10), a(2, 2, 20), a(3, 1, 30)
    query = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM A GROUP BY k"
    assert answer(query, *tuples) == [(1, (1, 1, 10)), (2, (2, 1, 20)), (3, (1, 2, 40))]


def test_rstream_yields_all_groups() -> None:
    tuples = a(1, 1, 10), a(2, 2, 20), a(3, 1, 30)
    query = "SELECT RSTREAM k, COUNT(*) AS n FROM A [ROWS 2] GROUP BY k"
    assert answer(query, *tuples) == [(1, (1, 1)), (2, (1, 1)), (2, (2, 1)), (3, (2, 1)), (3, (1, 1))]


def test_a_sliding_instant_yields_all_groups() -> None:
    tuples = a(1, 1, 10), a(2, 2, 20), a(11, 1, 30)
    query = "SELECT k, SUM(v) AS s FROM A [RANGE 20 MILLISECONDS SLIDE 10 MILLISECONDS] GROUP BY k"
    assert answer(query, *tuples) == [(10, (1, 10)), (10, (2, 20)), (20, (1, 40)), (20, (2, 20)), (30, (1, 30))]


def test_a_group_that_only_lost_rows_is_not_yielded() -> None:
    tuples = a(1, 1, 10), a(2, 2, 20), a(3, 2, 30)
    query = "SELECT k, COUNT(*) AS n FROM A [ROWS 2] GROUP BY k"
    assert answer(query, *tuples) == [(1, (1, 1)), (2, (2, 1)), (3, (2, 2))]


def test_without_groups_there_is_one_result_if_there_are_rows() -> None:
    tuples = a(1, v=1), a(2, v=9), a(3, v=2)
    assert answer("SELECT MAX(v) AS m FROM A", *tuples) == [(1, (1,)), (2, (9,)), (3, (9,))]
    assert answer("SELECT COUNT(*) AS n FROM A WHERE v > 100", *tuples) == []


def test_a_tuple_that_adds_no_row_yields_no_group() -> None:
    assert answer("SELECT COUNT(*) AS n FROM A WHERE v > 1", a(1, v=5), a(2, v=1)) == [(1, (1,))]


def test_null_is_a_group_of_its_own() -> None:
    tuples = a(1, None, 1), a(2, 1, 2), a(3, None, 3)
    query = "SELECT k, SUM(v) AS s FROM A GROUP BY k"
    assert answer(query, *tuples) == [(1, (None, 1)), (2, (1, 2)), (3, (None, 4))]


def test_having_chooses_groups_after_aggregation() -> None:
    tuples = a(1, 1, 10), a(2, 2, 5), a(3, 1, 1), a(4, 2, 50)
    query = "SELECT k, SUM(v) AS s FROM A GROUP BY k HAVING COUNT(*) > 1 AND MIN(v) > 4"
    assert answer(query, *tuples) == [(4, (2, 55))]


def test_groups_of_a_partitioned_window_are_its_partitions() -> None:
    tuples = a(1, 1, 10), a(2, 2, 20), a(3, 1, 30), a(4, 1, 40)
    query = "SELECT k, AVG(v) AS m FROM A [PARTITIONED BY k ROWS 2]"
    assert answer(query, *tuples) == [(1, (1, 10.0)), (2, (2, 20.0)), (3, (1, 20.0)), (4, (1, 35.0))]


def test_group_by_over_a_partitioned_window_is_what_is_written() -> None:
    tuples = a(1, 1, 10, s="x"), a(2, 2, 20, s="x"), a(3, 1, 30, s="x")
    query = "SELECT s, SUM(v) AS t FROM A [PARTITIONED BY k ROWS 1] GROUP BY s"
    assert answer(query, *tuples) == [(1, ("x", 10)), (2, ("x", 30)), (3, ("x", 50))]


def test_aggregates_are_over_the_rows_of_a_join() -> None:
    tuples = a(1, 1, 10), b(2, 1, 20), b(3, 1, 21), a(4, 1, 11)
    query = "SELECT COUNT(*) AS n, SUM(v) AS s, COUNT(DISTINCT v) AS d FROM A, B WHERE A.k = B.k"
    assert answer(query, *tuples) == [(2, (1, 10, 1)), (3, (2, 20, 1)), (4, (4, 42, 2))]


def test_results_may_calculate_with_groups_and_aggregates() -> None:
    query = "SELECT k + 1 AS a, MAX(v) - MIN(v) AS spread FROM A GROUP BY k"
    assert answer(query, a(1, 1, 10), a(2, 1, 4)) == [(1, (2, 0)), (2, (2, 6))]


def test_groups_are_ordered_by_their_first_rows() -> None:
    tuples = a(1, 3, 1), a(2, 1, 1), a(3, 2, 1), a(4, 3, 1)
    found = answer("SELECT RSTREAM k, COUNT(*) AS n FROM A GROUP BY k", *tuples)
    assert [values for time, values in found if time == 4] == [(3, 2), (1, 1), (2, 1)]


# UNION ALL -----------------------------------------------------------------------------------------------------------


def test_union_all_yields_what_its_blocks_yield_ordered_by_instant_then_block() -> None:
    tuples = b(1, 1, 20), a(1, 1, 10), a(2, 1, 11), b(3, 1, 21)
    query = "SELECT w AS value FROM B [ROWS 1] UNION ALL SELECT v FROM A UNION ALL SELECT v FROM A [ROWS 1]"
    found = meaning(bound(query), tuples)
    assert [(r.time, r.block, r.values) for r in found] == [
        *[(1, 1, (10,)), (1, 2, (10,)), (1, 0, (20,))],
        *[(2, 1, (11,)), (2, 2, (11,))],
        (3, 0, (21,)),
    ]


def test_a_sliding_instant_comes_after_the_tuples_of_its_time() -> None:
    query = "SELECT v FROM A [RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS] UNION ALL SELECT w FROM B [NOW]"
    assert answer(query, a(3, v=1), b(10, w=2), b(11, w=3)) == [(10, (2,)), (10, (1,)), (11, (3,))]


# Labels of results ---------------------------------------------------------------------------------------------------


def test_the_label_of_a_row_combines_those_of_its_tuples() -> None:
    tuples = a(1, 1, 1, "r1 | r2 FROM in1"), b(2, 1, 2, "r1 FROM in2")
    found = meaning(bound("SELECT v, w FROM A, B WHERE A.k = B.k"), tuples)
    assert labelled(found) == [(2, (1, 2), "r1 FROM in1, in2")]


def test_the_label_of_a_group_combines_all_its_rows() -> None:
    tuples = a(1, 1, 1, "r1"), a(2, 2, 2, "r2"), a(3, 1, 3, "r3")
    found = meaning(bound("SELECT k, SUM(v) AS s FROM A GROUP BY k"), tuples)
    assert labelled(found) == [(1, (1, 1), "r1"), (2, (2, 2), "r2"), (3, (1, 4), "r1 & r3")]


def test_the_label_of_a_distinct_result_combines_all_its_rows() -> None:
    tuples = a(1, 1, 1, "r1"), a(2, 1, 1, "r2"), a(3, 1, 2, "r3")
    found = meaning(bound("SELECT RSTREAM DISTINCT v FROM A"), tuples)
    assert labelled(found) == [(1, (1,), "r1"), (2, (1,), "r1 & r2"), (3, (1,), "r1 & r2"), (3, (2,), "r3")]


def test_the_level_of_a_result_is_that_of_the_query() -> None:
    tuples = a(1, v=1), a(2, v=2, label="r AT C")
    found = meaning(bound("SELECT v FROM A"), tuples, rules=RULES, level=level_of("S"))
    assert found == [OracleResult(1, (1,), label_of("TRUE AT S")), OracleResult(2, (2,), label_of("r AT S"))]


def test_labels_of_columns_count_where_they_are_read() -> None:
    labels = {"A": {"v": "doctor", "s": "clerk"}}
    for query, label in {
        "SELECT k FROM A": "nurse",
        "SELECT v FROM A": "doctor & nurse",
        "SELECT k FROM A WHERE v > 0": "doctor & nurse",
        "SELECT k WHERE s IS NULL FROM A": "clerk & nurse",
        "SELECT k, COUNT(*) AS n FROM A GROUP BY k, v": "doctor & nurse",
        "SELECT COUNT(*) AS n FROM A HAVING MAX(v) > 0": "doctor & nurse",
        "SELECT k FROM A [PARTITIONED BY s ROWS 1]": "clerk & nurse",
    }.items():
        found = meaning(bound(query, labels), [a(1, 1, 1, "nurse")])
        assert [str(result.label) for result in found] == [label], query


def test_labels_of_columns_count_for_the_source_they_are_read_from() -> None:
    query = bound("SELECT x.v AS v, y.k AS k FROM A [NOW] x, A [NOW] y", {"A": {"v": "doctor", "k": "clerk"}})
    assert labelled(meaning(query, [a(1, 1, 1)])) == [(1, (1, 1), "clerk & doctor")]


def test_a_result_of_many_policies_reaches_readers_who_satisfy_each_of_them() -> None:
    tuples = [a(n, label=f"doctor | ward{n} | owner{n}") for n in range(20)]
    found = meaning(bound("SELECT COUNT(*) AS n FROM A"), tuples)
    wards = {f"ward{n}" for n in range(20)}
    assert len(found) == 20
    for number, result in enumerate(found):
        assert result.label.roles.satisfied_by({"doctor"}) and result.label.roles.satisfied_by(wards)
        assert not result.label.roles.satisfied_by(wards - {f"ward{number}"})
