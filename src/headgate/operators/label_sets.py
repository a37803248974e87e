"""Sets of labels by number: which labels a result combines, without a list of the tuples that it combines.

Each distinct set is computed once; the work for each row is done on small numbers, whole columns at a time. Unions over
many rows are computed on bits, in as many words as the labels need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from headgate.columns.narrow import MOST, narrowed, renumbered, used, widened
from headgate.columns.sorting import Ints, dense
from headgate.operators.groups import Array

_WORD = 62
_MOST_BITS = 4 * _WORD
"""Up to this many labels are represented as bits; with more, each result has a list of labels."""
_WIDTHS = ((8, np.uint8), (16, np.uint16), (32, np.uint32), (_WORD, np.int64))


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


def side_by_side(sides: Sequence[LabelSets]) -> LabelSets:
    """The label sets of rows that combine one row of each side."""
    return reduce(_both, sides)


def together(rows: LabelSets, fold: Callable[[Array], Array], members: Callable[[], tuple[Ints, Ints]]) -> LabelSets:
    """The union of the label sets of each result's rows. `fold` combines one number for each row into one for each
    result, by bitwise or; `members` returns the pairs of a result and one of its rows, ordered by result."""
    if len(rows.sets) == 1:
        some = fold(np.ones(len(rows.numbers), np.uint8))
        return LabelSets(np.zeros(len(some), rows.numbers.dtype), rows.sets)
    labels = sorted(frozenset().union(*rows.sets))
    if len(labels) > _MOST_BITS:
        return _listed(rows, *members())
    return side_by_side(
        [_word(rows, labels[start : start + _WORD], fold) for start in range(0, max(len(labels), 1), _WORD)]
    )


def _listed(rows: LabelSets, result: Ints, row: Ints) -> LabelSets:
    """As `together`, from lists of labels, where each result has few of very many labels."""
    sizes = np.array([len(members) for members in rows.sets])
    flat = np.array([label for members in rows.sets for label in members], np.int64)
    kind = widened(rows.numbers)[row]
    begins, times = (np.cumsum(sizes) - sizes)[kind], sizes[kind]
    if (sizes == 1).all():
        label = flat[begins]
    else:
        within = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
        label, result = flat[np.repeat(begins, times) + within], np.repeat(result, times)
    listed, cuts = label.tolist(), (np.flatnonzero(np.diff(result)) + 1).tolist()
    sets = [frozenset(listed[a:b]) for a, b in zip((0, *cuts), (*cuts, len(listed)), strict=True)]
    known = {members: number for number, members in enumerate(dict.fromkeys(sets))}
    return LabelSets(narrowed(np.array([known[x] for x in sets], np.int64), len(known)), tuple(known))


def _word(rows: LabelSets, labels: list[int], fold: Callable[[Array], Array]) -> LabelSets:
    """As `together`, for one word of labels."""
    type_ = next(type_ for bits, type_ in _WIDTHS if len(labels) <= bits)
    bit = {label: 1 << place for place, label in enumerate(labels)}
    bits = np.array([sum(bit.get(label, 0) for label in members) for members in rows.sets], type_)
    kinds, numbers = dense(fold(bits[rows.numbers]).astype(np.int64))
    sets = tuple(frozenset(x for x in labels if bit[x] & kind) for kind in kinds.tolist())
    return LabelSets(narrowed(numbers, len(kinds)), sets)


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
