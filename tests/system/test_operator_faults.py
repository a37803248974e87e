"""Faults planted in the operators: the comparison of random worlds with the oracle finds out each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.pipeline_replay import one_case

from headgate.columns.sorting import Ints
from headgate.operators import join, pieces, view_group
from headgate.operators.block_rows import BlockRows
from headgate.operators.join import JoinSet
from headgate.operators.partition import Partition
from headgate.operators.partitioned_set import PartitionedSet
from headgate.operators.rowsets import Instants
from headgate.operators.window_set import WindowSet

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")

_NONE = np.empty(0, np.int64)
Leaving = Callable[[Any, Instants], tuple[Ints, Ints]]


def _all_but_one(leaving: Leaving) -> Leaving:
    def found(self: Any, instants: Instants) -> tuple[Ints, Ints]:
        rows, steps = leaving(self, instants)
        return rows[1:], steps[1:]

    return found


def a_removal_from_a_window_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WindowSet, "leaving", _all_but_one(WindowSet.leaving))


def a_removal_from_a_partition_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionedSet, "leaving", _all_but_one(PartitionedSet.leaving))


def rows_of_a_join_stay_when_a_tuple_leaves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JoinSet, "_made_of", lambda *_: _NONE)


def the_index_of_a_join_is_stale(patch: pytest.MonkeyPatch) -> None:
    """Tuples of earlier batches are not found by their keys any more."""
    grow = join._Chains.grow

    def forgetting(self: join._Chains, *sizes: Any) -> None:
        grow(self, *sizes)
        self.head[:] = -1

    patch.setattr(join._Chains, "grow", forgetting)


def displaced_tuples_stay_in_joins(patch: pytest.MonkeyPatch) -> None:
    def kept(self: JoinSet) -> None:
        self.displaced = _NONE

    patch.setattr(JoinSet, "_displace", kept)


def a_sliding_instant_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    slides = BlockRows._slides

    def all_but_one(self: BlockRows, finals: Any) -> Instants:
        found = slides(self, finals)
        keep = slice(1, None) if len(found) > 1 else slice(None)
        return Instants(found.time[keep], found.passed[keep], _NONE, slides=True)

    patch.setattr(BlockRows, "_slides", all_but_one)


def new_visibility_is_not_applied(patch: pytest.MonkeyPatch) -> None:
    """Rights change, but tuples that are held keep the visibility rows that they had."""
    patch.setattr(Partition, "renumber_visibility", lambda *_: None)


def an_instant_is_divided(patch: pytest.MonkeyPatch) -> None:
    """A batch is cut between tuples of the same time, and windows that slide emit before they have all of them."""

    def anywhere(times: Ints, until: int) -> list[tuple[slice, int]]:
        ends = [int(x) + 1 for x in times[:-1]] + [until]
        return [(slice(x, x + 1), end) for x, end in enumerate(ends)] if len(times) else [(slice(0, 0), until)]

    patch.setattr(view_group, "pieces", anywhere)


def results_of_a_piece_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pieces, "SIZE", 2)
    patch.setattr(view_group, "joined", lambda parts: list(parts[-1]))


FIRST: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    a_removal_from_a_window_is_forgotten: 0,
    a_removal_from_a_partition_is_forgotten: 15,
    rows_of_a_join_stay_when_a_tuple_leaves: 0,
    the_index_of_a_join_is_stale: 0,
    displaced_tuples_stay_in_joins: 0,
    a_sliding_instant_is_forgotten: 4,
    new_visibility_is_not_applied: 7,
    an_instant_is_divided: 0,
    results_of_a_piece_are_forgotten: 0,
}
"""By fault, from which world on to look: few worlds find some of them out."""


@pytest.mark.parametrize("fault", FIRST, ids=lambda fault: str(fault.__name__))
def test_a_fault_in_the_operators_is_found_out(
    fault: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    for seed in range(FIRST[fault], FIRST[fault] + 60):
        try:
            one_case(seed, tmp_path / str(seed), Counter(), unrest=seed % 3 == 0, tables=seed % 12 in (0, 3))
        except AssertionError:
            return
    pytest.fail("nothing was found out")
