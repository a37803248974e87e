"""Large batches of files are read again with what is wanted only, and nobody can tell but by the clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.engine import rereading
from headgate.engine.compact import Reading, compacted, weakest
from headgate.engine.demand import Demand
from headgate.engine.ingress import Entrance
from headgate.engine.rereading import labels_in, place_of, reread, tuples_in
from headgate.engine.sources import StreamSource, read_stream
from headgate.engine.wanted import Wanted
from headgate.plan.expressions import Column, Compare, Expr, Literal, Type

ENTRANCE = Entrance("s", (("at", Type.TIMESTAMP), ("a", Type.INT), ("policy", Type.STRING)), "at", {"ROLES": "policy"})
LABELS: dict[tuple[str | None, ...], int] = {("R1",): 3, ("R2",): 5}


def write(folder: Path, number: int, modified: int, rows: int) -> None:
    folder.mkdir(exist_ok=True)
    at = pa.array([1_000_000 * i for i in range(rows)], pa.timestamp("us", "UTC"))
    values = {"at": at, "a": [100 * number + i for i in range(rows)], "policy": ["R1", "R2"] * (rows // 2)}
    schema = pa.schema({"at": at.type, "a": pa.int32(), "policy": pa.string()})
    pq.write_table(pa.table(values, schema), folder / f"{9 - number}.parquet", row_group_size=4)
    os.utime(folder / f"{9 - number}.parquet", (modified, modified))


def readings(
    spark: SparkSession, folder: Path, home: Path
) -> tuple[list[Reading | None], list[tuple[list[int], list[int]]]]:
    """How each batch was read again, and the values and labels that were found then."""
    source = StreamSource(ENTRANCE, "parquet", {"path": str(folder)})
    found: list[Reading | None] = []
    numbers: list[tuple[list[int], list[int]]] = []
    started: Future[StreamingQuery] = Future()

    def batch(frame, _) -> None:  # type: ignore[no-untyped-def]
        reading = reread(frame, source, started)
        found.append(reading)
        if reading:
            compact = compacted(reading, wanted({}), 0, lambda _: wanted(LABELS))
            assert compact is not None
            numbers.append((compact.arrivals.columns["a"].to_pylist(), compact.arrivals.labels.tolist()))

    query = read_stream(spark, source).writeStream.foreachBatch(batch).trigger(availableNow=True)
    query = query.option("checkpointLocation", str(home))
    running = query.start()
    started.set_result(running)
    running.awaitTermination()
    return found, numbers


def wanted(labels: dict[tuple[str | None, ...], int]) -> Wanted:
    return Wanted(Demand(), ("a",), labels, None)


def test_a_batch_of_files_is_read_again_in_the_order_of_their_arrival(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "WORTH_IT", 1)
    for number, rows in enumerate((8, 2, 20)):
        write(tmp_path / "s", number, 1_000_000 + number, rows)
    (reading,), ((values, labels),) = readings(spark, tmp_path / "s", tmp_path / "home")
    assert reading is not None
    assert reading.place is not None
    assert reading.tuples == 30
    assert sorted(reading.first or ()) == [("R1",), ("R2",)]
    assert values == [*range(8), *range(100, 102), *range(200, 220)]
    assert labels == [3, 5] * 15


def test_small_batches_and_strange_names_are_taken_as_they_come(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "s", 0, 1_000_000, 8)
    assert readings(spark, tmp_path / "s", tmp_path / "home") == ([None], [])
    monkeypatch.setattr(rereading, "WORTH_IT", 1)
    write(tmp_path / "a b", 0, 1_000_000, 8)
    assert readings(spark, tmp_path / "a b", tmp_path / "other") == ([None], [])


@pytest.mark.parametrize(
    ("modified", "longest", "there"),
    [([5, 6], 10, True), ([5], 1 << 36, True), ([5, 5], 10, False), ([5, 6], 1 << 37, False)],
)
def test_one_number_says_where_a_row_was_unless_two_files_are_of_one_time(
    modified: Sequence[int], longest: int, there: bool
) -> None:
    assert (place_of(modified, longest) is not None) == there


def test_files_tell_their_size_and_first_labels(tmp_path: Path) -> None:
    write(tmp_path / "s", 0, 1_000_000, 8)
    file = str(tmp_path / "s" / "9.parquet")
    assert tuples_in([file, file]) == 16
    assert labels_in(StreamSource(Entrance("s", (), None, {"ROLES": "gone"}), "parquet"), file) is None
    assert labels_in(StreamSource(Entrance("s", (), None, {}), "parquet"), file) is None


def test_of_many_bounds_the_widest_counts_for_those_who_see_the_same() -> None:
    def above(bound: int, operator: str = ">") -> Expr:
        return Compare(operator, Column(0, "a", Type.INT), Literal(bound, Type.INT))

    found = weakest([((1,), above(7)), ((1,), above(3)), ((1,), above(5)), ((2,), above(9)), ((1,), above(4, "<"))])
    assert list(found) == [((1,), above(3)), ((2,), above(9)), ((1,), above(4, "<"))]
    assert list(weakest([((1,), above(4, "<")), ((1,), above(9, "<")), ((1,), None)])) == [
        ((1,), above(9, "<")),
        ((1,), None),
    ]
