"""Where machine code is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import numba
before = numba.config.CACHE_DIR
from headgate.loops.slots import SlotPool
pool = SlotPool()
pool.give(pool.take(3))
assert numba.config.CACHE_DIR == before
print(pool.take(1).tolist())
"""


def _run(cache: Path) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-W", "error", "-c", _PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout


def test_machine_code_is_kept_in_a_folder_for_this_version_of_the_package(tmp_path: Path) -> None:
    assert _run(tmp_path) == "[0]\n"
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("numba-loops-")
    assert list(folder.rglob("*.nbc"))


def test_without_a_folder_every_process_compiles_for_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert _run(tmp_path / "file" / "below") == "[0]\n"
