"""A large batch in pieces: operators take some ten thousand tuples at a time, so that what they compute on the way
stays in the cache of a processor. Results do not depend on where a batch is cut: they are those of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.operators.emit import NOTHING, Emitted
from headgate.operators.evaluation import BlockEmitted
from headgate.operators.label_sets import one_after_another
from headgate.operators.program import Block

SIZE = 1 << 16
"""How many tuples a piece has, but for those of its last instant, which stay together."""


def pieces(times: Ints, until: int) -> Iterator[tuple[slice, int]]:
    """Cuts tuples with these times, which ascend. Of each piece: its tuples, and the time before which all is final
    after it; for the last piece that is `until`."""
    begin = 0
    while len(times) - begin > SIZE:
        cut = int(times[begin + SIZE])
        end = begin + int(np.searchsorted(times[begin:], cut, side="left"))
        if end == begin:  # more tuples than a piece has come at one time
            end = begin + int(np.searchsorted(times[begin:], cut, side="right"))
            if end == len(times):
                break
            cut = int(times[end])
        yield slice(begin, end), cut
        begin = end
    yield slice(begin, len(times)), until


def joined(parts: Sequence[Sequence[BlockEmitted]]) -> list[BlockEmitted]:
    """The results of a batch from those of its pieces. A view that exceeds a limit with one of them receives nothing
    from the others."""
    if len(parts) == 1:
        return list(parts[0])
    together: dict[Block, list[BlockEmitted]] = {}
    for found in (x for part in parts for x in part):
        together.setdefault(found.block, []).append(found)
    return [x for block, found in together.items() for x in _of_block(block, found)]


def _of_block(block: Block, found: Sequence[BlockEmitted]) -> Iterator[BlockEmitted]:
    exceeded: dict[int, str] = {}
    for x in found:
        if x.exceeded:
            exceeded = {**dict.fromkeys(x.views, x.exceeded), **exceeded}
    for view, reason in exceeded.items():
        yield BlockEmitted(block, (view,), NOTHING, reason)
    results = [x for x in found if not x.exceeded]
    left = tuple(view for view in (results[0].views if results else ()) if view not in exceeded)
    if left:
        yield BlockEmitted(block, left, _one_after_another([x.emitted for x in results]))


def _one_after_another(parts: Sequence[Emitted]) -> Emitted:
    if len(parts) == 1:
        return parts[0]
    return Emitted(
        np.concatenate([x.time for x in parts]),
        np.concatenate([x.instant for x in parts]),
        tuple(np.concatenate(side) for side in zip(*(x.rows for x in parts), strict=True)),
        tuple(pa.concat_arrays(column) for column in zip(*(x.values for x in parts), strict=True)),
        one_after_another([x.labels for x in parts]),
    )
