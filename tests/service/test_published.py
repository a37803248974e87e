"""Published tuples through Spark: new columns while it reads, and its log of removed files stays small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import PASSWORD, System
from pyspark.sql import SparkSession

from headgate.egress.delivery_log import DeliveryLog, LogPosition
from headgate.ingress import source_log
from headgate.ingress.folder_log import FolderLog, folder_source
from headgate.ingress.sequence_numbers import Producer
from headgate.service.runs import Processing

WARD = f"""
CREATE ROLE nurse; CREATE USER ned PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER ned;
CREATE STREAM s (n INT) SOURCE publish;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM s TO nurse
"""


class _Enough(BaseException):
    pass


class Running:
    def __init__(self, system: System, home: Path) -> None:
        system.run(WARD)
        system.run("SUBSCRIBE TO root.s", system.login("ned"))
        self._headgate = system.headgate
        self.log = DeliveryLog(home / "delivery")
        self.ingress = FolderLog(home / "ingress")
        self.processing = Processing(
            system.headgate, home / "engine", [self.log], ingress=folder_source(home / "ingress")
        )

    def publish(self, **values: int) -> None:
        table = pa.table({name: pa.array([value], pa.int32()) for name, value in values.items()})
        self.ingress.append("root.s", table, Producer("sam", "U"), None).result(30)

    def until(self, enough: Callable[[], bool]) -> None:
        def watch() -> None:
            if enough():
                raise _Enough

        with pytest.raises(_Enough):
            self.processing.follow(watch)

    def until_received(self, count: int) -> None:
        self.until(lambda: len(self.received()) == count)

    def received(self) -> list[tuple[int | None, ...]]:
        (standing,) = self._headgate.snapshot().standings
        found: list[tuple[int | None, ...]] = []
        position = LogPosition()
        while entries := self.log.read(standing.name, standing.query, position, 1000):
            for entry in entries:
                found += zip(*(x.to_pylist() for x in entry.batch.values), strict=True)
                position = entry.positions[-1]
        return found


@pytest.fixture
def running(sqlite_system: System, tmp_path: Path, spark: SparkSession) -> Iterator[Running]:  # noqa: ARG001
    found = Running(sqlite_system, tmp_path)
    with _closed(found):
        yield found


@contextmanager
def _closed(running: Running) -> Iterator[None]:
    try:
        yield
    finally:
        running.processing.close()
        running.ingress.close()


@pytest.mark.long
def test_a_column_that_is_added_while_spark_reads_loses_no_value(running: Running, sqlite_system: System) -> None:
    running.publish(n=1)
    running.until(lambda: len(running.received()) == 1)
    sqlite_system.run("ALTER STREAM s ADD COLUMN more INT")
    running.publish(n=2, more=20)  # Spark still reads with the old columns
    running.until(lambda: len(running.received()) == 2)
    running.publish(n=3)
    running.until(lambda: len(running.received()) == 3)
    assert running.received() == [(1,), (2, 20), (3, None)]
    assert not running.processing.failed


@pytest.mark.long
def test_sparks_log_of_removed_files_stays_small_and_nothing_is_read_twice(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_log, "MOST", 2000)
    sizes: list[int] = []
    for n in range(60):
        running.publish(n=n)
        running.until_received(n + 1)
        logs = (tmp_path / "engine" / "checkpoints").glob("*/sources/0/*.compact")
        sizes.append(max((x.stat().st_size for x in logs), default=0))
    assert [x for (x,) in running.received()] == list(range(60))
    assert max(sizes[30:]) <= 2 * max(sizes[:30]) and max(sizes) < 8000
    assert len(list((tmp_path / "ingress").glob("*/*.parquet"))) < 20
