"""`headgate bench kafka`: tuples per second from a topic of two partitions, beside bare Spark queries over it.

A broker of its own is filled with JSON messages, each with a role expression as a header. Spark alone reads them, as
bytes and then decoded and filtered by its own functions; Headgate reads them with its strict reader, decides for three
readers who sees which tuple, and delivers the same selection to each of them. All read the same messages, to their end,
in batches of the same size, one after the other in one process. The brokers' own limit is what the first row shows.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from argon2 import PasswordHasher
from pyspark.sql import DataFrame, SparkSession

from headgate.access.passwords import Passwords
from headgate.bench.harness import Goal, Progress, Report, Row, environment
from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import Verify
from headgate.ingress.kafka_options import MOST_MESSAGES
from headgate.ingress.spark import spark_session
from headgate.service import Headgate
from headgate.service.runs import Processing
from headgate.testing.kafka import KafkaBroker

TUPLES, QUICK_TUPLES = 2_000_000, 200_000
_SECRET = "a password for benches"  # noqa: S105
_READERS = {"ann": "R1", "bob": "R2", "cyd": "R3"}
_ROLES = "element_at(array('R1', 'R2', 'R1 | R2', 'R3'), CAST(id % 4 + 1 AS INT))"
_MESSAGES = (
    "CAST(id % 1000 AS STRING) AS key",
    "to_json(named_struct('at', timestamp_millis(1700000000000 + id), 'k', id % 1000, 'v', id * 7919 % 200)) AS value",
    f"array(named_struct('key', 'roles', 'value', CAST({_ROLES} AS BINARY))) AS headers",
)
_SCRIPT = """CREATE ROLE R1; CREATE ROLE R2; CREATE ROLE R3;
CREATE STREAM s (at TIMESTAMP, k INT, v INT, roles STRING) EVENT TIME at LATENESS 1 HOUR ROLES FROM roles
  SOURCE kafka (servers = '{servers}', topic = 't', "header.roles" = 'roles');
GRANT VIEW OBJECT, READ TUPLE ON STREAM s TO PUBLIC;
CREATE QUERY q AS SELECT k, v WHERE v > 100 FROM s; START QUERY q;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM q TO PUBLIC;
{users}"""


class Counted(Mailbox):
    """A mailbox that counts the results of everyone, and keeps none."""

    results = 0

    def publish(self, verify: Verify) -> None:
        verify()
        self.results += sum(len(x) * len(x.subscribers) for x in self._ready)


def fill(spark: SparkSession, servers: str, tuples: int) -> None:
    frame = spark.range(tuples).selectExpr(*_MESSAGES)
    options = {"kafka.bootstrap.servers": servers, "topic": "t", "includeHeaders": "true"}
    frame.write.format("kafka").options(**options).save()


def messages(spark: SparkSession, servers: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": servers, "subscribe": "t", "startingOffsets": "earliest"}
    options |= {"maxOffsetsPerTrigger": str(MOST_MESSAGES), "includeHeaders": "true"}
    return spark.readStream.format("kafka").options(**options).load()


def decoded(frame: DataFrame) -> DataFrame:
    """What a query of one reader without rights would be."""
    read = frame.selectExpr("from_json(CAST(value AS STRING), 'at TIMESTAMP, k INT, v INT') AS x", "headers")
    return read.selectExpr("x.*", "headers[0].value AS roles").where("v > 100")


def seconds_of_spark(frame: DataFrame, home: Path) -> float:
    begin = time.perf_counter()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(home))
    writer.trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - begin


def prepared(home: Path, servers: str) -> Headgate:
    headgate = Headgate(
        f"sqlite:///{home / 'headgate.db'}", b"a key for benches", passwords=Passwords(PasswordHasher(1, 8, 1))
    )
    headgate.initialise("joe", _SECRET)
    users = "".join(f"CREATE USER {x} PASSWORD '{_SECRET}'; GRANT ROLE {y} TO USER {x}; " for x, y in _READERS.items())
    headgate.execute(headgate.login("joe", _SECRET), _SCRIPT.format(servers=servers, users=users))
    for name in _READERS:
        headgate.execute(headgate.login(name, _SECRET), "SUBSCRIBE TO joe.q")
    return headgate


def seconds_of_headgate(home: Path, servers: str) -> tuple[float, int]:
    """The seconds, and how many results all readers together received."""
    home.mkdir(parents=True)
    headgate, box = prepared(home, servers), Counted()
    processing = Processing(headgate, home / "engine", [box])
    try:
        begin = time.perf_counter()
        processing.replay()
        return time.perf_counter() - begin, box.results
    finally:
        processing.close()
        headgate.close()


def expected_results(tuples: int) -> int:
    """R1 and R2 see two of four tuples each, R3 one; a bit less than half of all have a value above 100."""
    return sum((1, 1, 2, 1)[n % 4] for n in range(tuples) if n * 7919 % 200 > 100)


def run(quick: bool, progress: Progress) -> Report:
    tuples = QUICK_TUPLES if quick else TUPLES
    steps: Sequence[tuple[str, Callable[[Path, str, SparkSession], float]]] = (
        ("Spark, bytes only", lambda at, servers, spark: seconds_of_spark(messages(spark, servers), at)),
        (
            "Spark, decoded and filtered",
            lambda at, servers, spark: seconds_of_spark(decoded(messages(spark, servers)), at),
        ),
        ("Headgate, three readers", lambda at, servers, _: _checked(at, servers, tuples)),
    )
    progress.expect(1 + len(steps))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, KafkaBroker() as broker:
        folder = Path(name)
        progress.step("filling the topic")
        spark = spark_session(folder / "session")  # one for all that follows
        begin = time.perf_counter()
        fill(spark, broker.servers, tuples)
        written = tuples / (time.perf_counter() - begin)
        rates: list[float] = []
        for number, (what, measured) in enumerate(steps):
            progress.step(what)
            rates.append(tuples / measured(folder / str(number), broker.servers, spark))
            rows.append({"what": what, "tuples": tuples, "tuples/s": round(rates[-1])})
    return Report(
        "From a topic of two partitions, tuples per second",
        rows,
        goals=[
            Goal("tuples/s of Headgate", rates[2], min(200_000, rates[0]), "tuples/s", "at least"),
            Goal("Headgate beside Spark's decoded query", rates[2] / rates[1], 0.5, "times", "at least"),
        ],
        notes=[
            f"Two partitions, batches of {MOST_MESSAGES:,} messages; the topic was filled at {written:,.0f} tuples/s.",
            "Spark's rows decide nothing about rights: every tuple goes to nobody (the sink `noop`).",
        ],
        environment=environment("pyspark", "pyarrow", "duckdb"),
    )


def _checked(home: Path, servers: str, tuples: int) -> float:
    seconds, results = seconds_of_headgate(home, servers)
    if results != expected_results(tuples):
        raise ValueError(f"{results:,} results, not {expected_results(tuples):,}")
    return seconds
