"""`headgate demo`: the ward plays to its end, and says what it is to say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from documents import HEADGATE


@pytest.mark.long
def test_the_ward_plays_to_its_end_and_draws_its_plan(tmp_path: Path) -> None:
    done = subprocess.run([HEADGATE, "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "records, intact." in done.stdout and " rejected, " in done.stdout
    assert (tmp_path / "ward.svg").read_text().startswith("<svg")
