"""Blocks without windows: each tuple that arrives yields its result at once, or none (SPEC.md, 4.2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.engine.kernels.cell import NOTHING, Found
from headgate.engine.kernels.given import HIDDEN, SIGHT, Block, Program, Sight
from headgate.engine.kernels.limits import TooMuch, bounded, limited
from headgate.engine.kernels.reading import Evaluate, meets, values_of
from headgate.engine.kernels.rows import Bools, Ints
from headgate.engine.kernels.tuples import Seen, Tuples
from headgate.engine.kernels.yielding import Yielded

_MANY = 16
"""Who sees more than one of so many tuples looks at all of them: that is faster than to sort those it sees."""


def passing(program: Program, arriving: pa.Table, sight: Sight, evaluate: Evaluate) -> list[Found]:
    """The results of all blocks without windows, for tuples in the order of their arrival. Views that see the same of
    them are computed once."""
    looking: dict[tuple[str, int], list[int]] = {}
    for view, target in enumerate(sight.targets):
        looking.setdefault(target, []).append(view)
    blocks = [block for block in program.passing if block.target in looking]
    if not blocks or not arriving.num_rows:
        return []
    tuples = Tuples(program, arriving)
    by_sight = _BySight(tuples.numbers(SIGHT), tuples.present)
    looks = np.ascontiguousarray(sight.table[tuples.present].T)
    known: dict[bytes, Seen] = {}
    found = []
    for block in blocks:
        together: dict[bytes, list[int]] = {}
        for view in looking[block.target]:
            together.setdefault(looks[view].tobytes(), []).append(view)
        for look, views in together.items():
            if look not in known:  # others who look at other blocks may see the same
                known[look] = Seen(tuples, by_sight.of(looks[views[0]] != HIDDEN), sight, views[0])
            seen = known[look]
            if not len(seen):
                continue
            try:
                with limited(sight.limits):
                    yielded = _passed(block, seen, bounded(evaluate))
            except TooMuch as exceeded:
                found.append(Found(block, tuple(views), NOTHING, seen, str(exceeded)))
                continue
            if len(yielded.instant):
                found.append(Found(block, tuple(views), yielded, seen))
    return found


class _BySight:
    """The places of tuples by their sights: who sees few of many tuples does not look at all of them."""

    def __init__(self, sights: Ints, present: Ints) -> None:
        number = np.searchsorted(present, np.arange(present[-1] + 1))[sights]
        small = len(present) <= 1 << 16
        self._number = number
        self._order = np.argsort(number.astype(np.uint16) if small else number, kind="stable")
        self._ends = np.cumsum(np.bincount(number, minlength=len(present)))

    def of(self, seen: Bools) -> Ints | None:
        """The places of those with these sights, in order; None for all."""
        which = np.flatnonzero(seen).tolist()
        if len(which) == len(seen):
            return None
        ends = self._ends
        parts = [self._order[ends[at - 1] if at else 0 : ends[at]] for at in which]
        if not parts:
            return np.empty(0, np.int64)
        if sum(map(len, parts)) > len(self._number) // _MANY:
            return np.flatnonzero(seen[self._number])
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))


def _passed(block: Block, tuples: Seen, evaluate: Evaluate) -> Yielded:
    items, conditions, stream = block.passes
    places = np.flatnonzero(tuples.of_stream(stream))
    if conditions:
        values = values_of(tuples, [stream], (places,), conditions)
        places = places[meets(evaluate, conditions, values, len(places))]
    results = evaluate(items, values_of(tuples, [stream], (places,), items), len(places))
    number = np.arange(len(places))
    return Yielded(number, tuples.times[places], places + 1, False, (places,), tuple(results), tuples.labels.at(places))
