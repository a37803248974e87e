"""`headgate bench architectures`: all three architectures deliver the same number of results."""

from __future__ import annotations

import pytest

from headgate.bench.architectures import run, trusted_lines
from headgate.bench.harness import Silent


@pytest.mark.long
def test_all_architectures_deliver_the_same_results() -> None:
    report = run(True, Silent())
    assert [row["architecture"] for row in report.rows] == ["trusted", "replicated", "kernelized"]
    assert len({row["results"] for row in report.rows}) == 1
    assert all(isinstance(row["results"], int) and row["results"] > 10_000 for row in report.rows)


def test_lines_are_counted_from_imports() -> None:
    assert 0 < trusted_lines(("headgate.errors",)) < trusted_lines(("headgate.labels",))
