"""Levels apart against the oracle: random queries over streams and over results at several levels, subscribers who come
and go, rights that change, restarts."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from levels.harness import Dying, ThreadChild
from levels.replay import one_case

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")


ARCHITECTURES = ("trusted", "replicated", "kernelized")


def check(first: int, cases: int, folder: Path, *architectures: str) -> Counter[str]:
    """In every second world, processors die while they work."""
    counts: Counter[str] = Counter()
    seed = first
    while counts["worlds"] < cases:
        dying = Dying(seed)
        one_case(seed, folder / str(seed), counts, architectures, dying if seed % 2 else ThreadChild)
        counts["deaths"] += dying.deaths
        shutil.rmtree(folder / str(seed), ignore_errors=True)
        seed += 1
    assert counts["exact results"] > 2 * cases and counts["worlds with several levels"] > cases / 4
    assert counts["restart"] > cases / 2 and counts["deaths"] > cases * (len(architectures) - 1)
    return counts


def test_everyone_receives_what_the_oracle_says_in_each_architecture(tmp_path: Path) -> None:
    check(100, 300, tmp_path, "trusted", "replicated")


def test_everyone_receives_what_the_oracle_says_from_a_kernelized_server(tmp_path: Path) -> None:
    check(100, 20, tmp_path, "trusted", "kernelized")


@pytest.mark.long
@pytest.mark.parametrize("first", [20_000, 30_000, 40_000, 50_000])
def test_everyone_receives_what_the_oracle_says_in_2000_worlds(tmp_path: Path, first: int) -> None:
    """A quarter of them each."""
    print(dict(check(first, 500, tmp_path, *ARCHITECTURES)))
