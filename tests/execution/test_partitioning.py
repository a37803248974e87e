"""The rules of hash partitioning, one by one: which blocks, by which columns, with which other blocks, into which
partitions.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from worlds.partitioned_queries import LABELLED, STREAMS, bound

from headgate.execution.partition_groups import partition_groups, partition_of
from headgate.execution.partitioning import MOST_PARTITIONINGS, HashPartitioning, partitionings, together
from headgate.execution.partitions import gathered, split
from headgate.labels.levels import Level
from headgate.model.query import ContinuousQuery
from headgate.operators.partition_state import PartitionState, ViewGroup
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream


def ways(text: str, streams: tuple[Stream, ...] = STREAMS) -> list[str]:
    (block,) = bound(text, streams).blocks
    return [str(way) for way in partitionings(block)]


# Windows and instants -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", ["RANGE 5 SECONDS", "RANGE 5 SECONDS SLIDE 1 SECOND", "NOW", "UNBOUNDED"])
def test_groups_are_partitioned_by_any_grouped_column(window: str) -> None:
    text = f"SELECT COUNT(*) FROM s [{window}] GROUP BY a, w"
    assert ways(text) == ["s.a", "s.w"]
    assert ways(text + " HAVING SUM(b) > 3") == ["s.a", "s.w"]


def test_an_aggregate_over_everything_stays_in_one_partition() -> None:
    assert ways("SELECT COUNT(*) FROM s [RANGE 5 SECONDS]") == []
    assert ways("SELECT SUM(a) FROM s [RANGE 5 SECONDS SLIDE 1 SECOND] WHERE b = 1") == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM s [ROWS 5] GROUP BY a",
        "SELECT a FROM s [ROWS 5]",
        "SELECT v.a FROM s [RANGE 5 SECONDS] v, t [ROWS 1] u WHERE v.a = u.a",
    ],
)
def test_a_window_of_rows_cannot_be_counted_in_one_partition_of_several(text: str) -> None:
    assert ways(text) == []


def test_a_partitioned_window_is_partitioned_by_its_own_columns() -> None:
    assert ways("SELECT a, b, x FROM s [PARTITIONED BY a, w ROWS 2]") == ["s.a", "s.w"]
    assert ways("SELECT SUM(b) FROM s [PARTITIONED BY a, w ROWS 2]") == ["s.a", "s.w"]
    assert ways("SELECT SUM(b) FROM s [PARTITIONED BY a ROWS 2] GROUP BY w") == []
    assert ways("SELECT SUM(b) FROM s [PARTITIONED BY a, w ROWS 2] GROUP BY w") == ["s.w"]


def test_rows_make_a_partition_no_other_column_s() -> None:
    """That a = b in every row says nothing of the tuples that a window counts."""
    assert ways("SELECT a FROM s [PARTITIONED BY a ROWS 2] WHERE a = b") == ["s.a"]


def test_new_rows_of_one_stream_are_partitioned_by_any_column_that_is_read() -> None:
    assert ways("SELECT a FROM s [RANGE 5 SECONDS] WHERE w = 'a'") == ["s.a", "s.w"]
    assert ways("SELECT 1 AS one FROM s [RANGE 5 SECONDS]") == []


def test_keys_of_many_values_come_first() -> None:
    assert ways("SELECT x, LEVEL, w FROM s [NOW]") == ["s.w", "s.x", "s.LEVEL"]


def test_rstream_emits_at_all_instants_unless_it_slides() -> None:
    assert ways("SELECT RSTREAM a FROM s [RANGE 5 SECONDS]") == []
    assert ways("SELECT RSTREAM COUNT(*) FROM s [UNBOUNDED] GROUP BY a") == []
    assert ways("SELECT RSTREAM a FROM s [RANGE 5 SECONDS SLIDE 1 SECOND]") == ["s.a"]
    assert ways("SELECT RSTREAM COUNT(*) FROM s [RANGE 5 SECONDS SLIDE 1 SECOND] GROUP BY a") == ["s.a"]


def test_dstream_is_partitioned_where_nothing_leaves_by_time() -> None:
    for window in ("RANGE 5 SECONDS", "RANGE 5 SECONDS SLIDE 1 SECOND", "NOW"):
        assert ways(f"SELECT DSTREAM a FROM s [{window}]") == []
    assert ways("SELECT DSTREAM a FROM s [PARTITIONED BY a ROWS 2]") == ["s.a"]
    assert ways("SELECT DSTREAM v.a FROM s [UNBOUNDED] v, t [RANGE 1 SECOND] u WHERE v.a = u.a") == []
    assert ways("SELECT DSTREAM v.a FROM s [UNBOUNDED] v, t [PARTITIONED BY a ROWS 1] u WHERE v.a = u.a") == [
        "s.a, t.a"
    ]


def test_distinct_is_partitioned_by_a_result_where_nothing_leaves_by_time() -> None:
    assert ways("SELECT DISTINCT a, b FROM s WHERE w = 'a'") == ["s.a", "s.b"]
    assert ways("SELECT DSTREAM DISTINCT a, b FROM s [PARTITIONED BY a, w ROWS 1]") == ["s.a"]
    assert ways("SELECT DISTINCT a + 0 AS c FROM s") == []
    for window in ("RANGE 5 SECONDS", "RANGE 5 SECONDS SLIDE 1 SECOND", "NOW"):
        assert ways(f"SELECT DISTINCT a FROM s [{window}]") == []


def test_distinct_rows_of_a_sliding_instant_are_partitioned_by_a_result() -> None:
    assert ways("SELECT RSTREAM DISTINCT a FROM s [RANGE 5 SECONDS SLIDE 1 SECOND] WHERE w = 'a'") == ["s.a"]


def test_a_stateless_block_is_not_partitioned() -> None:
    assert ways("SELECT a FROM s") == []


# Joins ----------------------------------------------------------------------------------------------------------------


def test_joins_are_partitioned_by_equal_columns_in_whichever_condition_they_are() -> None:
    after = "SELECT v.x FROM s [NOW] v, t [UNBOUNDED] u WHERE v.w = u.w"
    before = "SELECT v.x WHERE v.w = u.w FROM s [NOW] v, t [UNBOUNDED] u"
    assert ways(after) == ways(before) == ["s.w, t.w"]


def test_joins_without_equal_columns_stay_in_one_partition() -> None:
    assert ways("SELECT v.a FROM s [NOW] v, t [NOW] u") == []
    assert ways("SELECT v.a FROM s [NOW] v, t [NOW] u WHERE v.a < u.a") == []
    assert ways("SELECT v.a FROM s [NOW] v, t [NOW] u WHERE v.a = u.a OR v.b = u.b") == []


def test_int_and_bigint_are_one_key_and_other_types_are_not() -> None:
    assert ways("SELECT v.x FROM s [NOW] v, t [NOW] u WHERE v.a = u.a") == ["s.a, t.a"]
    assert ways("SELECT v.a FROM s [NOW] v, t [NOW] u WHERE v.x = u.a") == []


def test_equality_goes_through_other_columns() -> None:
    text = "SELECT v.x FROM s [NOW] v, t [NOW] u WHERE v.a = v.b AND v.b = u.b"
    assert ways(text) == ["s.a, t.b", "s.b, t.b"]


def test_the_groups_of_a_join_are_partitioned_only_by_the_columns_of_the_join() -> None:
    text = "SELECT COUNT(*) FROM s [NOW] v, t [NOW] u WHERE v.a = u.a GROUP BY {}"
    assert ways(text.format("v.a")) == ways(text.format("u.a, v.w")) == ["s.a, t.a"]
    assert ways(text.format("v.w")) == []


def test_a_stream_read_twice_has_one_key() -> None:
    text = "SELECT v.x FROM s [NOW] v, s [UNBOUNDED] u WHERE {}"
    assert ways(text.format("v.a = u.a")) == ["s.a"]
    assert ways(text.format("v.a = u.b")) == []
    assert ways(text.format("v.a = u.b AND u.b = v.b")) == ["s.b"]


def test_levels_are_keys_and_equal_texts_too() -> None:
    assert ways("SELECT COUNT(*) FROM s [NOW] GROUP BY LEVEL") == ["s.LEVEL"]
    assert ways("SELECT v.a FROM s [NOW] v, t [NOW] u WHERE v.LEVEL = u.w") == ["s.LEVEL, t.w"]


def test_the_number_of_partitionings_is_bounded() -> None:
    names = [f"c{number}" for number in range(12)]
    streams = tuple(Stream(name, tuple((x, Type.INT) for x in names)) for name in ("p", "q"))
    equal = " AND ".join(f"v.c0 = {side}.{name}" for side in "vu" for name in names if (side, name) != ("v", "c0"))
    assert len(ways(f"SELECT v.c0 FROM p [NOW] v, q [NOW] u WHERE {equal}", streams)) == MOST_PARTITIONINGS


# Labelled columns -----------------------------------------------------------------------------------------------------


def test_a_labelled_column_is_no_key() -> None:
    assert ways("SELECT COUNT(*) FROM s [NOW] GROUP BY b", LABELLED) == []
    assert ways("SELECT COUNT(*) FROM s [NOW] GROUP BY a, b", LABELLED) == ["s.a"]


def test_a_lost_column_shows_in_later_conditions_unless_every_instant_stands_alone() -> None:
    assert ways("SELECT COUNT(*) FROM s [NOW] WHERE b IS NULL GROUP BY a", LABELLED) == []
    assert ways("SELECT COUNT(*) WHERE b IS NULL FROM s [NOW] GROUP BY a", LABELLED) == ["s.a"]
    assert ways("SELECT v.a FROM s [NOW] v, t [NOW] u WHERE v.a = u.a AND v.x < u.b", LABELLED) == []
    sliding = "SELECT COUNT(*) FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] WHERE b IS NULL GROUP BY a"
    assert ways(sliding, LABELLED) == ["s.a"]


def test_a_lost_column_shows_in_what_is_distinct_or_gone() -> None:
    assert ways("SELECT DISTINCT a, b FROM s", LABELLED) == []
    assert ways("SELECT DSTREAM a, b FROM s [PARTITIONED BY a ROWS 1]", LABELLED) == []
    assert ways("SELECT a, b FROM s [PARTITIONED BY a ROWS 1]", LABELLED) == ["s.a"]


# Together -------------------------------------------------------------------------------------------------------------


def shared(*texts: str) -> list[tuple[str, list[int]]]:
    blocks = {(str(number), 0): bound(text).blocks[0] for number, text in enumerate(texts)}
    return [(str(way or "-"), [int(name) for name, _ in names]) for way, names in together(blocks)]


BY_A = "SELECT COUNT(*) FROM s [NOW] GROUP BY a"
BY_W = "SELECT COUNT(*) FROM s [NOW] GROUP BY w"
BY_BOTH = "SELECT COUNT(*) FROM s [NOW] GROUP BY a, w"
JOINED = "SELECT v.x FROM s [NOW] v, t [NOW] u WHERE v.w = u.w"
OF_T = "SELECT COUNT(*) FROM t [NOW] GROUP BY b"
ALL = "SELECT COUNT(*) FROM s [ROWS 3]"


def test_blocks_that_can_be_partitioned_alike_are() -> None:
    assert shared(BY_A, BY_BOTH) == [("s.a", [0, 1])]
    assert shared(BY_W, BY_BOTH, JOINED) == [("s.w, t.w", [0, 1, 2])]


def test_blocks_of_different_streams_are_partitioned_together() -> None:
    assert shared(BY_A, OF_T) == [("s.a, t.b", [0, 1])]


def test_there_are_as_few_partitionings_as_possible_and_one_partition_for_the_rest() -> None:
    assert shared(ALL, BY_A, BY_W, BY_BOTH, JOINED, ALL) == [("s.w, t.w", [2, 3, 4]), ("s.a", [1]), ("-", [0, 5])]


def test_partitionings_that_differ_in_a_stream_stay_apart() -> None:
    assert HashPartitioning((("s", "a"),)).with_(HashPartitioning((("s", "b"),))) is None
    assert HashPartitioning((("t", "a"),)).with_(HashPartitioning((("s", "b"),))) == HashPartitioning(
        (("s", "b"), ("t", "a"))
    )


def test_a_partition_group_keeps_the_columns_its_blocks_read_and_the_numbers_of_all_streams() -> None:
    texts = {"one": OF_T, "two": "SELECT COUNT(x) FROM t [ROWS 1] v, s [NOW] u", "three": "SELECT a FROM s"}
    running = [ContinuousQuery(name, bound(text), Level("U")) for name, text in texts.items()]
    by_b, rest = partition_groups(running)
    assert (by_b.name, rest.name) == ("t.b", "")
    assert (by_b.program.streams, rest.program.streams) == (("s", "t"), ("s", "t"))
    assert set(by_b.program.columns) == {("t", "b")} and set(rest.program.columns) == {("s", "x")}
    assert not by_b.program.stateless and not rest.program.stateless
    assert by_b.targets() == {("one", 0)} and rest.targets() == {("two", 0)}


# Partitions -----------------------------------------------------------------------------------------------------------


def test_equal_values_have_the_same_partition() -> None:
    for partitions in (1, 2, 3, 8, 1000):
        whole = [None, 0, 5, -7, 2**31 - 1, -(2**31)]
        assert (
            partition_of(pa.array(whole, pa.int32()), partitions).tolist()
            == partition_of(pa.array(whole, pa.int64()), partitions).tolist()
        )
        zeros = partition_of(pa.array([0.0, -0.0, None]), partitions)
        assert len(set(zeros.tolist())) == 1
        texts = partition_of(pa.array(["é", "e\u0301", "é", None, ""]), partitions).tolist()
        assert texts[0] == texts[2] and all(0 <= number < partitions for number in texts)


def written_out(w: int, partitions: int) -> int:
    return w % 2147483647 * 1327217885 % 2147483647 * partitions // 2147483647


def test_a_partition_is_a_fixed_hash_of_its_key() -> None:
    whole = [0, 1, 2, 5, -1, 2**63 - 1, -(2**63)]
    assert partition_of(pa.array(whole), 8).tolist() == [written_out(w, 8) for w in whole]
    assert partition_of(pa.array(["a", None]), 1000).tolist() == [written_out(3904355907, 1000), 0]
    assert partition_of(pa.array([-0.75], pa.float32()), 1000).tolist() == [written_out(-768, 1000)]
    assert partition_of(pa.array([dt.date(1970, 1, 3)]), 1000).tolist() == [written_out(2, 1000)]
    assert partition_of(pa.array([True, False]), 1000).tolist() == [written_out(1, 1000), 0]
    assert partition_of(pa.array([1e308]), 1000).tolist() == [written_out(2**53, 1000)]
    assert len(partition_of(pa.array([], pa.string()), 5)) == 0


SPARK_KEYS = {
    "CAST(k AS BIGINT)": pa.array([0, 1, -1, 2**31 - 1, -(2**31), None], pa.int32()),
    "BIGINT(k)": pa.array([0, 5, -7, 2**63 - 1, -(2**63), None], pa.int64()),
    "CAST(BOOLEAN(k) AS BIGINT)": pa.array([True, False, None]),
    "crc32(encode(k, 'UTF-8'))": pa.array(["", "a", "é", "id 7", "\U0001f600", None]),
    "unix_micros(k)": pa.array(
        [dt.datetime(1969, 1, 1, 0, 0, 0, 7, dt.UTC), dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), None],
        pa.timestamp("us", "UTC"),
    ),
    "unix_date(k)": pa.array([dt.date(1960, 2, 29), dt.date(2026, 1, 31), None]),
    "FLOOR(GREATEST(LEAST(COALESCE(CAST(k AS DOUBLE), 0D), 8796093022208D), -8796093022208D) * 1024)": pa.array(
        [0.0, -0.0, 0.1, -2.75, 1e308, -1e308, None]
    ),
}


@pytest.mark.parametrize("whole", SPARK_KEYS)
def test_spark_computes_the_same_partitions(spark: SparkSession, whole: str) -> None:
    keys = SPARK_KEYS[whole]
    frame = spark.createDataFrame(pa.table({"n": np.arange(len(keys)), "k": keys}))
    partition = f"pmod(pmod(COALESCE({whole}, 0L), 2147483647L) * 1327217885L, 2147483647L) * 1000 DIV 2147483647L"
    found = sorted((row.n, row.c) for row in frame.selectExpr("n", f"{partition} AS c").collect())
    assert [c for _, c in found] == partition_of(keys, 1000).tolist()


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(np.arange(4000)),
        pa.array(np.arange(4000) * 8),
        pa.array(np.arange(4000) * 1000),
        pa.array([f"id {number}" for number in range(4000)]),
        pa.array(np.arange(4000) / 64),
        pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=x) for x in range(4000)]),
        pa.array([dt.date(2026, 1, 1) + dt.timedelta(days=x) for x in range(4000)]),
    ],
    ids=lambda keys: f"{keys.type} {keys[1]}",
)
def test_different_values_are_spread(keys: pa.Array) -> None:
    counts = np.bincount(partition_of(keys, 8), minlength=8)
    assert counts.min() > 350 and counts.max() < 650


def table(arrivals: list[int], **columns: list[int]) -> pa.Table:
    size = len(arrivals)
    known = {
        TIME: [x * 10 for x in arrivals],
        STREAM: [0] * size,
        ARRIVAL: arrivals,
        LABEL: [1] * size,
        VISIBILITY: [0] * size,
    }
    return pa.table(known | columns)


def plain(partition: PartitionState) -> list[tuple[tuple[int, ...], dict[str, list[int]], dict[str, int]]]:
    """What each class holds, by arrivals."""
    arrival = partition.table.column(ARRIVAL).to_numpy()
    return sorted(
        (c.views, {k: arrival[v].tolist() for k, v in c.held.items()}, dict(c.last)) for c in partition.classes
    )


def test_gathered_partitions_hold_every_tuple_once_with_all_its_columns() -> None:
    partitions = {
        ("s.a", 0): PartitionState(table([1, 4], a=[10, 40]), (ViewGroup((0, 1), {"w": np.array([0, 1])}, {"r": 7}),)),
        ("s.a", 1): PartitionState(
            table([2], a=[20]), (ViewGroup((0,), {"w": np.array([0])}, {"r": 9}), ViewGroup((1,)))
        ),
        ("", 0): PartitionState(table([4, 3], b=[44, 33]), (ViewGroup((2,), {"w": np.array([1])}, {"r": 1}),)),
    }
    found = gathered(partitions)
    assert found.table.column(ARRIVAL).to_pylist() == [1, 2, 3, 4]
    assert found.table.column("a").to_pylist() == [10, 20, None, 40]
    assert found.table.column("b").to_pylist() == [None, None, 33, 44]
    assert plain(found) == [
        ((0,), {"w": [1, 2, 4]}, {"r": 9}),
        ((1,), {"w": [1, 4]}, {"r": 7}),
        ((2,), {"w": [3]}, {"r": 1}),
    ]


def test_a_partition_is_split_with_what_its_views_hold() -> None:
    whole = PartitionState(
        table([1, 2, 3, 4]),
        (ViewGroup((0, 5), {"w": np.array([0, 1, 3])}, {"r": 9}), ViewGroup((1,), {"w": np.array([2])})),
    )
    first, second = split(whole, np.array([0, 1, 0, 1]), 2, frozenset({0}))
    assert plain(first) == [((0,), {"w": [1]}, {"r": 9})]
    assert plain(second) == [((0,), {"w": [2, 4]}, {"r": 9})]
    assert first.table.column(ARRIVAL).to_pylist() == [1, 3]


def test_gathering_no_partitions_gives_an_empty_one() -> None:
    assert gathered({}).table.num_rows == 0
