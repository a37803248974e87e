"""Sources that cannot be read: they end only their readers, users without rights learn nothing of it, and they are
tried again with growing pauses.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from worlds.harness import Bench, ReadByDriver, stream

from headgate.clock import SystemClock
from headgate.errors import SourceError
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.sources import StreamSource, read_stream, read_table
from headgate.labels import Clearance
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.secure import Mode
from headgate.recovery.messages import CONTINUES, UNREAD, WAITS
from headgate.recovery.pipeline import Pipeline
from headgate.service.streams import LONGEST_PAUSE, Runner, checkpoint_name
from headgate.testing import ManualClock

# Who is told ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Bench]:
    """Streams a and b, a query over each, one over both, one over the results of that, and one that shares."""
    found = Bench(tmp_path, stream("a", "x INT"), stream("b", "x INT"))
    found.query("over_a", "SELECT x FROM a")
    found.query("over_b", "SELECT x FROM b")
    found.query("both", "SELECT l.x FROM a [RANGE 1 HOUR] l, b [RANGE 1 HOUR] r WHERE l.x = r.x")
    found.query("again", "SELECT x FROM out.both")
    found.query("either", "SELECT x, COUNT(*) AS n FROM a [RANGE 1 HOUR] GROUP BY x UNION ALL "
                "SELECT x, COUNT(*) AS n FROM b [RANGE 1 HOUR] GROUP BY x")  # fmt: skip
    yield found
    if found.pipeline is not None:
        found.pipeline.close()


def may_read(bench: Bench, name: str, *streams: str) -> None:
    """From now on this subscriber may read these streams and no others."""
    subscribers = []
    for x in bench.now.subscribers:
        if x.name == name and x.clearance is not None:
            clearance = Clearance(x.clearance.roles, x.clearance.level, frozenset(streams))
            subscribers.append(type(x)(x.name, x.query, clearance))
        else:
            subscribers.append(x)
    bench.now = CatalogSnapshot(bench.now.rules, bench.now.descriptors, bench.now.queries, tuple(subscribers))


def words(bench: Bench, who: str, query: str) -> list[dict[str, str]]:
    return [x.word for x in bench.mailbox.fetch(who, query, bench.now) if x.word]


def test_only_readers_of_the_stream_end_and_its_owner_gets_the_reason(two: Bench) -> None:
    two.subscribed(ann=("over_a", "r"), bob=("over_b", "r"), cyd=("both", "r"), dan=("again", "r"))
    two.begin(two.files())
    two.take("a", ("r", 1), ("r", 2))
    two.pipeline.end({"b": "cannot read stream b as `json`: PATH_NOT_FOUND"})  # type: ignore[union-attr]
    assert two.fetched("ann", "over_a") == [(1,), (2,)]
    for who, query in (("bob", "over_b"), ("cyd", "both"), ("dan", "again")):
        assert words(two, who, query) == [{"ended": UNREAD}]
        assert (two.home / "out" / who / f"{query}.jsonl").read_text() == json.dumps({"ended": UNREAD}) + "\n"
    assert not [x for x in (two.home / "out" / "ann").iterdir() if "ended" in x.read_text()]
    told = json.loads((two.home / "out" / "owner" / "b.rejected.jsonl").read_text())
    assert told == {"reason": "cannot read stream b as `json`: PATH_NOT_FOUND", "values": {}}
    assert "stream b" not in UNREAD + WAITS


def test_a_query_that_ended_emits_no_incomplete_results(two: Bench) -> None:
    """Counts over half of a window would come out at the end."""
    two.subscribed(ann=("either", "r"))
    two.begin()
    two.take("a", ("r", 1))
    two.pipeline.end({"b": "gone"})  # type: ignore[union-attr]
    assert two.fetched("ann", "either") == []


@pytest.mark.parametrize("unread", [{"b": "gone"}, {}], ids=["unreadable", "readable"])
def test_a_user_without_rights_to_the_stream_cannot_tell_whether_it_is_available(
    two: Bench, unread: dict[str, str]
) -> None:
    """The attack: a query over a stream of one's own and one that is hidden, as a probe."""
    two.subscribed(eve=("either", "r"), ann=("over_b", "r"))
    may_read(two, "eve", "a")
    two.begin(two.files())
    two.take("a", ("r", 1))
    two.pipeline.wait(unread)  # type: ignore[union-attr]
    two.take("a", ("r", 1))
    two.pipeline.end(unread)  # type: ignore[union-attr]
    seen = [x["values"] for x in map(json.loads, (two.home / "out" / "eve" / "either.jsonl").read_text().splitlines())]
    assert seen == [{"x": 1, "n": 1}, {"x": 1, "n": 2}]
    assert two.fetched("eve", "either") == [(1, 1), (1, 2)]
    assert bool(words(two, "ann", "over_b")) == bool(unread)


def test_in_a_cumulative_query_only_readers_of_the_stream_get_the_notice(tmp_path: Path) -> None:
    bench = Bench(tmp_path, stream("a", "x INT"), stream("b", "x INT"))
    bench.query("both", "SELECT l.x FROM a [UNBOUNDED] l, b [UNBOUNDED] r WHERE l.x = r.x", mode=Mode.CUMULATIVE)
    bench.subscribed(eve=("both", "r"), ann=("both", "r"))
    may_read(bench, "eve", "a")
    pipeline = bench.begin()
    bench.take("a", ("r", 1))
    pipeline.wait({"b": "gone"})
    pipeline.end({"b": "gone"})
    assert words(bench, "eve", "both") == []
    assert words(bench, "ann", "both") == [{"waits": WAITS}, {"ended": UNREAD}]
    pipeline.close()


def test_queries_that_wait_go_on_where_they_were(two: Bench) -> None:
    two.subscribed(ann=("both", "r"))
    pipeline = two.begin(two.files())
    two.take("a", ("r", 1), ("r", 2))
    pipeline.wait({"b": "gone"})
    two.take("b", ("r", 2))
    pipeline.end()
    assert two.fetched("ann", "both") == [(2,)]
    lines = [json.loads(x) for x in (two.home / "out" / "ann" / "both.jsonl").read_text().splitlines()]
    assert lines[:2] == [{"waits": WAITS}, {"continues": CONTINUES}] and lines[2]["values"] == {"x": 2}


def test_everybody_who_was_told_is_told_when_the_stream_can_be_read_again(two: Bench) -> None:
    """Also if no tuple comes; once, and before the first result."""
    two.subscribed(ann=("over_a", "r"), bob=("over_b", "r"), cyd=("both", "r"))
    pipeline = two.begin(two.files())
    pipeline.wait({"a": "gone", "b": "gone"})
    pipeline.resume({"a"})
    assert words(two, "ann", "over_a") == [{"waits": WAITS}, {"continues": CONTINUES}]
    assert words(two, "cyd", "both") == [{"waits": WAITS}]  # b is still missing
    two.take("b", ("r", 2))
    two.take("b", ("r", 3))
    lines = [json.loads(x) for x in (two.home / "out" / "bob" / "over_b.jsonl").read_text().splitlines()]
    assert lines[:2] == [{"waits": WAITS}, {"continues": CONTINUES}] and len(lines) == 4
    assert words(two, "cyd", "both") == [{"continues": CONTINUES}]
    told = (two.home / "out" / "owner" / "b.rejected.jsonl").read_text().splitlines()
    assert [json.loads(x)["reason"] for x in told] == ["gone", CONTINUES]


# What harms whom ------------------------------------------------------------------------------------------------------


class Broken(ReadByDriver):
    """A batch whose file turns out to be none, right away or only when it is read once more as a whole."""

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> None:
        pass

    def all_rows(self) -> pa.Table:
        raise SourceError("cannot read stream b any further")


def test_an_unreadable_batch_harms_no_other_and_is_taken_later(two: Bench) -> None:
    two.subscribed(ann=("over_a", "r"), bob=("over_b", "r"))
    pipeline = two.begin()
    with pytest.raises(SourceError):
        pipeline.take("b", 0, Broken())
    assert pipeline.done("b") == -1
    two.take("a", ("r", 1))
    two.take("b", ("r", 2))
    assert two.fetched("ann", "over_a") == [(1,)] and two.fetched("bob", "over_b") == [(2,)]


def test_a_batch_that_fails_while_everything_waits_for_it_harms_no_other(
    two: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights changed meanwhile, so it is read as a whole under the lock."""
    two.subscribed(ann=("over_a", "r"), bob=("over_b", "r"))
    pipeline = two.begin()
    monkeypatch.setattr(pipeline, "_pushdown", lambda _: None)
    with pytest.raises(SourceError):
        pipeline.take("b", 0, Broken())
    monkeypatch.undo()
    assert pipeline.done("b") == -1 and pipeline.counts.batches == 0
    two.take("a", ("r", 1))
    assert two.fetched("ann", "over_a") == [(1,)]


# Trying again ---------------------------------------------------------------------------------------------------------


class Query:
    """A streaming query that fails or goes on, as the test says."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.stopped = False
        self.lastProgress: object = None

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self.error is None

    def awaitTermination(self, _: float | None = None) -> bool:  # noqa: N802
        if self.error is not None:
            raise self.error
        return False

    def stop(self) -> None:
        self.stopped = True


class Tried(Runner):
    """A runner without Spark, whose sources the test makes fail."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(lambda: None, Path(), None, clock)  # type: ignore[arg-type,return-value]
        self.bad = {"b"}
        self.tries: list[tuple[str, float]] = []

    def _start(self, source: StreamSource, *, finite: bool) -> Query:  # type: ignore[override]  # noqa: ARG002
        self.tries.append((source.name, self._clock.now()))
        if source.name in self.bad:
            raise SourceError(f"stream {source.name} cannot be read")
        return Query()


SOURCES = {x: StreamSource(StreamDescriptor(x, (("x", Type.INT),)), "json") for x in ("a", "b")}


def test_a_source_is_tried_again_with_growing_pauses_and_nothing_else_waits() -> None:
    clock = ManualClock(0.0)
    runner = Tried(clock)
    for _ in range(400):
        runner.read(SOURCES)
        assert not runner.wait(0)
        clock.advance(1.0)
    at = [time for name, time in runner.tries if name == "b"]
    pauses = [later - sooner for sooner, later in pairwise(at)]
    assert pauses == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, 60, 60, 60, 60][: len(pauses)] and len(pauses) > 8
    assert [name for name, _ in runner.tries].count("a") == 1
    assert {name: error.message for name, error in runner.failed.items()} == {"b": "stream b cannot be read"}


def test_a_source_that_works_again_is_sound_and_one_without_readers_is_forgotten() -> None:
    clock = ManualClock(0.0)
    runner = Tried(clock)
    runner.read(SOURCES)
    runner.bad.clear()
    clock.advance(1.5)
    runner.read(SOURCES)
    assert runner.failed.keys() == {"b"}  # it is being tried
    runner._queries["b"].error = ValueError("once more")  # type: ignore[attr-defined]
    runner.wait(0)
    assert runner.failed["b"].message == "cannot read stream b any further: ValueError"
    clock.advance(2.5)
    runner.read(SOURCES)
    clock.advance(4.5)
    runner.read(SOURCES)
    assert runner.failed.keys() == {"b"}  # it has not been looked at yet, however long that takes
    runner._queries["b"].lastProgress = {"durationMs": {}}  # type: ignore[misc,assignment]
    runner.read(SOURCES)
    assert runner.failed == {}
    runner.bad.add("b")
    runner._queries["b"].error = ValueError("later")  # type: ignore[attr-defined]
    runner.wait(0)
    runner.read({"a": SOURCES["a"]})
    assert runner.failed == {}


def test_a_fault_of_the_engine_still_ends_everything() -> None:
    runner = Tried(ManualClock(0.0))
    runner.read(SOURCES)
    runner._faults["a"] = KeyError("a bug")
    runner._queries["a"].error = ValueError("Spark says so")  # type: ignore[attr-defined]
    with pytest.raises(KeyError, match="a bug"):
        runner.wait(0)


def test_a_source_read_to_its_end_is_not_tried_again() -> None:
    clock = ManualClock(0.0)
    runner = Tried(clock)
    runner.read(SOURCES, finite=True)
    clock.advance(100.0)
    runner.read(SOURCES, finite=True)
    assert sorted(name for name, _ in runner.tries) == ["a", "b"]


# Names of checkpoints -------------------------------------------------------------------------------------------------


def test_the_longest_names_have_checkpoints_and_different_names_different_ones() -> None:
    long = "é" * 128
    names = [f"{long}.{long}", f"{long}.{long[:-1]}", "joe.a/b", "joe.a_b", "joe.a b", "..", ".", "", "_x", "joe.HR"]
    found = [checkpoint_name(name) for name in names]
    assert len(set(found)) == len(names)
    assert all(len(name.encode()) < 130 and name[0] not in "._" and "/" not in name for name in found)
    assert found[-1] == f"joe.HR-{hashlib.sha256(b'joe.HR').hexdigest()}"


# On Spark -------------------------------------------------------------------------------------------------------------


def spark_pipeline(bench: Bench, home: Path) -> Pipeline:
    return Pipeline(
        home,
        bench,
        lambda _, program, schema: LocalExecutor(program, schema, evaluate),
        [bench.mailbox],
        SystemClock(),
    )


def test_missing_files_and_folders_stop_only_their_streams(spark: SparkSession, tmp_path: Path) -> None:
    long = f"{'é' * 128}.{'é' * 128}"
    bench = Bench(tmp_path, stream("a", "x INT"), stream("b", "x INT"), stream("c", "x INT"))
    bench.descriptors = {
        x: StreamDescriptor(x, (("x", Type.INT),), None, {}) for x in ("a", "b", "c")
    } | {long: StreamDescriptor(long, (("x", Type.INT),), None, {})}  # fmt: skip
    bench.streams.append(stream(long, "x INT"))
    for name in ("a", "b", "c"):
        bench.query(f"over_{name}", f"SELECT x FROM {name}")
    bench.subscribed(ann=("over_a", ""), bob=("over_b", ""), cyd=("over_c", ""))
    for name in ("a", "b", "long"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "1.json").write_text('{"x": 1}\n')
    (tmp_path / "b" / "1.parquet").write_text("this is no Parquet\n")
    (tmp_path / "long" / "1.json").write_text('{"x": 1}\n')
    pipeline = spark_pipeline(bench, tmp_path / "home")
    try:
        runner = Runner(lambda: spark, tmp_path / "home", pipeline)
        sources = {
            "a": StreamSource(bench.descriptors["a"], "json", {"path": str(tmp_path / "a")}),
            "b": StreamSource(bench.descriptors["b"], "parquet", {"path": str(tmp_path / "b")}),
            "c": StreamSource(bench.descriptors["c"], "json", {"path": str(tmp_path / "gone")}),
            long: StreamSource(bench.descriptors[long], "json", {"path": str(tmp_path / "long")}),
        }
        runner.read(sources, finite=True)
        assert runner.wait()
        assert runner.failed.keys() == {"b", "c"}
        assert runner.failed["c"].message == f"cannot read stream c as `json`: PATH_NOT_FOUND: `{tmp_path}/gone`"
        assert runner.failed["b"].message == (
            f"cannot read stream b any further: file `{tmp_path}/b/1.parquet`: it is not Parquet"
        )
        assert all("\n" not in error.message for error in runner.failed.values())
        assert bench.fetched("ann", "over_a") == [(1,)]
        runner.stop()
    finally:
        pipeline.close()


@pytest.mark.parametrize(
    ("header", "seen"),
    [("roles,note", [("nurse",)]), ("note,roles", [("nurse",)]), ("roles", None), ("roles,note,roles", None)],
)
def test_the_header_names_the_label_column(
    spark: SparkSession, tmp_path: Path, header: str, seen: list[tuple[str]] | None
) -> None:
    """Attack: a file with its columns in another order. Read by their places, what is for doctors went to a nurse."""
    missing = {"roles": "column `note` nowhere", "roles,note,roles": "column `roles` twice"}
    bench = Bench(tmp_path, stream("a", "note STRING"))
    columns = (("roles", Type.STRING), ("note", Type.STRING))
    bench.descriptors = {"a": StreamDescriptor("a", columns, None, {"ROLES": "roles"})}
    bench.query("q", "SELECT note FROM a")
    bench.subscribed(ann=("q", "nurse"))
    (tmp_path / "a").mkdir()
    rows = "nurse,nurse\nnurse,doctor\n" if header == "note,roles" else "nurse,nurse\ndoctor,nurse\n"
    (tmp_path / "a" / "1.csv").write_text(f"{header}\n{rows}")
    pipeline = spark_pipeline(bench, tmp_path / "home")
    try:
        runner = Runner(lambda: spark, tmp_path / "home", pipeline)
        source = StreamSource(bench.descriptors["a"], "csv", {"path": str(tmp_path / "a"), "header": "true"})
        runner.read({"a": source}, finite=True)
        assert runner.wait()
        assert bench.fetched("ann", "q") == (seen or [])
        said = [error.message for error in runner.failed.values()]
        file = f"cannot read stream a any further: file `{tmp_path}/a/1.csv`: its header has"
        assert said == ([] if seen else [f"{file} {missing[header]}"])
        runner.stop()
    finally:
        pipeline.close()


def test_a_column_of_another_type_is_named(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1], pa.int64())}), tmp_path / "1.parquet")
    source = StreamSource(StreamDescriptor("a", (("x", Type.INT),), None, {}), "parquet", {"path": str(tmp_path)})
    with pytest.raises(SourceError) as caught:
        read_table(spark, source)
    assert caught.value.message.endswith(f": `{tmp_path}/1.parquet`: column x is INT64 there, int in the stream")


def test_a_folder_removed_while_it_is_followed_is_reported_and_followed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark follows it as if it were empty."""
    bench = Bench(tmp_path, stream("a", "x INT"))
    bench.descriptors = {"a": StreamDescriptor("a", (("x", Type.INT),), None, {})}
    bench.query("q", "SELECT x FROM a")
    bench.subscribed(ann=("q", ""))
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "1.json").write_text('{"x": 1}\n')
    pipeline, clock = spark_pipeline(bench, tmp_path / "home"), ManualClock(0.0)
    sources = {"a": StreamSource(bench.descriptors["a"], "json", {"path": str(folder)})}
    runner = Runner(lambda: spark, tmp_path / "home", pipeline, clock)

    def until(tuples: int) -> None:
        end = time.monotonic() + 60
        while (pipeline.counts.tuples["a"] < tuples or runner.failed) and time.monotonic() < end:
            runner.wait(0.1)  # a batch is counted before it is done
        assert pipeline.counts.tuples["a"] == tuples

    try:
        runner.read(sources)
        until(1)
        folder.rename(tmp_path / "elsewhere")
        runner.read(sources)
        assert runner.failed["a"].message == f"cannot read stream a any further: `{folder}` is missing"
        folder.mkdir()
        (folder / "2.json").write_text('{"x": 2}\n')
        clock.advance(5.0)
        runner.read(sources)
        until(2)
        assert runner.failed == {}
        assert runner.changed() == {}
        os.utime(folder / "2.json", (time.time() + 10, time.time() + 10))
        assert runner.changed() == {"a": [str(folder / "2.json")]} and runner.changed() == {}
    finally:
        runner.stop()
        pipeline.close()


RATE = (("timestamp", Type.TIMESTAMP), ("value", Type.BIGINT))


def test_a_rate_source_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    descriptor = StreamDescriptor("r", RATE, "timestamp", {}, skew=3_600_000)
    bench = Bench(tmp_path, stream("r", "x INT"))
    bench.streams[0] = type(bench.streams[0])("r", RATE)
    bench.descriptors = {"r": descriptor}
    bench.query("all", "SELECT value FROM r")
    bench.subscribed(ann=("all", ""))
    pipeline = spark_pipeline(bench, tmp_path / "home")
    runner = Runner(lambda: spark, tmp_path / "home", pipeline)
    found: list[tuple[object, ...]] = []
    try:
        source = StreamSource(descriptor, "rate", {"rowsPerSecond": "100"})
        while len(found) < 100:
            runner.read({"r": source})
            runner.wait(0.1)
            assert runner.failed == {}
            found += bench.fetched("ann", "all")
    finally:
        runner.stop()
        pipeline.close()
    assert sorted(found)[:100] == [(number,) for number in range(100)]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ((("at", Type.TIMESTAMP),), "there is no column `at` TIMESTAMP"),
        ((("value", Type.INT),), "there is no column `value` INT"),
    ],
)
def test_columns_that_a_source_does_not_have_are_named(
    spark: SparkSession, columns: tuple[tuple[str, Type], ...], said: str
) -> None:
    with pytest.raises(SourceError) as caught:
        read_stream(spark, StreamSource(StreamDescriptor("r", columns, None, {}), "rate"))
    assert caught.value.message == f"cannot read stream r as `rate`: {said}"
    assert caught.value.hint == "such a source has the columns timestamp TIMESTAMP, value BIGINT"


def test_a_source_without_an_end_is_not_read_to_it(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    pipeline = spark_pipeline(bench, tmp_path / "home")
    runner = Runner(lambda: spark, tmp_path / "home", pipeline)
    try:
        runner.read({"r": StreamSource(StreamDescriptor("r", RATE, None, {}), "rate")}, finite=True)
        assert str(runner.failed["r"]) == "cannot read stream r to its end: `rate` has none (run it with --follow)"
    finally:
        pipeline.close()
