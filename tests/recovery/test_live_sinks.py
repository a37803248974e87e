"""Queries with deadlines, into every kind of sink: pieces that are committed together are there once, in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from egress.spark_stand_in import Written
from worlds.harness import stream
from worlds.live import LiveBench

from headgate.cql.deadlines import Deadline, Version
from headgate.egress.delivery_log import DeliveryLog, LogPosition
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import FileSink, Sink
from headgate.egress.spark_sink import SparkSink
from headgate.egress.version_results import check_one_each, joined
from headgate.labels import parse_label
from headgate.model.results import ResultBatch, delivered_results, notice
from headgate.recovery.destinations import Destinations
from recovery.test_deadlines import PLAIN, SLIDING, VITALS, Died, Fixed, dying
from recovery.test_fault_attacks import TOLD, faulty

BOTH = f"{PLAIN} UNION ALL SELECT MAX(patient), MAX(bp) FROM V [RANGE 1 SECOND SLIDE 1 SECOND]"
HALF = Deadline(2000, (Version(sample=0.5),))
SLIDES = Deadline(2000, (Version(slide=2000),))
Row = tuple[Any, ...]


@dataclass
class Reader:
    """What ann has in one kind of sink; notices are None. It outlives the process that writes there."""

    home: Path
    spark: Written = field(default_factory=Written)

    def sink(self, kind: str, bench: LiveBench) -> Sink:
        if kind == "log":
            return DeliveryLog(self.home / "log" / "results")
        if kind == "spark":
            return SparkSink(self.spark, "delta", {}, bench)
        return (ParquetSink if kind == "parquet" else FileSink)(self.home / "out", bench)

    def read(self, kind: str, sink: Sink) -> list[Row | None]:
        if isinstance(sink, DeliveryLog):
            whole, *others = [_in_log(sink, most) for most in (1000, 3, 1)]
            assert others == [whole, whole]
            return whole
        if kind == "parquet":
            files = sorted((self.home / "out" / "ann" / "q").glob("*.parquet"))
            return [tuple(row.values())[3:] for file in files for row in pq.read_table(file).to_pylist()]
        if kind == "spark":
            once = {row["key"]: json.loads(row["value"]) for row in self.spark.rows}
            return [_row(x) for x in once.values()]
        (file,) = (self.home / "out").rglob("q.jsonl")
        return [_row(json.loads(line)) for line in file.read_text().splitlines()]


def _row(line: dict[str, Any]) -> Row | None:
    return tuple(line["values"].values()) if "values" in line else None


def _in_log(log: DeliveryLog, most: int) -> list[Row | None]:
    """As readers do who fetch a few results at a time, and go on after the last."""
    found, position = list[Row | None](), LogPosition()
    while entries := log.read("ann", "q", position, most):
        for entry in entries:
            columns = [x.to_pylist() for x in entry.batch.values]
            found += [None] if entry.batch.word else list(zip(*columns, strict=True))
        position = entries[-1].positions[-1]
    return found


KINDS = ["files", "parquet", "spark", "log"]


def results(rows: Sequence[Row | None]) -> list[Row]:
    return [x for x in rows if x is not None]


def opened(home: Path, text: str, deadline: Deadline) -> LiveBench:
    bench = LiveBench(home, stream("V", VITALS))
    bench.fixed, bench.each, bench.storage = 0.001, 0.0001, None
    bench.due("q", text, deadline)
    bench.subscribed_at(ann=("q", "", "U"))
    return bench


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_that_are_committed_together_are_there_once_and_in_order(tmp_path: Path, kind: str) -> None:
    bench, reader, count = opened(tmp_path, PLAIN, HALF), Reader(tmp_path), 0
    bench.begin(sink := reader.sink(kind, bench))
    for n, size in enumerate((10, 2, 5)):
        bench.arrive(0.5 + 0.01 * n, "V", [("TRUE", count + i, 0) for i in range(size)])
        count += size
    bench.run(3)
    assert reader.read(kind, sink) == bench.values("ann") == [(n, 0) for n in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_notice_stands_between_the_results_before_it_and_those_after_it(tmp_path: Path, kind: str) -> None:
    """The last windows of a version come in the step in which the first results of the next one do."""
    bench, reader = opened(tmp_path, BOTH, Deadline(2000, (Version(columns=("patient",)),))), Reader(tmp_path)
    bench.begin(sink := reader.sink(kind, bench))
    bench.arrive(0, "V", [])
    bench.run(0.2)
    Fixed(bench, [1, 0, 0, 1])
    for n in range(1, 5):
        bench.arrive(0.7 * n, "V", [("TRUE", x, 10 * n + x) for x in range(4)])
    bench.run(5)
    bench.end()
    bench.fetch()
    wanted = [x.what if isinstance(x.what, tuple) else None for x in bench.by("ann")]
    full, less = ([(x, 10 * n + x) for x in (0, 1, 2, 3, 3)] for n in (1, 4)), [(x, None) for x in (0, 1, 2, 3, 3)]
    assert wanted == [*next(full), None, *less, *less, None, *next(full)]  # of each batch its tuples, then its window
    found = reader.read(kind, sink)
    assert results(found) == results(wanted)
    if kind in ("files", "log"):  # Parquet and Spark write notices elsewhere, or not in order
        assert found == wanted


CRASHES = {"committed, not delivered": (0, True), "before the second": (1, False), "the second": (1, True)}


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("versions", [[1, 1, 1], [1, 0, 0], [0, 0, 1]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_crash_every_sink_has_each_result_once(
    tmp_path: Path, kind: str, versions: list[int], crash: str
) -> None:
    slides = 0 in versions
    batches = [[("TRUE", n, 10 * n + x) for x in range(15)] for n in range(3)]

    def opened_at(home: Path, reader: Reader) -> tuple[LiveBench, Sink]:
        bench = opened(home, SLIDING if slides else PLAIN, SLIDES if slides else HALF)
        sink = reader.sink(kind, bench)
        bench.begin(sink)
        return bench, sink

    def until(home: Path, reader: Reader, commits: int | None = None) -> tuple[LiveBench, Sink]:
        bench, sink = opened_at(home, reader)
        bench.arrive(0, "V", [])
        bench.run(0.2)
        Fixed(bench, versions)
        for n, rows in enumerate(batches):
            bench.arrive(0.51 + 0.01 * n, "V", rows)
        bench.run(0.6)
        if commits is None:
            bench.run(3)
            bench.end()
            return bench, sink
        dying(bench, commits, committed=CRASHES[crash][1])
        with pytest.raises(Died):  # noqa: PT012 - in either of them
            bench.run(3)
            bench.end()
        assert bench.pipeline is not None
        bench.pipeline.close()
        return bench, sink

    whole, broken = Reader(tmp_path / "whole"), Reader(tmp_path / "broken")
    _, sink = until(whole.home, whole)
    wanted = results(whole.read(kind, sink))
    until(broken.home, broken, CRASHES[crash][0])
    bench, sink = opened_at(broken.home, broken)
    bench.end()
    assert results(broken.read(kind, sink)) == wanted
    assert wanted


def test_a_notice_keeps_its_place_when_its_results_are_permitted_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader stops after the results of a version. It is delivered again after a crash, and the reader may see only
    its notice by then."""
    bench = opened(tmp_path, PLAIN, HALF)
    bench.subscribed_at(ann=("q", "nurse", "U"))
    log = DeliveryLog(tmp_path / "log" / "results")
    pipeline = bench.begin(log)
    for n in range(3):
        bench.arrive(0.5 + 0.01 * n, "V", [("nurse", n, 0)])
    calls = iter(range(3))
    faulty(monkeypatch, "recovery.live_query.LiveQuery.run", lambda *_: next(calls) == 2)

    record = pipeline._committer.states.note_out

    def unrecorded(version: int, sinks: Any) -> None:
        if log.waits("ann", "q", LogPosition()):
            raise Died
        record(version, sinks)

    monkeypatch.setattr(pipeline._committer.states, "note_out", unrecorded)
    with pytest.raises(Died):
        bench.run(3)
    entry, ended = log.read("ann", "q", LogPosition(), 100)
    assert (len(entry.batch), ended.batch.word) == (2, {"ended": TOLD})
    pipeline.close()

    again = opened(tmp_path, PLAIN, HALF)
    again.subscribed_at(ann=("q", "", "U"))
    log = DeliveryLog(tmp_path / "log" / "results")
    again.begin(log)
    assert [x.batch.word for x in log.read("ann", "q", LogPosition(), 100)] == [{"ended": TOLD}]
    assert [x.batch.word for x in log.read("ann", "q", entry.positions[-1], 100)] == [{"ended": TOLD}]


def part(*values: int, to: tuple[str, ...], label: str) -> ResultBatch:
    size = len(values)
    none = np.zeros(size, np.int64)
    return ResultBatch(to, "q", none, none, (pa.array(values, pa.int32()),), none, (parse_label(label),))


def test_the_parts_of_each_reader_are_joined_with_their_labels() -> None:
    ended = notice(("ann",), "q", ended="it failed")
    parts = [part(1, to=("ann", "bob"), label="nurse"), part(2, to=("ann",), label="doctor"), ended]
    found = joined([*parts, part(3, to=("bob", "cid"), label="nurse")])
    check_one_each(found)
    assert [x.word for x in found if "ann" in x.subscribers] == [{}, {"ended": "it failed"}]
    rows = [(x.subscriber, *x.values, str(x.label)) for x in delivered_results(found)]
    assert sorted(rows) == [
        ("ann", 1, "nurse"), ("ann", 2, "doctor"), ("bob", 1, "nurse"), ("bob", 3, "nurse"), ("cid", 3, "nurse"),
    ]  # fmt: skip


def test_two_batches_for_one_reader_in_a_version_are_refused(tmp_path: Path) -> None:
    destinations = Destinations([FileSink(tmp_path, LiveBench(tmp_path, stream("V", VITALS)))])
    twice = [part(1, to=("ann", "bob"), label="nurse"), part(2, to=("ann",), label="nurse")]
    with pytest.raises(RuntimeError, match="two batches"):
        destinations.stage(1, twice, [])
