"""`headgate bench latency`: from the arrival of a tuple to its delivery, and what that time consists of.

A thread writes a file every tenth of a second, hidden until it is complete; Headgate follows the folder as a service
does, and a subscriber waits at a mailbox. A tuple's time runs from when its file got its name until its result is in
the mailbox. The parts are those of one micro-batch: Spark's work before it hands the batch over (finding files,
recording which ones, planning), reading, the operators, state on disk, delivery, and Spark's record that the batch is
done, for which the next one waits. A file that arrives during a batch waits for its end. The first file is waited for
and not counted: it exists when the queries start.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from argon2 import PasswordHasher
from pyspark.sql import SparkSession

from headgate.access.passwords import Passwords
from headgate.bench.harness import Plot, Progress, Report, Row, environment
from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import Verify
from headgate.ingress.spark import spark_session
from headgate.recovery.pipeline import Pipeline
from headgate.recovery.query_graph import QueryGraph
from headgate.recovery.state import StateFolder
from headgate.service import Headgate
from headgate.service.runs import Processing
from headgate.service.streams import SparkBatch

RATES = (1_000, 10_000, 100_000)
SECONDS, QUICK_SECONDS, WARM_SECONDS = 30.0, 4.0, 5.0
EVERY = 0.1
_PATIENCE = 60.0
_SECRET = "a password for benches"  # noqa: S105
_ROLES = ("R1", "R2", "R1 | R2")
_SCRIPT = """CREATE ROLE R1; CREATE ROLE R2;
CREATE STREAM s (file INT, k INT, v INT, roles STRING) ROLES FROM roles SOURCE parquet (path = '{path}');
GRANT VIEW OBJECT, READ TUPLE ON STREAM s TO PUBLIC;
CREATE QUERY q AS SELECT file, k, v WHERE v > 0 FROM s; START QUERY q;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM q TO PUBLIC;
CREATE USER ann PASSWORD '{secret}'; GRANT ROLE R1 TO USER ann; GRANT ROLE R2 TO USER ann;"""

PARTS: Mapping[str, tuple[type, str]] = {
    "reading": (SparkBatch, "decoded"),
    "kernel": (QueryGraph, "batch"),
    "state": (StateFolder, "save"),
    "delivery": (Pipeline, "_deliver"),
    "batch": (Pipeline, "take"),
}
"""What is timed inside a batch, the whole of it last."""

_BEFORE = ("latestOffset", "getOffset", "getBatch", "walCommit", "queryPlanning")
_AFTER = ("commitOffsets", "commitBatch")


class Enough(Exception):
    """Everything that was sent has arrived."""


@dataclass
class Watch(Mailbox):
    """A mailbox that records when each file's tuples came, and keeps nothing."""

    flows: threading.Event = field(default_factory=threading.Event)
    arrived: list[tuple[float, Sequence[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def publish(self, verify: Verify) -> None:
        verify()
        now = time.perf_counter()
        self.arrived += [(now, result_batch.values[0].to_numpy()) for result_batch in self._ready]
        if self._ready:
            self.flows.set()

    @property
    def tuples(self) -> int:
        return sum(len(files) for _, files in self.arrived)


@dataclass
class Sender:
    """Writes files at a steady rate from a thread of its own, once the first has arrived; `named` says when each got
    its name."""

    folder: Path
    rate: int
    files: int
    flows: threading.Event
    named: list[float] = field(default_factory=list)

    @property
    def each(self) -> int:
        return max(1, round(self.rate * EVERY))

    def send(self) -> None:
        rng = np.random.default_rng(self.rate)
        roles = pa.array([_ROLES[i % len(_ROLES)] for i in range(self.each)])
        begin = time.perf_counter()
        for number in range(self.files):
            if number == 1:
                self.flows.wait(_PATIENCE)
                begin = time.perf_counter()
            table = pa.table(
                {
                    "file": np.full(self.each, number, np.int32),
                    "k": rng.integers(0, 1_000, self.each, dtype=np.int32),
                    "v": rng.integers(1, 200, self.each, dtype=np.int32),
                    "roles": roles,
                }
            )
            hidden = self.folder / f".{number:06}.parquet"
            pq.write_table(table, hidden)
            time.sleep(max(0.0, begin + number * EVERY - time.perf_counter()))
            hidden.rename(self.folder / f"{number:06}.parquet")
            self.named.append(time.perf_counter())


@contextmanager
def timed(owner: type, name: str, found: list[float]) -> Iterator[None]:
    """Collects the seconds that each call of a method takes."""
    method = getattr(owner, name)

    def measured(*args: object, **more: object) -> object:
        begin = time.perf_counter()
        try:
            return method(*args, **more)
        finally:
            found.append(time.perf_counter() - begin)

    setattr(owner, name, measured)
    try:
        yield
    finally:
        setattr(owner, name, method)


@dataclass(frozen=True)
class Followed:
    """Milliseconds of every tuple that was sent, the parts of batches, and how many batches there were."""

    latencies: Sequence[float]
    parts: Mapping[str, float]
    batches: int


def prepared(folder: Path, home: Path) -> Headgate:
    headgate = Headgate(
        f"sqlite:///{home / 'headgate.db'}", b"a key for benches", passwords=Passwords(PasswordHasher(1, 8, 1))
    )
    headgate.initialise("joe", _SECRET)
    headgate.execute(headgate.login("joe", _SECRET), _SCRIPT.format(path=folder, secret=_SECRET))
    headgate.execute(headgate.login("ann", _SECRET), "SUBSCRIBE TO joe.q")
    return headgate


def followed(spark: SparkSession, home: Path, rate: int, seconds: float) -> Followed:
    """Sends for so many seconds, and follows until everything has arrived."""
    folder = home / "stream"
    folder.mkdir(parents=True)
    watch = Watch()
    sender = Sender(folder, rate, round(seconds / EVERY), watch.flows)
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    headgate = prepared(folder, home)
    processing = Processing(headgate, home / "engine", [watch])
    thread = threading.Thread(target=sender.send)
    expected, latest = sender.each * sender.files, time.perf_counter() + seconds + _PATIENCE

    def measure() -> None:
        if watch.tuples >= expected or time.perf_counter() > latest:
            raise Enough

    try:
        with ExitStack() as stack:
            for name, (owner, method) in PARTS.items():
                stack.enter_context(timed(owner, method, parts[name]))
            thread.start()
            stack.enter_context(suppress(Enough))
            processing.follow(measure)
        progress = [x for query in spark.streams.active for x in query.recentProgress]
    finally:
        thread.join()
        processing.close()
        headgate.close()
    return Followed(latencies(watch.arrived, sender.named), _medians(parts, progress), len(parts["batch"]))


def latencies(arrived: Sequence[tuple[float, Sequence[int]]], named: Sequence[float]) -> list[float]:
    """Milliseconds from a file's name to the mailbox, for each tuple except those of the first file."""
    later = [(now, files[files > 0]) for now, files in ((now, np.asarray(files)) for now, files in arrived)]
    found = [1000 * (now - np.array(named)[files]) for now, files in later]
    return [float(x) for x in np.concatenate(found)] if found else []


def _medians(parts: Mapping[str, Sequence[float]], progress: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Milliseconds; batches without tuples do not count."""
    spent = [found for x in progress if "addBatch" in (found := _durations(x))]

    def of_spark(names: Sequence[str]) -> float:
        return float(np.median([sum(x.get(name, 0) for name in names) for x in spent])) if spent else float("nan")

    ours = {name: 1000 * float(np.median(x)) if x else float("nan") for name, x in parts.items()}
    return {"Spark before": of_spark(_BEFORE), **ours, "Spark after": of_spark(_AFTER)}


def _durations(progress: Mapping[str, object]) -> Mapping[str, int]:
    found = progress["durationMs"]
    return found if isinstance(found, Mapping) else {}


def row(rate: int, found: Followed) -> Row:
    times = np.array(found.latencies)
    median, most = np.percentile(times, [50, 95]) if len(times) else (float("nan"), float("nan"))
    return {
        "tuples/s": rate,
        "tuples": len(times),
        "median ms": round(float(median), 1),
        "95 of 100 below": round(float(most), 1),
        "tuples in a batch": round(len(times) / max(1, found.batches)),
        **{name: round(value, 1) for name, value in found.parts.items()},
    }


def run(quick: bool, progress: Progress) -> Report:
    seconds = QUICK_SECONDS if quick else SECONDS
    progress.expect(len(RATES) + 1)
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        progress.step("warming up")
        spark = spark_session(folder / "session")  # one for all that follows
        followed(spark, folder / "warm", RATES[-1], WARM_SECONDS)
        for rate in RATES:
            progress.step(f"{rate:,} tuples per second for {seconds:.0f} s")
            table.append(row(rate, followed(spark, folder / str(rate), rate, seconds)))
    return Report(
        "From arrival to delivery, and the parts of a micro-batch in milliseconds (medians)",
        table,
        notes=[
            f"A file every {1000 * EVERY:.0f} ms; a tuple's time runs from when its file got its name to the mailbox.",
            "batch: all that is ours, with reading, kernel, state and delivery in it.",
            "Spark before: finding files, writing down which, planning. Spark after: its note that the batch is done.",
        ],
        environment=environment("pyspark", "pyarrow", "numpy"),
        plots=[plot(table)],
    )


def plot(table: Sequence[Row]) -> Plot:
    names = {"median": "median ms", "95 of 100 below": "95 of 100 below", "ours of a micro-batch": "batch"}
    series = {
        name: [(float(str(row["tuples/s"])), float(str(row[column]))) for row in table]
        for name, column in names.items()
    }
    return Plot("From arrival to delivery", "tuples per second", "milliseconds", series, log_x=True)
