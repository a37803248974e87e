"""Arrow decodes Parquet files exactly as Spark reads them; files that Spark may read differently are left to it."""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.errors import SourceError
from headgate.ingress import parquet_reader as reading
from headgate.ingress.parquet_reader import Files, files_of, opened
from headgate.ingress.pushdown import Pushdown
from headgate.ingress.sources import StreamSource, in_order, read_stream
from headgate.ingress.spark_reader import weakest
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Column, Compare, Expr, Literal, Type
from headgate.service.streams import SparkBatch

COLUMNS = (("at", Type.TIMESTAMP), ("a", Type.INT), ("policy", Type.STRING))
DESCRIPTOR = StreamDescriptor("s", COLUMNS, "at", {"ROLES": "policy"})
LABELS: dict[tuple[str | None, ...], int] = {("R1",): 3, ("R2",): 5}


def table(number: int, rows: int) -> pa.Table:
    at = pa.array([1_000_000 * i for i in range(rows)], pa.timestamp("us", "UTC"))
    values = {"at": at, "a": [100 * number + i for i in range(rows)], "policy": ["R1", "R2"] * (rows // 2)}
    return pa.table(values, pa.schema({"at": at.type, "a": pa.int32(), "policy": pa.string()}))


def write(file: Path, rows: pa.Table, modified: int = 1_000_000, group: int = 4) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, row_group_size=group)
    os.utime(file, (modified, modified))
    return file.as_uri()


def pushdown(labels: Mapping[tuple[str | None, ...], int] = LABELS, **more: Any) -> Pushdown:
    return Pushdown(CatalogSnapshot(), ("a",), labels, **more)


def here(*addresses: str, descriptor: StreamDescriptor = DESCRIPTOR) -> Files:
    files = opened(descriptor, addresses)
    assert files is not None
    return files


def both_ways(spark: SparkSession, source: StreamSource, home: Path) -> list[tuple[Files | None, pa.Table]]:
    """For each batch how Arrow reads it, and what Spark hands over."""
    found: list[tuple[Files | None, pa.Table]] = []
    started: Future[StreamingQuery] = Future()

    def batch(frame, _) -> None:  # type: ignore[no-untyped-def]
        given = SparkBatch(frame, source, started)
        found.append((given.files, in_order(frame.toArrow())))

    query = read_stream(spark, source).writeStream.foreachBatch(batch).trigger(availableNow=True)
    running = query.option("checkpointLocation", str(home)).start()
    started.set_result(running)
    running.awaitTermination()
    return found


def test_a_batch_has_the_files_that_spark_hands_over_in_the_same_order(spark: SparkSession, tmp_path: Path) -> None:
    names = ("d", "c", "b", "a b%20?", "e\n")  # the last three are of one time: their names decide
    for number, (name, modified) in enumerate(zip(names, (4, 5, 6, 6, 6), strict=True)):
        write(tmp_path / "s" / f"{name}.parquet", table(number, 6), modified)
    source = StreamSource(DESCRIPTOR, "parquet", {"path": str(tmp_path / "s"), "maxFilesPerTrigger": "4"})
    found = both_ways(spark, source, tmp_path / "home")
    assert [len(expected) for _, expected in found] == [24, 6]
    for files, expected in found:
        assert files is not None
        assert files.all_rows().table.to_pylist() == expected.to_pylist()
        decoded = files.decoded(pushdown({}), 0, lambda _: pushdown())
        assert decoded is not None
        assert decoded.arrivals.columns["a"].to_pylist() == expected.column("a").to_pylist()
        assert decoded.arrivals.labels.tolist() == [3, 5] * (len(expected) // 2)
        assert decoded.arrivals.times.tolist() == [1000 * i for i in range(6)] * (len(expected) // 6)


ALL = {
    "b": (Type.BOOLEAN, pa.bool_(), [True, None]),
    "i": (Type.INT, pa.int32(), [-(2**31), None]),
    "l": (Type.BIGINT, pa.int64(), [2**63 - 1, None]),
    "f": (Type.FLOAT, pa.float32(), [0.1, float("nan")]),
    "d": (Type.DOUBLE, pa.float64(), [-0.0, float("inf")]),
    "s": (Type.STRING, pa.string(), ["ä\x00", None]),
    "t": (Type.TIMESTAMP, pa.timestamp("us", "UTC"), [dt.datetime(1, 1, 1, tzinfo=dt.UTC), None]),
    "m": (Type.TIMESTAMP, pa.timestamp("ms", "Europe/Berlin"), [dt.datetime(2024, 7, 1, tzinfo=dt.UTC), None]),
    "y": (Type.DATE, pa.date32(), [dt.date(1582, 10, 10), None]),
}


def test_every_type_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    descriptor = StreamDescriptor("s", tuple((name, type_) for name, (type_, _, _) in ALL.items()))
    write(tmp_path / "s" / "1.parquet", pa.table({name: pa.array(x, type_) for name, (_, type_, x) in ALL.items()}))
    ((files, expected),) = both_ways(
        spark, StreamSource(descriptor, "parquet", {"path": str(tmp_path / "s")}), tmp_path / "home"
    )
    assert files is not None
    assert repr(files.all_rows().table.to_pydict()) == repr(expected.to_pydict())


OTHERS = {
    "another type": pa.table({"a": pa.array([1], pa.int64())}),
    "unsigned": pa.table({"a": pa.array([1], pa.uint32())}),
    "missing": pa.table({"b": pa.array([1], pa.int32())}),
    "another case": pa.table({"A": pa.array([1], pa.int32())}),
    "twice": pa.table({"a": pa.array([1], pa.int32()), "A": pa.array([1], pa.int32())}),
}


@pytest.mark.parametrize("rows", OTHERS.values(), ids=OTHERS)
def test_files_that_spark_may_read_differently_are_left_to_spark(rows: pa.Table, tmp_path: Path) -> None:
    descriptor = StreamDescriptor("s", (("a", Type.INT),))
    fine = write(tmp_path / "0.parquet", pa.table({"a": pa.array([1], pa.int32())}))
    assert opened(descriptor, [fine]) is not None
    assert opened(descriptor, [fine, write(tmp_path / "1.parquet", rows)]) is None


@pytest.mark.parametrize("type_", [pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.date64()])
def test_times_of_other_kinds_are_left_to_spark(type_: pa.DataType, tmp_path: Path) -> None:
    file = write(tmp_path / "0.parquet", pa.table({"a": pa.array([0], type_)}))
    assert opened(StreamDescriptor("s", (("a", Type.TIMESTAMP),)), [file]) is None


def test_folders_that_are_columns_other_machines_and_options_of_content_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = write(tmp_path / "s" / "a=7" / "1.parquet", table(0, 2))
    assert opened(DESCRIPTOR, [file]) is None
    assert opened(DESCRIPTOR, ["hdfs://there/1.parquet"]) is None
    assert files_of(StreamSource(DESCRIPTOR, "json", {}), Future()) is None
    source = StreamSource(DESCRIPTOR, "parquet", {"path": str(tmp_path / "s"), "ignoreCorruptFiles": "true"})
    ((files, expected),) = both_ways(spark, source, tmp_path / "home")
    assert files is None
    assert len(expected) == 2


def test_a_batch_with_a_row_to_reject_is_validated_row_by_row(tmp_path: Path) -> None:
    rows = table(0, 6)
    fine = write(tmp_path / "fine.parquet", rows)

    def with_(name: str, values: list[object]) -> str:
        at = rows.schema.get_field_index(name)
        other = rows.set_column(at, rows.schema.field(at), [pa.array(values, rows.schema.field(at).type)])
        return write(tmp_path / f"{name}.parquet", other)

    def taken(*addresses: str, now: int = 10_000, **more: Any) -> bool:
        descriptor = StreamDescriptor("s", COLUMNS, "at", {"ROLES": "policy"}, skew=0)
        return here(*addresses, descriptor=descriptor).decoded(pushdown(**more), now, lambda _: pushdown()) is not None

    assert taken(fine)
    assert not taken(fine, now=4_999)  # the last tuple is too far ahead
    assert not taken(fine, with_("at", [0, 1, None, 3, 4, 5]))
    assert not taken(fine, with_("policy", ["R1", "R2", None, "R1", "R1", "R1"]))
    assert not taken(fine, with_("policy", ["R1", "R2", "R2", "(", "R1", "R1"]))
    assert taken(with_("policy", ["R1"] * 6), longest=2)
    assert not taken(with_("policy", ["R1"] * 6), longest=1)


def test_tuples_that_nobody_sees_are_dropped_and_counted(tmp_path: Path) -> None:
    files = here(write(tmp_path / "1.parquet", table(0, 6)))
    decoded = files.decoded(pushdown(keep=(((3,), None), ((9,), None))), 0, lambda _: None)
    assert decoded is not None
    assert decoded.arrivals.columns["a"].to_pylist() == [0, 2, 4]
    assert (decoded.tuples, decoded.unseen) == (6, 3)


def test_tuples_of_which_no_column_is_read_are_counted(tmp_path: Path) -> None:
    files = here(write(tmp_path / "1.parquet", table(0, 6)), descriptor=StreamDescriptor("s", COLUMNS))
    decoded = files.decoded(Pushdown(CatalogSnapshot(), (), {(): 4}), 7, lambda _: None)
    assert decoded is not None
    assert (decoded.arrivals.times.tolist(), decoded.arrivals.labels.tolist()) == ([7] * 6, [4] * 6)
    assert files.decoded(Pushdown(CatalogSnapshot(), (), {}), 7, lambda _: None) is None  # its policy cannot be read


def test_labels_of_two_columns_stay_distinct(tmp_path: Path) -> None:
    descriptor = StreamDescriptor("s", (("r", Type.STRING), ("l", Type.STRING)), None, {"ROLES": "r", "LEVEL": "l"})
    rows = {"r": ["a", "b", "a", None, "b"], "l": ["x", "x", None, "x", "x"]}
    files = here(
        write(tmp_path / "1.parquet", pa.table(rows, pa.schema({"r": pa.string(), "l": pa.string()}))),
        descriptor=descriptor,
    )
    labels: dict[tuple[str | None, ...], int] = {("a", "x"): 1, ("b", "x"): 2, ("a", None): 3, (None, "x"): 4}
    decoded = files.decoded(
        Pushdown(CatalogSnapshot(), (), {}),
        0,
        lambda kinds: Pushdown(CatalogSnapshot(), (), {x: labels[x] for x in kinds}),
    )
    assert decoded is not None
    assert decoded.arrivals.labels.tolist() == [1, 2, 3, 4, 2]


def test_pushdown_keeps_the_widest_of_many_bounds_for_views_that_see_the_same() -> None:
    def above(bound: int, operator: str = ">") -> Expr:
        return Compare(operator, Column(0, "a", Type.INT), Literal(bound, Type.INT))

    found = weakest([((1,), above(7)), ((1,), above(3)), ((1,), above(5)), ((2,), above(9)), ((1,), above(4, "<"))])
    assert list(found) == [((1,), above(3)), ((2,), above(9)), ((1,), above(4, "<"))]
    assert list(weakest([((1,), above(4, "<")), ((1,), above(9, "<")), ((1,), None)])) == [
        ((1,), above(9, "<")),
        ((1,), None),
    ]


def test_a_pipe_among_the_files_holds_nobody_up(tmp_path: Path) -> None:
    """Nobody writes to it: whoever opens it waits for ever."""
    os.mkfifo(tmp_path / "pipe.parquet")
    found: list[Files | None] = []
    looking = threading.Thread(
        target=lambda: found.append(opened(DESCRIPTOR, [(tmp_path / "pipe.parquet").as_uri()])), daemon=True
    )
    looking.start()
    looking.join(5)
    assert found == [None]


def test_many_labels_in_two_columns_take_no_more_memory_than_there_are_tuples(tmp_path: Path) -> None:
    """Of all pairs of them there would be billions."""
    size = 60_000
    texts = {name: [f"{name}{number}" for number in range(size)] for name in ("roles", "level")}
    columns = (("roles", Type.STRING), ("level", Type.STRING))
    descriptor = StreamDescriptor("s", columns, None, {"ROLES": "roles", "LEVEL": "level"})
    files = here(write(tmp_path / "1.parquet", pa.table(texts), group=size), descriptor=descriptor)
    learnt: list[tuple[str | None, ...]] = []
    assert files.decoded(Pushdown(CatalogSnapshot(), (), {}), 0, learnt.extend) is None
    assert learnt == [*zip(texts["roles"], texts["level"], strict=True)]


def test_a_label_that_points_outside_of_its_dictionary_is_an_error_and_no_other_label(tmp_path: Path) -> None:
    """Forged by hand: a thousand times one and the same number, of three labels that there are."""
    rows = table(0, 1000).set_column(2, "policy", [["R1"] + ["R2"] * 2 + ["R3"] * 997])
    file = tmp_path / "1.parquet"
    pq.write_table(rows, file, compression="NONE", use_dictionary=["policy"])
    content, written = file.read_bytes(), bytes.fromhex("02 03 94aa c00f 02")  # of two bits: eight, then 992 times 2
    assert content.count(written) == 1
    for number in (3, 4, 1 << 20, (1 << 32) - 1):
        forged = bytes.fromhex("20 d00f") + number.to_bytes(4, "little")  # of 32 bits: a thousand times this
        file.write_bytes(content.replace(written, forged))
        with pytest.raises(pa.ArrowIndexError):
            here(file.as_uri()).decoded(pushdown(), 10**12, lambda _: None)
        with pytest.raises(pa.ArrowIndexError):
            here(file.as_uri()).all_rows()


def test_a_file_that_is_replaced_while_it_is_read_stays_what_it_was(tmp_path: Path) -> None:
    """Labels of one file and values of another would be a way to give tuples labels that are not theirs."""
    address = write(tmp_path / "1.parquet", table(1, 6))
    files = here(address)
    before = files.all_rows().table
    write(tmp_path / "2.parquet", table(2, 6).set_column(2, "policy", [["R2", "R1"] * 3]))
    (tmp_path / "2.parquet").rename(tmp_path / "1.parquet")
    assert files.all_rows().table.equals(before) and not here(address).all_rows().table.equals(before)


@pytest.mark.parametrize("kept", [0, 4, 300])
def test_a_file_that_is_cut_short_while_it_is_read_gives_nothing(tmp_path: Path, kept: int) -> None:
    files = here(write(tmp_path / "1.parquet", table(1, 1000), group=1000))
    os.truncate(tmp_path / "1.parquet", kept)
    with pytest.raises(SourceError, match=r"file `.*/1\.parquet`: it is damaged"):
        files.decoded(pushdown(), 10**12, lambda _: None)


def test_lists_and_structures_under_the_names_of_columns_are_left_to_spark(tmp_path: Path) -> None:
    plain = table(1, 6)
    for column in ([[1]] * 6, [[1, None]] * 6, [{"a": 1}] * 6, [{"a": 1, "policy": "R1"}] * 6):
        rows = plain.set_column(1, "a", [pa.array(column)])
        assert opened(DESCRIPTOR, [write(tmp_path / "1.parquet", rows)]) is None
    for more in ([["R1", "R2"]] * 6, [{"policy": "R1", "a": 1}] * 6):  # beside these, as further columns
        files = opened(DESCRIPTOR, [write(tmp_path / "1.parquet", plain.append_column("more", [pa.array(more)]))])
        expected = here(write(tmp_path / "2.parquet", plain)).all_rows().table
        assert files is None or files.all_rows().table.equals(expected)


TEXTS = st.lists(st.sampled_from(["doctor", "nurse", None]), max_size=12)


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=3), st.integers(1, 3), st.booleans())
def test_labels_stay_distinct_however_many_there_are(
    parts: list[tuple[list[str | None], ...]], count: int, same: bool
) -> None:
    """In one column or several, in pieces with dictionaries of their own, all the same or not, and none at all."""
    pieces = [[column[: min(map(len, part))] for column in part] for part in parts] or [[[], [], []]]
    if same:
        pieces = [[["doctor"] * len(piece[0]), *piece[1:]] for piece in pieces]
    columns = [
        pa.chunked_array([pa.array(piece[at], pa.string()).dictionary_encode() for piece in pieces])
        for at in range(count)
    ]
    kinds, kind = reading.kinds_of(columns)
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert [kinds[x] for x in kind.tolist()] == rows
    assert not rows or (sorted(set(kinds), key=str) == sorted(set(rows), key=str) and len(set(kinds)) == len(kinds))
