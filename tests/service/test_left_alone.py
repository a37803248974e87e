"""A run without a server between two runs of one: subscriptions over published streams wait, and lose nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import PASSWORD, System

from headgate.clock import SystemClock
from headgate.egress.mailbox import Mailbox
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.model.results import delivered_results
from headgate.recovery.pipeline import Pipeline
from headgate.service.run_client import RunClient
from headgate.service.runs import Processing

WARD = f"""
CREATE ROLE nurse; CREATE USER ned PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER ned;
CREATE ROLE clerk; CREATE USER cara PASSWORD '{PASSWORD}'; GRANT ROLE clerk TO USER cara;
CREATE STREAM beats (at TIMESTAMP, n INT) EVENT TIME at SOURCE publish;
CREATE STREAM files (at TIMESTAMP, n INT) EVENT TIME at SOURCE json (path = '/nowhere');
CREATE QUERY recent AS SELECT COUNT(*) AS c, SUM(n) AS s FROM beats [ROWS 3]; START QUERY recent;
CREATE QUERY again AS SELECT c, s FROM recent; START QUERY again;
CREATE QUERY old AS SELECT COUNT(*) AS c FROM files [ROWS 3]; START QUERY old;
CREATE QUERY both AS SELECT n FROM files [ROWS 3] UNION ALL SELECT n FROM beats [ROWS 3]; START QUERY both;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM beats, files, recent, again, old, both TO nurse;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM files, both TO clerk
"""


class Ward:
    def __init__(self, system: System, home: Path) -> None:
        self.system, self.home = system, home
        self.mailbox = Mailbox()
        system.run(WARD)
        self.ned, self.cara = system.login("ned"), system.login("cara")

    @contextmanager
    def pipeline(self) -> Iterator[Pipeline]:
        found = Pipeline(
            self.home / "engine",
            self.system.headgate,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [self.mailbox],
            SystemClock(),
        )
        try:
            yield found
        finally:
            found.close()

    def take(self, stream: str, number: int) -> None:
        """One tuple, which the server takes and acknowledges."""
        at = dt.datetime(2024, 3, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=number)
        table = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC")), "n": pa.array([number], pa.int32())})
        with self.pipeline() as pipeline:
            pipeline.take(f"root.{stream}", number, table)

    def results(self) -> dict[str, list[object]]:
        """What came since the last call, by user and stream: the values of results, and notices."""
        found: dict[str, list[object]] = {}
        now = self.system.headgate.snapshot()
        for x in now.subscribers:
            batches = self.mailbox.fetch(x.name, x.query, now)
            came: list[object] = [tuple(y.values) for y in delivered_results(batches)]
            came += [dict(y.word) for y in batches if y.word]
            if came and x.outgoing is not None:
                found[f"{x.outgoing.user} {x.outgoing.stream}"] = came
        return found


@pytest.fixture
def ward(sqlite_system: System, tmp_path: Path) -> Ward:
    return Ward(sqlite_system, tmp_path)


def test_a_batch_run_between_two_server_runs_keeps_what_waits_for_published_tuples(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.recent; SUBSCRIBE TO root.again", ward.ned)
    ward.take("beats", 0)
    work = Processing(ward.system.headgate, ward.home / "engine", [ward.mailbox])
    try:
        work.replay()
    finally:
        work.close()
    assert not work.counts.ended
    assert ward.results() == {}
    ward.take("beats", 1)
    ward.take("beats", 2)
    assert ward.results() == {"ned root.recent": [(1, 0), (2, 1)], "ned root.again": [(1, 0), (2, 1)]}


def test_the_other_streams_of_the_run_end_as_always(ward: Ward) -> None:
    subscribed = "; ".join(f"SUBSCRIBE TO root.{x}" for x in ("recent", "again", "old", "both"))
    ward.system.run(subscribed, ward.ned)
    ward.system.run("SUBSCRIBE TO root.both", ward.cara)
    ward.take("beats", 0)
    ward.take("files", 0)
    with ward.pipeline() as pipeline:
        pipeline.end(left_alone={"root.beats"})
    assert ward.results() == {"ned root.old": [(1,)], "cara root.both": [(0,)]}
    ward.take("beats", 1)
    ward.take("files", 1)
    assert ward.results() == {"ned root.recent": [(1, 0)], "ned root.again": [(1, 0)], "ned root.both": [(0,), (0,)]}


def test_who_may_know_is_told_what_waits(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.recent; SUBSCRIBE TO root.both", ward.ned)
    ward.system.run("SUBSCRIBE TO root.both", ward.cara)

    def told(token: str, *, everyone: bool = False) -> list[str]:
        return RunClient(ward.system.headgate, token, everyone=everyone).left_alone()

    names = [f"root.{x} waits: root.beats is published to a server" for x in ("both", "recent")]
    assert told(ward.system.root, everyone=True) == names
    assert told(ward.ned) == [
        f"root.{x} waits: a stream that it reads is published to a server" for x in ("both", "recent")
    ]
    assert told(ward.cara) == [] == told(ward.system.root)


def test_a_run_with_nothing_but_published_streams_has_no_work(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.recent", ward.ned)
    assert not RunClient(ward.system.headgate, ward.ned).has_work()
    ward.system.run("SUBSCRIBE TO root.old", ward.ned)
    assert RunClient(ward.system.headgate, ward.ned).has_work()
