"""`headgate bench publish`: tuples into the durable log of a server, and on to a subscriber.

A server with TLS runs in this process, with Spark, as `headgate serve` does; senders and the subscriber are clients
over the loopback address. A tuple counts as published when its request is answered: then it is on the disk, after two
flushes. It counts as delivered when the subscriber has read it. Beside the log stands the disk itself: how often a
second a file of the same size can be written and flushed, which no durable log without grouping exceeds; and, where a
broker is installed, the same server with topics as its log, and Kafka's own producer, which sends the same rows to a
broker on the same disk.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from argon2 import PasswordHasher

from headgate.access.passwords import Passwords
from headgate.bench import producer
from headgate.bench.harness import Plot, Progress, Report, Row, environment
from headgate.client import Client, connect
from headgate.errors import HeadgateError
from headgate.server.serve import Serving, opened
from headgate.server.settings import Settings
from headgate.service import Headgate
from headgate.testing.kafka import KafkaBroker

SECONDS, QUICK_SECONDS = 10.0, 2.0
SIZES = (1, 100, 10_000)
SENDERS = (1, 8)
KINDS = [(form, size, senders) for form in ("JSON", "Arrow") for size in SIZES for senders in SENDERS]
LATENCIES, QUICK_LATENCIES = 100, 20
_PATIENCE = 120.0
_SECRET = "a password for benches"  # noqa: S105
_SCRIPT = f"""SET SYSTEM max_sessions = 1000; CREATE ROLE reader; CREATE ROLE writer;
CREATE STREAM s (n BIGINT, pat INT, rate INT) LABEL 'reader' SOURCE publish;
CREATE STREAM unread (n BIGINT, pat INT, rate INT) LABEL 'reader' SOURCE publish;
GRANT VIEW OBJECT, PUBLISH ON STREAM s, unread TO writer;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM s TO reader;
CREATE USER ann PASSWORD '{_SECRET}'; GRANT ROLE reader TO USER ann;
CREATE USER sam PASSWORD '{_SECRET}'; GRANT ROLE writer TO USER sam;"""


@dataclass(frozen=True)
class Bed:
    """A running server, for clients."""

    address: str
    home: Path

    def client(self, user: str) -> Client:
        return connect(self.address, user, _SECRET, certificate=self.home / "tls" / "authority.pem")


@contextmanager
def served(home: Path, brokers: str = "") -> Iterator[Bed]:
    """`brokers`: of Kafka, whose topics are the log; empty: files are."""
    home.mkdir(mode=0o700)
    headgate = Headgate(
        f"sqlite:///{home / 'headgate.db'}", b"a key for benches", passwords=Passwords(PasswordHasher(1, 8, 1))
    )
    headgate.initialise("joe", _SECRET)
    headgate.execute(headgate.login("joe", _SECRET), _SCRIPT)
    headgate.execute(headgate.login("ann", _SECRET), "SUBSCRIBE TO joe.s")
    (home / "headgate.db").chmod(0o600)
    addresses: list[str] = []
    listening = threading.Event()

    def told(address: str) -> None:
        addresses.append(address)
        listening.set()

    with opened(home, headgate, Settings(port=0, kafka_servers=brokers)) as parts:
        serving = Serving(parts, home, told)
        thread = threading.Thread(target=serving.run)
        thread.start()
        try:
            listening.wait(_PATIENCE)
            _until(lambda: parts.engine.is_ready)
            yield Bed(addresses[0], home)
        finally:
            serving.stop()
            thread.join()
            headgate.close()


def _until(enough: Callable[[], bool]) -> None:
    latest = time.perf_counter() + _PATIENCE
    while not enough():
        if time.perf_counter() > latest:
            raise TimeoutError("the server does not answer in time")
        time.sleep(0.02)


def table(first: int, size: int) -> pa.Table:
    numbers = np.arange(first, first + size)
    return pa.table({"n": numbers, "pat": (numbers % 1000).astype(np.int32), "rate": (numbers % 200).astype(np.int32)})


def requests(form: str, size: int) -> object:
    """What one request sends."""
    return table(0, size) if form == "Arrow" else table(0, size).to_pylist()


def published(bed: Bed, form: str, size: int, senders: int, seconds: float, what: str = "into the log") -> Row:
    """Sends for so many seconds to a stream that nobody reads: the log alone."""
    times: list[list[float]] = [[] for _ in range(senders)]
    ready, stop = threading.Barrier(senders + 1), threading.Event()

    def send(me: int) -> None:
        rows = requests(form, size)
        with bed.client("sam") as sam:
            sam.publish("joe.unread", rows)
            ready.wait()
            while not stop.is_set():
                begin = time.perf_counter()
                sam.publish("joe.unread", rows)
                times[me].append(time.perf_counter() - begin)

    threads = [threading.Thread(target=send, args=(me,)) for me in range(senders)]
    for thread in threads:
        thread.start()
    ready.wait()
    begin = time.perf_counter()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - begin
    milliseconds = [1000 * x for some in times for x in some]
    return _sent(what, form, size, senders, passed, milliseconds)


def _sent(what: str, form: str, size: int, senders: int, passed: float, milliseconds: Sequence[float]) -> Row:
    return {
        "what": what,
        "form": form,
        "rows in a request": size,
        "senders": senders,
        "tuples/s": round(size * len(milliseconds) / passed),
        "requests/s": round(len(milliseconds) / passed),
        "median ms": round(float(np.median(milliseconds)), 1),
        "95 of 100 below": round(float(np.percentile(milliseconds, 95)), 1),
    }


def into_topics(seconds: float, latencies: int, progress: Progress) -> Iterator[Row]:
    """The server with topics as its log, with the same brokers."""
    for where, settings in producer.BROKERS.items():
        progress.step(f"a server with topics, acknowledged {where}")
        with (
            KafkaBroker(None, None, **settings) as broker,
            tempfile.TemporaryDirectory() as name,
            served(Path(name) / "home", broker.servers) as bed,
        ):
            for form, size, senders in KINDS:
                yield published(bed, form, size, senders, seconds, f"into topics, acknowledged {where}")
            with subscribed(bed) as ann:
                yield latency(bed, ann, latencies, f"latency through a topic, acknowledged {where}")


def into_kafka(seconds: float, progress: Progress) -> Iterator[Row]:
    """Kafka's producer, with brokers that acknowledge what is on the disk, or in memory."""
    for where, settings in producer.BROKERS.items():
        progress.step(f"Kafka, acknowledged {where}")
        with KafkaBroker(None, None, **settings) as broker:
            for size in SIZES:
                for senders in SENDERS:
                    what = f"Kafka, acknowledged {where}"
                    try:
                        measured = producer.measure(broker.servers, f"t{size}-{senders}", size, senders, seconds)
                    except HeadgateError as error:  # all other rows stay
                        yield {"what": f"{what}: {error}", "rows in a request": size, "senders": senders}
                    else:
                        yield _sent(what, "JSON", size, senders, *measured)


class Subscriber(threading.Thread):
    """Reads from the oldest result on, and knows when each number came last, and how many results there were."""

    def __init__(self, bed: Bed) -> None:
        super().__init__(daemon=True)
        self._bed, self._changed = bed, threading.Condition()
        self.count = 0
        self._came: dict[int, float] = {}

    def run(self) -> None:
        with self._bed.client("ann") as ann:
            for result in ann.subscribe("joe.s"):
                if result.values is not None:
                    with self._changed:
                        self.count += 1
                        self._came[result.values["n"]] = time.perf_counter()
                        self._changed.notify()

    def wait_for(self, count: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self.count >= count, _PATIENCE):
                raise TimeoutError("the subscriber did not receive everything")

    def came(self, number: int) -> float:
        """When a number came, which is waited for."""
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._came, _PATIENCE):
                raise TimeoutError("a tuple was not delivered")
            return self._came[number]


@contextmanager
def subscribed(bed: Bed) -> Iterator[Subscriber]:
    """A subscriber that has received its first tuple: from then on its connection stands."""
    ann = Subscriber(bed)
    ann.start()
    with bed.client("sam") as sam:
        sam.publish("joe.s", table(0, 1))
    ann.wait_for(1)
    yield ann  # it ends with the server


def delivered(bed: Bed, ann: Subscriber, form: str, size: int, requests_: int) -> Row:
    """Sends some requests, and counts until the subscriber has read all their tuples."""
    total, before, rows = size * requests_, ann.count, requests(form, size)
    with bed.client("sam") as sam:
        begin = time.perf_counter()
        for _ in range(requests_):
            sam.publish("joe.s", rows)
        ann.wait_for(before + total)
    passed = time.perf_counter() - begin
    return {
        "what": "to a subscriber",
        "form": form,
        "rows in a request": size,
        "senders": 1,
        "tuples/s": round(total / passed),
        "requests/s": round(requests_ / passed, 1),
    }


def latency(bed: Bed, ann: Subscriber, count: int, what: str = "latency to a subscriber") -> Row:
    """One tuple at a time: from the moment its request is sent until the subscriber has read it."""
    found: list[float] = []
    with bed.client("sam") as sam:
        for n in range(1, count + 1):
            begin = time.perf_counter()
            sam.publish("joe.s", [{"n": -n, "pat": 1, "rate": 1}])
            found.append(1000 * (ann.came(-n) - begin))
    return {
        "what": what,
        "form": "JSON",
        "rows in a request": 1,
        "senders": 1,
        "median ms": round(float(np.median(found)), 1),
        "95 of 100 below": round(float(np.percentile(found, 95)), 1),
    }


def disk(folder: Path, seconds: float) -> Row:
    """Files of a kilobyte, written and flushed one after the other."""
    content, times = os.urandom(1024), list[float]()
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        with open(folder / "flushed", "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        times.append(time.perf_counter() - start)
    return {
        "what": "the disk: write and flush 1 KB",
        "requests/s": round(len(times) / (time.perf_counter() - begin)),
        "median ms": round(1000 * float(np.median(times)), 1),
        "95 of 100 below": round(1000 * float(np.percentile(times, 95)), 1),
    }


def run(quick: bool, progress: Progress) -> Report:
    seconds = QUICK_SECONDS if quick else SECONDS
    progress.expect(len(KINDS) + 6 + (2 * len(producer.BROKERS) if producer.is_installed() else 0))
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        progress.step("the disk")
        rows.append(disk(folder, seconds))
        progress.step("starting a server")
        bed = stack.enter_context(served(folder / "home"))
        for form, size, senders in KINDS:
            progress.step(f"{form}, {size:,} rows, {senders} senders")
            rows.append(published(bed, form, size, senders, seconds))
        with subscribed(bed) as ann:
            for form, size, count in (("JSON", 1, 20), ("JSON", 1000, 20), ("Arrow", 10_000, 10)):
                progress.step(f"to a subscriber: {form}, {size:,} rows")
                rows.append(delivered(bed, ann, form, size, count if quick else 5 * count))
            progress.step("latency")
            rows.append(latency(bed, ann, QUICK_LATENCIES if quick else LATENCIES))
    if producer.is_installed():
        rows += into_topics(seconds, QUICK_LATENCIES if quick else LATENCIES, progress)
        rows += into_kafka(seconds, progress)
    return Report(
        "Publishing: into the durable log of a server, and on to a subscriber",
        rows,
        notes=[
            "Client, server and Spark share this machine; connections are TLS 1.3 over the loopback address.",
            "A request is answered when its tuples are on the disk: two flushes for each group of requests.",
            "The subscriber reads server-sent events with headgate.connect.",
            *(
                "Kafka's producer (Java, acks=all, no encryption, no check of rows or rights) waits for the rows of a"
                " request together; on the disk: its broker flushes before it acknowledges."
                if producer.is_installed()
                else "Kafka's producer was not measured: no broker is installed (scripts/ensure-kafka.sh broker).",
            ),
        ],
        environment=environment("pyspark", "pyarrow", "uvicorn"),
        plots=[plot(rows)],
    )


def plot(rows: Sequence[Row]) -> Plot:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["what"] == "into the log":
            name = f"{row['form']}, {row['senders']} senders"
            series.setdefault(name, []).append((float(str(row["rows in a request"])), float(str(row["tuples/s"]))))
    return Plot("Tuples into the durable log", "rows in a request", "tuples per second", series, log_x=True, log_y=True)
