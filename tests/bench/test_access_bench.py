"""What `bench access` measures, at a tiny size: a third of the checks is granted."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.access.permissions import Kind, Permission
from headgate.bench import access
from headgate.bench.harness import Silent
from headgate.service import Headgate


def test_the_bench_reports_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "QUICK_SIZES", (10, 30))
    report = access.run(True, Silent())
    assert [row["users, roles, objects"] for row in report.rows] == [10, 30]
    assert len(report.goals) == 1 and len(report.plots) == 1


def test_a_stream_of_one_s_role_is_granted_and_another_permission_or_stream_is_not(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/headgate.db"
    first, *_ = access.fill(url, 20)
    headgate = Headgate(url, bytes(32))
    try:
        granted = headgate.check(first, Permission.READ_TUPLE, Kind.STREAM, "s0")
        denied = headgate.check(first, Permission.SUBSCRIBE, Kind.STREAM, "s0")
        hidden = headgate.check(first, Permission.READ_TUPLE, Kind.STREAM, "s11")
    finally:
        headgate.close()
    assert [bool(x) for x in (granted, denied, hidden)] == [True, False, False]
