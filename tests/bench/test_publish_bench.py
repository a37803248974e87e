"""What `bench publish` sends and counts: its requests without a server, and a small run with one."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from headgate.bench import producer
from headgate.bench import publish as bench
from headgate.bench.harness import Silent
from headgate.bench.publish import (
    delivered,
    disk,
    into_kafka,
    into_topics,
    latency,
    published,
    requests,
    served,
    subscribed,
)


def test_both_forms_of_a_request_hold_the_same_rows() -> None:
    arrow = requests("Arrow", 3)
    assert isinstance(arrow, pa.Table)
    assert arrow.to_pylist() == requests("JSON", 3)


def test_the_disk_is_measured_by_flushed_files(tmp_path: Path) -> None:
    row = disk(tmp_path, 0.05)
    assert row["what"] == "the disk: write and flush 1 KB" and (tmp_path / "flushed").stat().st_size == 1024


@pytest.mark.long
def test_tuples_reach_the_log_and_the_subscriber(tmp_path: Path) -> None:
    with served(tmp_path / "home") as bed:
        into = published(bed, "Arrow", 100, 2, 0.5)
        assert isinstance(into["tuples/s"], int) and into["tuples/s"] > 0
        with subscribed(bed) as ann:
            assert delivered(bed, ann, "JSON", 10, 3)["what"] == "to a subscriber"
            assert latency(bed, ann, 2)["what"] == "latency to a subscriber"
            assert ann.count == 1 + 30 + 2


@pytest.mark.long
def test_tuples_reach_topics_and_the_subscriber(monkeypatch: pytest.MonkeyPatch) -> None:
    assert producer.is_installed(), "run scripts/ensure-kafka.sh broker"
    monkeypatch.setattr(bench, "KINDS", [("JSON", 1, 2), ("Arrow", 10_000, 1)])
    rows = list(into_topics(0.5, 2, Silent()))
    assert len(rows) == 6 and all(isinstance(x["tuples/s"], int) and x["tuples/s"] > 0 for x in rows if "tuples/s" in x)
    assert [x["what"] for x in rows if "tuples/s" not in x] == [
        "latency through a topic, acknowledged on the disk",
        "latency through a topic, acknowledged in memory",
    ]


@pytest.mark.long
def test_kafkas_producer_is_measured_beside_it() -> None:
    assert producer.is_installed(), "run scripts/ensure-kafka.sh broker"
    found = list(into_kafka(0.2, Silent()))
    assert len(found) == 12 and all(isinstance(x["tuples/s"], int) and x["tuples/s"] > 0 for x in found)


def test_a_producer_that_fails_costs_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker listens there: Kafka's own client is not asked, only what the bench does with its failure is seen."""
    said = subprocess.CompletedProcess((), 1, "", "org.apache.kafka.common.errors.TimeoutException: no topic\n\tat x\n")
    monkeypatch.setattr(bench, "KafkaBroker", lambda *_, **__: nullcontext(SimpleNamespace(servers="nowhere")))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: said)
    rows = list(bench.into_kafka(1, Silent()))
    assert len(rows) == len(producer.BROKERS) * len(bench.SIZES) * len(bench.SENDERS)
    assert all("TimeoutException: no topic" in str(row["what"]) and "tuples/s" not in row for row in rows)
