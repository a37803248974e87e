"""Sets of labels by number: which labels a result combines, without a list of the tuples that it combines.

Each distinct set is computed once; the work for each row is done on small numbers, whole columns at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from headgate.columns.narrow import MOST, narrowed, renumbered, used, widened
from headgate.columns.sorting import Ints, dense


@dataclass(frozen=True)
class LabelSets:
    """For each row the number of its set (one byte if there are few sets: columns/narrow.py), and the sets."""

    numbers: Ints
    sets: tuple[frozenset[int], ...]

    def at(self, rows: Ints) -> LabelSets:
        if len(self.sets) == 1:
            return LabelSets(np.zeros(len(rows), self.numbers.dtype), self.sets)
        return LabelSets(self.numbers[rows], self.sets)


def label_sets(labels: Ints) -> LabelSets:
    """The label sets of rows with one label each."""
    kinds, numbers = dense(labels)
    return LabelSets(narrowed(numbers, len(kinds)), tuple(frozenset({kind}) for kind in kinds.tolist()))


def one_after_another(parts: Sequence[LabelSets]) -> LabelSets:
    """The label sets of the rows of several parts."""
    known: dict[frozenset[int], int] = {}
    others = [[known.setdefault(members, len(known)) for members in part.sets] for part in parts]
    numbers = [
        narrowed(part.numbers, len(known)) if own == list(range(len(own))) else _given(part.numbers, own, len(known))
        for part, own in zip(parts, others, strict=True)
    ]
    return LabelSets(np.concatenate(numbers), tuple(known))


def _given(numbers: Ints, others: Sequence[int], kinds: int) -> Ints:
    """Replaces number n by `others[n]`, in the narrowest type for so many kinds."""
    return renumbered(narrowed(numbers, kinds), others) if kinds <= MOST else np.array(others, np.int64)[numbers]


def side_by_side(sides: Sequence[LabelSets]) -> LabelSets:
    """The label sets of rows that combine one row of each side."""
    return reduce(_both, sides)


def _both(a: LabelSets, b: LabelSets) -> LabelSets:
    if len(a.sets) == 1 and a.sets == b.sets:
        return a
    pairs, numbers = _pairs(a, b)
    unions = {pair: a.sets[pair // len(b.sets)] | b.sets[pair % len(b.sets)] for pair in pairs if pair >= 0}
    known = {members: number for number, members in enumerate(dict.fromkeys(unions.values()))}
    sets = tuple(known)
    return LabelSets(narrowed(renumbered(numbers, [known[unions[x]] if x >= 0 else 0 for x in pairs]), len(sets)), sets)


def _pairs(a: LabelSets, b: LabelSets) -> tuple[list[int], Ints]:
    """The pairs of their sets, each as a number, or -1 where no row has it; and for each row the position of its
    pair."""
    most = len(a.sets) * len(b.sets)
    if most > MOST:
        pairs, numbers = dense(widened(a.numbers) * len(b.sets) + b.numbers)
        return pairs.tolist(), numbers
    numbers = narrowed(a.numbers, most) * np.uint8(len(b.sets)) + narrowed(b.numbers, most)
    return np.where(used(numbers, most), np.arange(most), -1).tolist(), numbers
