"""Results on their way out: in their order, with the labels they combine, decided at the very last moment (SecFilter).

A kernel says which labels a result combines, by number. Here they become one label, and one decision for each
different set of them; nothing that a view has computed is delivered to somebody whose rights of now do not permit it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from headgate.engine.kernels.cell import ARRIVAL, LABEL, STREAM, TIME, Found
from headgate.engine.kernels.rows import Ints
from headgate.errors import LabelError
from headgate.labels import FALSE, Clearance, Label, Level, Rules


@dataclass(frozen=True)
class Batch:
    """Results of one block for some views, in order. `labels` numbers sets of labels, `sets` are these; `order` are the
    columns by which results of several batches are brought into one order."""

    query: str
    block: int
    views: tuple[int, ...]
    time: Ints
    values: tuple[pa.Array, ...]
    labels: Ints
    sets: tuple[frozenset[int], ...]
    order: tuple[Ints, ...]

    def __len__(self) -> int:
        return len(self.time)


def packed(found: Found, *, passing: bool) -> Batch:
    """What a kernel found, without the tuples it was found from."""
    yielded, table = found.yielded, found.table
    numbers, sets = _label_sets(yielded.result, table.column(LABEL).to_numpy()[yielded.member], len(yielded.instant))
    times, streams, arrivals = (table.column(name).to_numpy().astype(np.int64) for name in (TIME, STREAM, ARRIVAL))
    if passing:
        order = (arrivals[yielded.rows[0]],)
    else:
        last = np.maximum(yielded.passed - 1, 0)
        slides = np.full(len(yielded.instant), int(yielded.slides))
        moment = (streams[last], arrivals[last])
        instant = tuple(np.zeros_like(x) for x in moment) if yielded.slides else moment
        rows = tuple(key[side] for side in yielded.rows for key in (times, streams, arrivals))
        order = (yielded.time, slides, *instant, *rows)
    block = found.block
    return Batch(block.query, block.number, found.views, yielded.time, yielded.values, numbers, sets, order)


def _label_sets(result: Ints, label: Ints, size: int) -> tuple[Ints, tuple[frozenset[int], ...]]:
    """For each result the number of its set of labels, and the sets."""
    kinds, kind = np.unique(label, return_inverse=True)
    if len(kinds) <= 62:  # a set is a number
        bits = np.zeros(size, np.int64)
        np.bitwise_or.at(bits, result, np.int64(1) << kind.astype(np.int64))
        found, numbers = np.unique(bits, return_inverse=True)
        sets = tuple(frozenset(int(kinds[i]) for i in range(len(kinds)) if bit >> i & 1) for bit in found.tolist())
        return numbers.astype(np.int64), sets
    members: list[set[int]] = [set() for _ in range(size)]
    for at, which in zip(result.tolist(), label.tolist(), strict=True):
        members[at].add(which)
    known: dict[frozenset[int], int] = {}
    numbered = np.array([known.setdefault(frozenset(x), len(known)) for x in members], np.int64)
    return numbered, tuple(known)


def combined(rules: Rules, level: Level, labels: Iterable[Label]) -> Label:
    """The label of a result: all its inputs' protection, and the level of its query. What cannot be combined is for
    nobody."""
    least = rules.normal(Label(levels=frozenset({level})))
    try:
        return reduce(rules.combine, dict.fromkeys(labels), least)
    except LabelError:
        return Label(FALSE)


def permitted(
    batch: Batch, labels: Mapping[int, Label], clearance: Clearance, rules: Rules, *, level: Level, aggregated: bool
) -> tuple[Ints, list[Label]]:
    """Which results this clearance may have, at this moment, and the labels of all of the batch's sets."""
    whole = [combined(rules, level, (labels[number] for number in sorted(members))) for members in batch.sets]
    fine = np.array([rules.permits(label, clearance, aggregated=aggregated) for label in whole], np.bool_)
    return np.flatnonzero(fine[batch.labels]) if len(whole) else np.empty(0, np.int64), whole
