"""The golden label cases through a whole pipeline: a reader gets a result exactly if the table permits it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from labels.golden import DECISIONS, Decision, named
from worlds.decided import READER, Opened, Way

from headgate.egress.mailbox import Mailbox
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.recovery.pipeline import Pipeline
from headgate.testing import ManualClock


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether results are durable is tested elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize("case", named(DECISIONS))
def test_a_result_reaches_the_reader_exactly_if_the_table_permits_it(case: Decision, tmp_path: Path) -> None:
    way, mailbox = Way(case.text, case.clearance, case.rules, case.aggregated), Mailbox()
    descriptor = StreamDescriptor(way.stream, (("a", Type.INT),), None, {"LABEL": "policy"}, way.policy)
    snapshot = replace(way.snapshot, descriptors={way.stream: descriptor})
    pipeline = Pipeline(
        tmp_path,
        Opened(snapshot),
        lambda _, program, schema: LocalExecutor(program, schema, evaluate),
        [mailbox],
        ManualClock(1_000_000.0),
    )
    pipeline.take(way.stream, 0, pa.table({"a": pa.array([7], pa.int32()), "policy": [way.brought]}))
    pipeline.end()
    pipeline.close()
    got = [x for x in mailbox.fetch(READER, "q", snapshot) if len(x)]
    assert bool(got) is case.permitted
    assert not [x for x in mailbox.fetch("nobody", "q", snapshot) if len(x)]
