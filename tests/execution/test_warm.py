"""What set-up compiles runs without a fault: a fault in a loop would only end a view."""

from __future__ import annotations

import pytest

from headgate.execution import warm
from headgate.execution.processor import Processor


def test_every_kind_of_operator_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr(Processor, "end", lambda _, view, reason: ended.append((view.running.name, reason)))
    warm.warm()
    assert ended == []
