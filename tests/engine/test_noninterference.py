"""Nothing that an observer may not see changes anything that it sees: random pairs of runs, compared in everything that
reaches it. And the comparison finds out what would break that.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.noninterference import pair
from headgate.engine import sights, sinks
from headgate.engine.egress import Parcel
from headgate.engine.kernels.rows import Bools, Ints
from headgate.engine.lateness import Arrived
from headgate.engine.mailbox import Mailbox
from headgate.engine.sights import Sightings, View
from headgate.engine.sinks import FileSink


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here crashes: what is written need not reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def check(first: int, pairs: int, folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + pairs):
        one, two, noise = pair(seed, folder / "pair")
        assert one.told == two.told, f"seed {seed}"
        counts["pairs"] += 1
        counts["results"] += one.results
        counts["noise"] += noise
        counts["pairs with results"] += one.results > 0
        shutil.rmtree(folder / "pair")
    assert counts["results"] > 2 * pairs and counts["noise"] > 10 * pairs
    return counts


def test_what_cannot_be_seen_changes_nothing(tmp_path: Path) -> None:
    check(0, 200, tmp_path)


@pytest.mark.long
def test_what_cannot_be_seen_changes_nothing_in_many_pairs(tmp_path: Path) -> None:
    print(dict(check(10_000, 3_000, tmp_path)))
