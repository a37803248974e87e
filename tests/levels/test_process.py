"""The real thing: `headgate serve` with Spark and a process for each level; it is stopped and goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from server import test_process as real


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["replicated", "kernelized"])
def test_a_server_with_levels_apart_goes_on_where_it_was(
    tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = real.environment
    monkeypatch.setattr(real, "environment", lambda **more: usual(HEADGATE_SERVE_ARCHITECTURE=architecture, **more))
    real.test_a_server_goes_on_where_it_was(tmp_path)
    assert (tmp_path / "home" / "engine" / "levels" / "levels.json").exists()
