"""The golden label cases through every sink: rights are applied once more when a staged result is published."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from labels.golden import DECISIONS, Decision, named
from worlds.decided import READER, Places, Way

from egress.spark_stand_in import Written
from headgate.egress.mailbox import Mailbox
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import FileSink, Sink
from headgate.egress.spark_sink import SparkSink


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether results are durable is tested elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def _way(case: Decision) -> Way:
    return Way(case.text, case.clearance, case.rules, case.aggregated)


def _files(folder: Path, ending: str) -> list[str]:
    """Whose files there are; those in the hidden folder of staged results are for nobody."""
    owners = sorted(path.relative_to(folder).parts[0] for path in folder.rglob(f"*.{ending}") if path.stat().st_size)
    return [owner for owner in owners if not owner.startswith(".")]


@pytest.mark.parametrize("case", named(DECISIONS))
def test_every_sink_publishes_a_result_exactly_if_the_table_permits_it(case: Decision, tmp_path: Path) -> None:
    way, mailbox, written = _way(case), Mailbox(), Written()
    sinks: list[Sink] = [mailbox, FileSink(tmp_path / "lines", Places()), ParquetSink(tmp_path / "parquet", Places())]
    sinks.append(SparkSink(written, "any", {}, Places()))
    for sink in sinks:
        way.publish(sink)
    expected = [READER] if case.permitted else []
    assert _files(tmp_path / "lines", "jsonl") == expected
    assert _files(tmp_path / "parquet", "parquet") == expected
    assert [x["user"] for x in written.rows] == expected
    assert mailbox.has(READER, "q") is case.permitted
    assert not mailbox.has("nobody", "q")


@pytest.mark.parametrize("case", named(DECISIONS))
def test_what_waits_in_the_mailbox_is_fetched_exactly_if_the_table_permits_it(case: Decision) -> None:
    way, mailbox = _way(case), Mailbox()
    mailbox.prepare([way.staged()], (), as_staged=True)  # when it was put there, the reader had other rights
    mailbox.publish(lambda: None)
    assert [x.subscribers for x in mailbox.fetch(READER, "q", way.snapshot)] == ([(READER,)] if case.permitted else [])
    assert not mailbox.fetch("nobody", "q", way.snapshot)
