"""Emit the results of a block (SPEC.md, 4.2): at each instant in their order, and with DISTINCT each result once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.operators.groups import Array
from headgate.operators.instants import Instants, ValidityIntervals
from headgate.operators.label_sets import LabelSets


@dataclass(frozen=True)
class Emitted:
    """The results of one block.

    instant: the number of each result's instant
    time: the time of that instant
    passed: how many tuples have arrived by then
    slides: whether the block slides
    rows: for each side, the positions of the tuples of a result's first row; results of an instant are ordered by them
    values: the columns of the results
    labels: the labels of all tuples that a result combines
    """

    instant: Ints
    time: Ints
    passed: Ints
    slides: bool
    rows: tuple[Ints, ...]
    values: tuple[pa.Array, ...]
    labels: LabelSets


def where_kind_changes(kinds: Ints, row: Ints, at: Ints, there: ValidityIntervals, operator: str) -> Ints:
    """Of rows with equal results, keep a new row only where no such row was there before, and a row that is gone only
    where none is left."""
    if operator == "RSTREAM":
        return np.arange(len(row))
    alive = there.seen | there.old
    size = np.int64(there.gone.max(initial=0) + there.first.max(initial=0) + 3)
    # Moment 0 is before all instants, moment i + 1 is instant i.
    begins = np.sort(kinds[alive] * size + np.where(there.old[alive], 0, there.first[alive] + 1))
    ends = np.sort(kinds[alive] * size + there.gone[alive] + 1)
    moment = kinds[row] * size + (at if operator == "ISTREAM" else at + 1)
    return np.flatnonzero(np.searchsorted(begins, moment, side="right") == np.searchsorted(ends, moment, side="right"))


def emitted(
    instants: Instants, at: Ints, sides: tuple[Ints, ...], values: Sequence[pa.Array], labels: LabelSets
) -> Emitted:
    return Emitted(at, instants.time[at], instants.passed[at], instants.sliding, sides, tuple(values), labels)


def by_instant(instant: Ints, rank: Ints, instants: int) -> Ints:
    """The order of groups at instants: by instant, then by rank."""
    place = np.full(instants, -1)
    place[instant] = np.arange(len(instant))
    alone = place[place >= 0]  # most often there is one group at an instant
    return alone if len(alone) == len(instant) else np.lexsort((rank, instant))


def first_of_each(kinds: Ints, at: Ints) -> tuple[Ints, Ints]:
    """The first of the rows with equal results at one instant, and for each row the number of its result."""
    _, first, kind = np.unique(kinds + at * (kinds.max(initial=0) + 1), return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return first[order], number[kind]


def any_of_each(bits: Array, number: Ints) -> Array:
    """The bits that any row of each result has."""
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    found: Array = np.bitwise_or.reduceat(bits[order], starts) if len(starts) else bits[:0]
    return found
