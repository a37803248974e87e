"""Aggregates over windows that lose nothing by themselves, against the oracle: rights that come and go, columns that
are hidden, restarts, any number of partitions, in both modes. Tuples are folded as often as possible, and faults that
are planted in that are found out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan import test_meaning as random_plans
from worlds import pipeline_worlds
from worlds.pipeline_replay import one_case
from worlds.pipeline_worlds import Author
from worlds.unbounded_queries import unbounded_query

from headgate.model.stream import StreamDescriptor
from headgate.operators import folding, partition, view_group
from headgate.operators.folding import Carried, Folded, Folding
from headgate.operators.grouping import Grouping
from headgate.operators.partition import Partition
from headgate.operators.view_group import Held, Operators
from headgate.plan.queries import Stream

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")

Fault = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of queries over streams with known columns, whose tuples have labels of their own; columns have them in few
    worlds. Windows are folded with every batch that brings them something."""
    for name in ("restless", "partitioned_query"):
        monkeypatch.setattr(pipeline_worlds, name, unbounded_query)
    monkeypatch.setattr(random_plans, "plain_query", unbounded_query)
    monkeypatch.setattr(pipeline_worlds, "TABLES", ())
    stream, descriptor = Author.stream, Author.descriptor

    def without_labels(self: Author, made: Stream) -> Stream:
        found = stream(self, made)
        return found if self.seed % 5 == 0 else replace(found, labels=())

    def with_labels(self: Author, made: Stream) -> StreamDescriptor:
        return replace(descriptor(self, made), labels={"ROLES": "p"})

    monkeypatch.setattr(Author, "stream", without_labels)
    monkeypatch.setattr(Author, "descriptor", with_labels)
    monkeypatch.setattr(view_group, "TIMES_FOLDED", 1)
    monkeypatch.setattr(view_group, "FEW_UNFOLDED", 0)


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often windows were folded that had tuples to fold, and how many of them had folded tuples before."""
    counts: Counter[str] = Counter()
    fold = Operators.fold

    def counting(self: Operators, *given: Any) -> Held:
        found = fold(self, *given)
        counts["folded"] += len(found.folded)
        counts["again"] += len(found.folded.keys() & self.folded.keys())
        return found

    monkeypatch.setattr(Operators, "fold", counting)
    return counts


def check(first: int, cases: int, folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + cases):
        one_case(seed, folder / str(seed), counts, unrest=seed % 4 != 0)
    return counts


def test_everyone_receives_what_the_oracle_says(tmp_path: Path, folded: Counter[str]) -> None:
    counts = check(0, 40, tmp_path)
    assert counts["exact results"] > 100 and counts["cumulative results"] > 20
    assert counts["restart"] > 40 and counts["lost"] > 5
    assert folded["folded"] > 60 and folded["again"] > 25


@pytest.mark.long
def test_everyone_receives_what_the_oracle_says_in_1000_cases(tmp_path: Path, folded: Counter[str]) -> None:
    print(dict(check(1000, 1000, tmp_path)), dict(folded))


def a_right_that_is_lost_is_not_taken_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "renumber_visibility", lambda *_: None)


def amounts_are_not_added_to_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Grouping, "carry", lambda *_: None)


def amounts_of_a_lost_label_stay(patch: pytest.MonkeyPatch) -> None:
    """Another tuple carries them on."""

    def all_of_them(self: Folded, tuples: Any) -> Folded:
        carried = {
            part: Carried(np.where(np.isin(x.carriers, tuples), x.carriers, tuples[0]), x.amounts)
            for part, x in self.parts.items()
        }
        return Folded(carried) if len(tuples) else Folded()

    patch.setattr(Folded, "among", all_of_them)


def what_was_folded_before_is_replaced(patch: pytest.MonkeyPatch) -> None:
    made = Folding.__init__

    def forgetting(self: Folding, tuples: Any, _: Folded, *others: Any) -> None:
        made(self, tuples, Folded(), *others)

    patch.setattr(Folding, "__init__", forgetting)


def the_carrier_is_not_the_first(patch: pytest.MonkeyPatch) -> None:
    def last(cell: Any) -> Any:
        found = np.full(int(cell.max(initial=-1)) + 1, -1)
        found[cell] = np.arange(len(cell))
        return found

    patch.setattr(folding, "_first", last)


def values_of_distinct_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Folding, "_single", lambda *_: np.empty(0, np.int64))


def cells_do_not_tell_labels_apart(patch: pytest.MonkeyPatch) -> None:
    made = Folding.__init__

    def alike(self: Folding, *given: Any) -> None:
        made(self, *given)
        self._origin = [x.take(np.zeros(len(x), np.int64)) for x in self._origin]

    patch.setattr(Folding, "__init__", alike)


def amounts_are_not_written(patch: pytest.MonkeyPatch) -> None:
    def nothing(folded: Folded, store: Any) -> Any:
        return folding.table_of(folded.among(np.empty(0, np.int64)), store)

    patch.setattr(partition, "table_of", nothing)


FAULTS: tuple[Fault, ...] = (
    a_right_that_is_lost_is_not_taken_out,
    amounts_are_not_added_to_groups,
    amounts_of_a_lost_label_stay,
    what_was_folded_before_is_replaced,
    the_carrier_is_not_the_first,
    values_of_distinct_are_not_kept,
    cells_do_not_tell_labels_apart,
    amounts_are_not_written,
)


RARE: dict[Fault, int] = {the_carrier_is_not_the_first: 80}
"""A fault that one world in thirty finds out: from which world on to look."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.replace("_", " "))
def test_a_fault_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        check(RARE.get(fault, 0), 80, tmp_path)
