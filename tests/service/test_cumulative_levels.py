"""Cumulative windows never cross levels (SPEC.md, 4.3). The attack: somebody at S subscribes or leaves, and a reader at
U sees in its own results that there is such a subscriber."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import System

from headgate.clock import SystemClock
from headgate.egress.mailbox import Mailbox
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.labels.levels import Level
from headgate.model.results import delivered_results
from headgate.recovery.pipeline import Pipeline

SECRET = "correct horse"
SETUP = f"""
CREATE LEVEL S ABOVE U;
CREATE ROLE nurse; CREATE ROLE doctor;
CREATE USER ann PASSWORD '{SECRET}'; CREATE USER ben PASSWORD '{SECRET}';
CREATE USER otto PASSWORD '{SECRET}' CLEARANCE S;
GRANT ROLE nurse TO USER ann; GRANT ROLE nurse TO USER ben; GRANT ROLE nurse TO USER otto;
GRANT ROLE doctor TO USER otto;
CREATE STREAM hr (ts TIMESTAMP, rate INT, who STRING) EVENT TIME ts ROLES FROM who ALLOW CUMULATIVE;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM hr TO nurse;
CREATE QUERY common CUMULATIVE AS SELECT SUM(rate) AS total FROM hr [ROWS 2];
CREATE QUERY again AS SELECT total FROM common;
START QUERY common; START QUERY again;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM common TO nurse;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM again TO nurse;
"""


class Ward:
    def __init__(self, system: System, folder: Path) -> None:
        self.headgate, self.root, self.box = system.headgate, system.root, Mailbox()
        self.headgate.execute(system.root, SETUP)
        self.pipeline = Pipeline(
            folder,
            self.headgate,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [self.box],
            SystemClock(),
        )
        self._batches = 0

    def does(self, who: str, script: str, level: str = "U") -> None:
        self.headgate.execute(self.headgate.login(who, SECRET, level=Level(level)), script)

    def measure(self, *rates: tuple[int, int, str]) -> None:
        times = [dt.datetime(2024, 1, 2, 9, 30, second, tzinfo=dt.UTC) for second, _, _ in rates]
        columns = {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "rate": pa.array([rate for _, rate, _ in rates], pa.int32()),
            "who": pa.array([who for _, _, who in rates]),
        }
        self.pipeline.take("root.hr", self._batches, pa.table(columns))
        self._batches += 1

    def received(self, who: str) -> list[object]:
        with self.headgate.open() as now:
            mine = [x for x in now.subscribers if x.outgoing and x.outgoing.user == who]
            found = [y for x in mine for y in delivered_results(self.box.fetch(x.name, x.query, now))]
        return [x.values[0] for x in found]


@pytest.fixture
def ward(sqlite_system: System, tmp_path: Path) -> Iterator[Ward]:
    made = Ward(sqlite_system, tmp_path)
    yield made
    made.pipeline.close()


@pytest.mark.parametrize("above", [False, True], ids=["alone", "with a subscriber at S"])
@pytest.mark.parametrize("stream", ["common", "again"])
def test_a_subscriber_above_changes_nothing_for_one_below(ward: Ward, stream: str, above: bool) -> None:
    ward.does("ann", f"SUBSCRIBE TO root.{stream}")
    if above:
        ward.does("otto", f"SUBSCRIBE TO root.{stream}", level="S")
    ward.measure((1, 1, "nurse"), (2, 10, "doctor"), (3, 100, "nurse"), (4, 1000, "nurse"))
    if above:
        ward.does("otto", f"UNSUBSCRIBE FROM root.{stream}", level="S")
    ward.measure((5, 10_000, "doctor"), (6, 100_000, "nurse"))
    ward.pipeline.end()
    assert ward.received("ann") == [1, 101, 1100, 101_000]


def test_subscribers_of_one_level_share_the_window(ward: Ward) -> None:
    ward.headgate.execute(ward.root, "GRANT ROLE doctor TO USER ben")
    ward.does("ann", "SUBSCRIBE TO root.common")
    ward.does("ben", "SUBSCRIBE TO root.common")
    ward.measure((1, 1, "nurse"), (2, 10, "doctor"), (3, 100, "nurse"), (4, 1000, "nurse"))
    ward.pipeline.end()
    assert ward.received("ann") == [1, 1100] and ward.received("ben") == [1, 11, 110, 1100]


def test_those_above_share_among_themselves(ward: Ward) -> None:
    ward.does("otto", "SUBSCRIBE TO root.common", level="S")
    ward.measure((1, 1, "nurse"), (2, 10, "doctor"), (3, 100, "nurse"))
    ward.pipeline.end()
    assert ward.received("otto") == [1, 11, 110]
