"""A whole pipeline, from batches to sinks, against the oracle: random queries over streams and over results,
subscribers who come and go, rights that change, restarts, any number of partitions.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from worlds.pipeline_replay import one_case

from headgate.operators import pieces, threads

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")


def check(first: int, cases: int, folder: Path) -> Counter[str]:
    """Every third world is one of unrest, half of these with tables in all queries; in every second one, classes of
    views are computed in threads; in two of five, batches are cut into pieces of one or two tuples."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + cases):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threads, "WORTH_IT", 0 if seed % 2 else threads.WORTH_IT)
            patch.setattr(pieces, "SIZE", {0: 1, 1: 2}.get(seed % 5, pieces.SIZE))
            one_case(seed, folder / str(seed), counts, unrest=seed % 3 == 0, tables=seed % 12 in (0, 3))
        shutil.rmtree(folder / str(seed))
    assert counts["exact results"] > 5 * cases and counts["cumulative results"] > cases  # something is compared,
    assert counts["results of stage 1"] > cases / 2 and counts["results of stage 2"] > cases / 10
    assert counts["results with tables"] > cases
    assert counts["restart"] > cases and counts["lost"] > cases / 5  # and something happens meanwhile
    assert counts["ended"] > cases / 2
    return counts


def test_everyone_receives_what_the_oracle_says(tmp_path: Path) -> None:
    check(0, 300, tmp_path)


@pytest.mark.long
def test_everyone_receives_what_the_oracle_says_in_5000_cases(tmp_path: Path) -> None:
    print(dict(check(10_000, 5_000, tmp_path)))
