"""The labels of groups, kept while rows come and go, against a count in plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.operators import group_labels
from headgate.operators.block_rows import Changes
from headgate.operators.group_labels import GroupLabels, LabelKinds
from headgate.operators.grouping import Emissions
from headgate.operators.rowsets import Instants

NONE = np.empty(0, np.int64)
GROUPS = 4


def ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


class World:
    """Rows with two labels each; group and labels of a row never change."""

    def __init__(self, rows: list[tuple[int, int, int]]) -> None:
        self._rows = rows
        self._kinds = LabelKinds()
        self._labels = GroupLabels(self._kinds)
        self._there = [Counter[int]() for _ in range(GROUPS)]

    def batch(self, steps: list[tuple[int, int]]) -> tuple[list[frozenset[int]], list[frozenset[int]]]:
        """Rows enter and leave (row, sign); after each step its group is emitted. The sets found, and those wanted."""
        brought = ints([label for _, *labels in self._rows for label in labels])
        kinds = self._kinds.of(brought).astype(np.int32).reshape(-1, 2)
        group = ints([self._rows[row][0] for row, _ in steps])
        row, sign = ints([row for row, _ in steps]), np.array([sign for _, sign in steps], np.int8)
        instants = Instants(NONE, NONE, NONE, slides=False)
        changes = Changes(row, sign, np.zeros(len(row), np.int64), instants, NONE, NONE, NONE)
        emissions = Emissions(np.arange(len(row)) + 1, group, row, row)
        found = self._labels.of(changes, group, kinds, emissions, GROUPS)
        wanted = []
        for number, step in steps:
            own, *labels = self._rows[number]
            for label in labels:
                self._there[own][label] += step
            wanted.append(frozenset(label for label, count in self._there[own].items() if count))
        return [found.sets[number] for number in found.numbers.tolist()], wanted


rows = st.lists(
    st.tuples(st.integers(0, GROUPS - 1), st.integers(0, 9), st.integers(1_000, 1_003)), min_size=1, max_size=40
)


@settings(max_examples=80, deadline=None)
@given(rows, st.randoms(use_true_random=False), st.booleans())
def test_a_group_has_the_labels_of_its_rows(given_rows: list[tuple[int, int, int]], rng: object, many: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if many:
            patch.setattr(group_labels, "MOST_CELLS", 16)
            patch.setattr(group_labels, "_MOST_SETS", 2)
        world, there = World(given_rows), list[int]()
        for _ in range(4):
            steps = []
            for row in range(len(given_rows)):
                if rng.random() < 0.5:  # type: ignore[attr-defined]
                    steps.append((row, -1 if row in there else 1))
                    there = [x for x in there if x != row] if row in there else [*there, row]
            found, wanted = world.batch(steps)
            assert found == wanted


def test_more_labels_than_a_cache_holds_keep_their_numbers() -> None:
    kinds = LabelKinds()
    labels = np.arange(20_000) * 3
    first = kinds.of(labels)
    assert kinds.of(labels[::-1].copy())[::-1].tolist() == first.tolist()
    assert [kinds.labels[kind] for kind in first.tolist()] == labels.tolist()


def test_equal_sets_have_one_number() -> None:
    world = World([(0, 1, 1_000), (1, 1, 1_000)])
    found, _ = world.batch([(0, 1), (1, 1)])
    assert found[0] is found[1]
