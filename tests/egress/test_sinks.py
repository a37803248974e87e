"""Sinks: planted links, numbers and keys that reveal nothing of others, and everything that Spark can write to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from worlds.harness import Bench, stream

from egress.spark_stand_in import Written
from headgate.egress import parquet_files
from headgate.egress.parquet import ParquetSink
from headgate.egress.parquet_files import ROWS
from headgate.egress.sinks import Address, FileSink, Sink
from headgate.egress.spark_sink import SparkSink
from headgate.errors import LeaseLost, StoreError
from headgate.ingress.sources import StreamSource
from headgate.labels import parse_label
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch, notice
from headgate.model.stream import StreamDescriptor
from headgate.service.run_client import SparkTarget


class Here:
    """Every query has one column, every subscriber a folder."""

    columns = ("a",)

    def of(self, subscriber: str, query: str) -> Address:
        return Address((subscriber, query), self.columns, query, f"level of {subscriber}")

    def of_rejected(self, stream: str) -> tuple[str, ...]:
        return "owner", f"{stream}.rejected"


def result_batch(*values: int, to: tuple[str, ...] = ("ann",), query: str = "q") -> ResultBatch:
    size = len(values)
    nothing = np.zeros(size, np.int64)
    return ResultBatch(
        to, query, nothing, np.full(size, 1_700_000_000_000), (pa.array(values, pa.int32()),), nothing,
        (parse_label("doctor"),),
    )  # fmt: skip


def out(sink: Sink, version: int, results: list[ResultBatch], allowed: list[ResultBatch] | None = None) -> None:
    """A batch, as the pipeline does it."""
    sink.stage(version, results, [])
    sink.state(results)
    let_out(sink, results if allowed is None else allowed, as_staged=allowed is None)


def let_out(
    sink: Sink, results: list[ResultBatch], rejected: Sequence[RejectedRows] = (), *, as_staged: bool = True
) -> None:
    sink.prepare(results, rejected, as_staged=as_staged)
    sink.publish(lambda: None)
    sink.complete()


# One folder after the other ------------------------------------------------------------------------------------------


def written(folder: Path, make: Callable[..., Any]) -> list[int]:
    """What ann finds there, in order; a line that is none, or a file that is none, is an error."""
    if make is FileSink:
        lines = (folder / "ann" / "q.jsonl").read_text().splitlines()
        return [json.loads(line)["values"]["x"] for line in lines]
    files = sorted((folder / "ann" / "q").iterdir())
    return [x for file in files for x in pq.read_table(file).column("x").to_pylist()]


@pytest.mark.parametrize("make", [FileSink, ParquetSink])
def test_each_folder_goes_on_where_it_was_after_runs_with_another_folder(
    tmp_path: Path, make: Callable[..., Any]
) -> None:
    """What is known of one folder's files was once believed of another's: they were cut in the middle of a line."""
    bench = Bench(tmp_path / "home", stream("s", "x INT"))
    bench.query("q", "SELECT x FROM s")
    bench.subscribed(ann=("q", "r1"))
    expected: dict[str, list[int]] = {}
    for number, folder in enumerate(["a", "b", "a", "c", "b", "moved", "a"]):
        if folder == "moved":
            (tmp_path / "b").rename(tmp_path / "moved")
            expected["moved"] = expected.pop("b")
        values = [100 * number + x for x in range(1 if folder == "b" else 9)]
        pipeline = bench.begin(make(tmp_path / folder, bench))
        bench.take("s", *(("r1", x) for x in values))
        pipeline.close()
        expected.setdefault(folder, []).extend(values)
        assert {name: written(tmp_path / name, make) for name in expected} == expected


@pytest.mark.parametrize("make", [FileSink, ParquetSink])
def test_a_mark_that_somebody_planted_is_not_taken_for_one(tmp_path: Path, make: Callable[..., Any]) -> None:
    (tmp_path / "secret").write_text("0" * 32)
    for what in ("link", "text", "pipe"):
        mark = tmp_path / what / ".headgate"
        mark.parent.mkdir()
        if what == "link":
            mark.symlink_to(tmp_path / "secret")
        elif what == "text":
            mark.write_text("x")
        else:
            os.mkfifo(mark)
        with pytest.raises(StoreError):
            make(mark.parent, Here())
        assert list(mark.parent.iterdir()) == [mark]


# Planted links --------------------------------------------------------------------------------------------------------

KINDS: list[Callable[..., Any]] = [FileSink, ParquetSink]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("planted", ["ann", "ann/q", "ann/q.jsonl", ".staged"])
def test_results_do_not_go_through_planted_links(tmp_path: Path, make: Callable[..., Any], planted: str) -> None:
    """The attack: a link in the folder of results, to a place that others read."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "ann").mkdir(parents=True)
    link = tmp_path / "out" / planted
    if planted == "ann":
        link.rmdir()
    link.symlink_to(tmp_path / "elsewhere" if "." not in planted[1:] else tmp_path / "elsewhere" / "file")
    results = [result_batch(1), notice(("ann",), "q", ended="why")]
    if make is FileSink and planted in ("ann/q", ".staged"):  # names it does not use
        out(make(tmp_path / "out", Here()), 1, results)
    else:
        with pytest.raises(StoreError, match="remove what is not a plain folder or file"):
            out(make(tmp_path / "out", Here()), 1, results)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("make", KINDS)
def test_recovery_cuts_and_removes_nothing_behind_a_planted_link(tmp_path: Path, make: Callable[..., Any]) -> None:
    """The attack: wait for a crash, and have Headgate remove or cut what one may not touch oneself."""
    sink = make(tmp_path / "out", Here())
    out(sink, 1, [result_batch(1)])
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "000000007.parquet").write_text("precious")
    for path in (tmp_path / "out" / "ann").iterdir():
        path.rename(tmp_path / path.name)
    (tmp_path / "out" / "ann" / "q").symlink_to(victim)
    (tmp_path / "out" / "ann" / "q.jsonl").symlink_to(victim / "000000007.parquet")
    before = {sink.name: {"ann/q": 0} if make is ParquetSink else {"ann/q.jsonl": 0}}
    with pytest.raises(StoreError, match="cannot write results to `ann/q"):
        make(tmp_path / "out", Here()).restore(before, out=False)
    assert (victim / "000000007.parquet").read_text() == "precious"


def test_after_forget_no_old_parquet_file_stays_beside_new_ones(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, Here())
    for version in (1, 2, 3):
        out(sink, version, [result_batch(version)])
    again = ParquetSink(tmp_path, Here())  # --fresh: there is no state
    out(again, 1, [result_batch(9)])
    assert [x.name for x in sorted((tmp_path / "ann" / "q").iterdir())] == ["000000001.parquet"]


def test_a_file_that_somebody_put_in_the_way_is_replaced(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, Here())
    out(sink, 1, [result_batch(1)])
    (tmp_path / "ann" / "q" / "000000002.parquet").write_text("planted")
    out(sink, 2, [result_batch(*range(ROWS))])
    assert (tmp_path / "ann" / "q" / "000000002.parquet").read_bytes().startswith(b"PAR1")


@pytest.mark.parametrize("what", ["removed", "cut", "replaced", "of another form"])
def test_the_last_file_is_left_alone_if_it_is_not_as_it_was_written(tmp_path: Path, what: str) -> None:
    """The next results are in another file, and nothing is lost but what somebody took away."""
    sink = ParquetSink(tmp_path, Here())
    out(sink, 1, [result_batch(1, 2)])
    file = tmp_path / "ann" / "q" / "000000001.parquet"
    match what:
        case "removed":
            file.unlink()
        case "cut":
            file.write_bytes(file.read_bytes()[:-9])
        case "replaced":
            pq.write_table(pq.read_table(file).slice(0, 1), file)
        case "of another form":
            Here.columns = ("b",)
    out(sink, 2, [result_batch(3)])
    Here.columns = ("a",)
    (second,) = pq.read_table(tmp_path / "ann" / "q" / "000000002.parquet").to_pylist()
    assert second["b" if what == "of another form" else "a"] == 3
    assert len(sink.warnings()) == (what != "of another form")
    assert file.exists() == (what != "removed")


@pytest.mark.parametrize("published", [0, 1, 2, 3])
@pytest.mark.parametrize("lost", [False, True])
def test_a_crash_between_two_files_of_a_batch_repeats_and_loses_nothing(
    tmp_path: Path, published: int, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the restart, perhaps, some results are not permitted any more: these are gone also where they were
    published already."""
    monkeypatch.setattr(parquet_files, "ROWS", 4)
    sink = ParquetSink(tmp_path, Here())
    out(sink, 1, [result_batch(1, 2)])
    before = (tmp_path / "ann" / "q" / "000000001.parquet").read_bytes()
    results = [result_batch(*range(10, 18))]  # two in the first file, four in the second, two in the third
    sink.stage(2, results)
    state, verified = json.loads(json.dumps(sink.state(results))), 0

    def dies() -> None:
        nonlocal verified
        verified += 1
        if verified > published:
            raise LeaseLost("gone")

    sink.prepare(results, (), as_staged=True)
    with suppress(LeaseLost):
        sink.publish(dies)
    again = ParquetSink(tmp_path, Here())
    again.restore(state, out=False)
    assert (tmp_path / "ann" / "q" / "000000001.parquet").read_bytes() == before
    (staged,) = again.staged(2)
    assert staged.values[0].to_pylist() == list(range(10, 18))
    left = staged.left(np.arange(8) % 2 == 0) if lost else staged
    let_out(again, [left], as_staged=False)
    out(again, 3, [result_batch(20)])
    expected = [1, 2, *range(10, 18, 2 if lost else 1), 20]
    found = [pq.read_table(x).column("a").to_pylist() for x in sorted((tmp_path / "ann" / "q").iterdir())]
    assert found == [expected[n : n + 4] for n in range(0, len(expected), 4)]


@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_lease_that_is_lost_between_two_files_repeats_nothing(
    tmp_path: Path, published: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "ROWS", 4)
    sink, results, left = ParquetSink(tmp_path, Here()), [result_batch(*range(10))], [published]

    def verify() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise LeaseLost("gone")

    sink.stage(1, results)
    sink.prepare(results, (), as_staged=True)
    with pytest.raises(LeaseLost):
        sink.publish(verify)
    fewer = [results[0].left(np.arange(10) != 9)]
    let_out(sink, fewer, as_staged=False)
    found = [pq.read_table(x).column("a").to_pylist() for x in sorted((tmp_path / "ann" / "q").iterdir())]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


# Whatever Spark writes to ---------------------------------------------------------------------------------------------


def sink_into(written: Written) -> SparkSink:
    return SparkSink(written, "any", {}, Here())


def test_every_result_has_a_key_and_its_line(tmp_path: Path) -> None:
    written = Written()
    sink = sink_into(written)
    results = [result_batch(7, 8), notice(("bob",), "q", ended="why")]
    rejected = [RejectedRows("s", "no form", [{"a": 1}]), RejectedRows("s", "no time", [{"a": 2}])]
    sink.stage(1, results, rejected)
    let_out(sink, results, rejected)
    shown = [(x["user"], x["level"], x["stream"], x["number"], x["label"]) for x in written.rows]
    assert shown == [
        ("ann", "level of ann", "q", 1, "doctor"),
        ("ann", "level of ann", "q", 2, "doctor"),
        ("bob", "level of bob", "q", None, None),
        ("owner", "", "s.rejected", 1, None),
        ("owner", "", "s.rejected", 2, None),
    ]
    assert len({x["key"] for x in written.rows}) == 5
    let_out(FileSink(tmp_path, Here()), results, rejected)
    lines = [x for file in sorted(tmp_path.rglob("*.jsonl")) for x in file.read_text().splitlines()]
    assert [x["value"] for x in written.rows] == lines
    assert [x["time"] and x["time"].isoformat() for x in written.rows[:3]] == ["2023-11-14T22:13:20+00:00"] * 2 + [None]


def test_numbers_of_results_reveal_nothing_of_other_subscribers() -> None:
    alone, among = Written(), Written()
    for written, others in ((alone, False), (among, True)):
        sink = sink_into(written)
        for version in range(1, 9):
            mine = [result_batch(version)] if version % 3 == 0 else []
            theirs = (
                [result_batch(1, 2, 3, to=("bob", "cyd")), result_batch(4, query="p", to=("bob",))] if others else []
            )
            out(sink, version, [*theirs, *mine])
    keys = [[x["key"].partition("/")[2] for x in w.rows if x["user"] == "ann"] for w in (alone, among)]
    assert keys[0] == keys[1] == ["ann/q/1", "ann/q/2"]


@pytest.mark.parametrize("written_before", [0, 1, 2, 5])
@pytest.mark.parametrize("lost", [False, True])
def test_repeated_results_have_the_same_keys_even_if_rights_changed(written_before: int, lost: bool) -> None:
    """A crash in the middle of writing; then, perhaps, the right to most of it is gone, so that less is written, which
    must not be taken for what is there already."""
    written = Written()
    sink = sink_into(written)
    out(sink, 1, [result_batch(1, 2)])
    results = [result_batch(10, 11, 12, 13, 14)]
    sink.stage(2, results)
    state = json.loads(json.dumps(sink.state(results)))
    written.only = written_before
    with pytest.raises(StoreError, match=r"cannot write results as `any`: OSError"):
        let_out(sink, results)
    written.only = None
    again = sink_into(written)
    again.restore(state, out=False)
    left = [results[0].left(np.array([False, False, False, True, True]))] if lost else results
    let_out(again, left, as_staged=False)
    out(again, 3, [result_batch(20)])
    before = [10, 11, 12, 13, 14][:written_before]
    assert written.once() == [1, 2, *sorted({*before, *([13, 14] if lost else range(10, 15))}), 20]


def test_a_withheld_result_leaves_its_number_unused() -> None:
    """Otherwise the next batch would be taken for it, if some of it was written before a crash."""
    written = Written()
    sink = sink_into(written)
    out(sink, 1, [result_batch(1)], allowed=[])
    out(sink, 2, [result_batch(2)])
    assert [x["number"] for x in written.rows] == [2]


def test_notices_are_numbered_apart_from_results() -> None:
    written = Written()
    sink = sink_into(written)
    for version in (1, 2):
        out(sink, version, [notice(("ann",), "q", waits="why"), result_batch(version)])
    keys = [x["key"].partition("/")[2] for x in written.rows]
    assert keys == ["ann/q/notice 1", "ann/q/1", "ann/q/notice 2", "ann/q/2"]


def test_after_forget_keys_differ() -> None:
    written = Written()
    for _ in range(2):
        sink = sink_into(written)
        sink.restore({}, out=False)
        out(sink, 1, [result_batch(1)])
    assert len({x["key"] for x in written.rows}) == 2


def test_the_rights_of_the_moment_of_writing_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written()
    bench = Bench(tmp_path, stream("s", "x INT"))
    bench.query("q", "SELECT x FROM s")
    bench.subscribed(ann=("q", "r1,r2"), bob=("q", "r1"))
    pipeline = bench.begin(sink := SparkSink(written, "any", {}, bench))
    stage = sink.stage

    def revoked(*given: Any) -> None:
        stage(*given)
        bench.subscribed(ann=("q", "r2"), bob=("q", "r1"))

    monkeypatch.setattr(sink, "stage", revoked)
    bench.take("s", ("r1", 1), ("r2", 2), ("r1", 3))
    pipeline.close()
    seen = [(x["user"], x["number"], json.loads(x["value"])["values"]) for x in written.rows]
    assert seen == [("ann", 2, {"x": 2}), ("bob", 1, {"x": 1}), ("bob", 2, {"x": 3})]


def test_numbers_of_results_do_not_reveal_what_was_hidden_when_they_were_computed() -> None:
    """bob's second result is its second, however many it may not see are in between; above, and here after a change."""
    found = result_batch(1, 2, 3).where(np.array([True, False, True]))
    assert found.places is None
    once = found.left(np.array([False, True]))
    assert once.places is not None and once.places.tolist() == [1]
    again = replace(once).left(np.array([True]))
    assert again.places is not None and again.places.tolist() == [1]


def test_spark_writes_what_it_can_write(spark: SparkSession, tmp_path: Path) -> None:
    sink = SparkSink(lambda: spark, "parquet", {"path": str(tmp_path / "out")}, Here())
    out(sink, 1, [result_batch(1, 2, to=("ann", "bob"))])
    out(sink, 2, [result_batch(3)])
    found = spark.read.parquet(str(tmp_path / "out"))
    rows = sorted((x["user"], x["number"], json.loads(x["value"])["values"]["a"]) for x in found.collect())
    assert rows == [("ann", 1, 1), ("ann", 2, 2), ("ann", 3, 3), ("bob", 1, 1), ("bob", 2, 2)]
    assert dict(found.dtypes)["time"] == "timestamp"
    assert [x[0] for x in found.selectExpr("unix_millis(time)").distinct().collect()] == [1_700_000_000_000]
    bad = SparkSink(lambda: spark, "no such format", {"password": "secret"}, Here())
    with pytest.raises(StoreError) as caught:
        out(bad, 1, [result_batch(1)])
    assert caught.value.message == "cannot write results as `no such format`: DATA_SOURCE_NOT_FOUND"


def test_options_are_shown_nowhere() -> None:
    target = SparkTarget("jdbc", {"password": "secret"})
    source = StreamSource(StreamDescriptor("s", ()), "jdbc", {"password": "secret"})
    assert "secret" not in f"{target}{target!r}{source}{source!r}"
