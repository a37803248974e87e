"""Texts by slot, in arrays that compiled loops can read: all bytes lie in one heap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.arguments import whole
from headgate.loops.arrays import grown, zeros
from headgate.loops.compiled import compiled

Ints = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


class TextHeap:
    """Texts as UTF-8, or any bytes.

    - `begin`, `length`: by slot, where the text is in `heap`; a slot without a text has length 0;
    - `heap`: bytes; those of replaced and dropped texts are garbage until the heap is rewritten.

    The arrays are replaced when they grow: read the attributes again after each `put` and `drop`.
    """

    def __init__(self) -> None:
        self.begin: Ints = np.zeros(0, np.int64)
        self.length: Lengths = np.zeros(0, np.int32)
        self.heap: Bytes = np.empty(0, np.uint8)
        self._end = 0  # of what is written in `heap`
        self._live = 0  # bytes of texts that slots have

    @property
    def nbytes(self) -> int:
        return self.begin.nbytes + self.length.nbytes + self.heap.nbytes

    def grow(self, capacity: int) -> None:
        """Makes room for slots below `capacity`."""
        self.begin, self.length = grown(self.begin, capacity), grown(self.length, capacity)

    def put(self, slots: Ints, data: Bytes, places: Ints) -> None:
        """Gives each slot the text between its place in `data` and the next one. Slots are below the capacity."""
        end = self._end + len(data)
        if end > len(self.heap):
            heap = zeros(max(end, len(self.heap) + len(self.heap) // 2), np.uint8)
            heap[: self._end] = self.heap[: self._end]
            self.heap = heap
        self.heap[self._end : end] = data
        self._live += _point(whole(slots), whole(places), self._end, self.begin, self.length)
        self._end = end
        self._rewrite_if_worth_it()

    def drop(self, slots: Ints) -> None:
        """Leaves these slots without a text."""
        self._live -= _forget(whole(slots), self.length)
        self._rewrite_if_worth_it()

    def take(self, slots: Ints) -> tuple[Bytes, Ints]:
        """The texts of these slots, one after the other, and their places."""
        places = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(self.length[slots], out=places[1:])
        return _gathered(whole(slots), self.begin, self.heap, whole(places)), places

    def _rewrite_if_worth_it(self) -> None:
        """A rewrite visits all slots and all live bytes, so it waits until as many bytes are garbage: then each byte
        that became garbage pays for a constant part of it."""
        if self._end - self._live > self._live + len(self.begin):
            heap = zeros(self._live + self._live // 2, np.uint8)
            self._end = _rewrite(self.begin, self.length, self.heap, heap)
            self.heap = heap


@compiled
def _point(slots: Ints, places: Ints, start: int, begin: Ints, length: Lengths) -> int:
    """Writes where the texts are; returns by how much the live bytes grow."""
    more = 0
    for n in range(len(slots)):
        slot, size = slots[n], places[n + 1] - places[n]
        more += size - length[slot]
        begin[slot] = start + places[n]
        length[slot] = size
    return more


@compiled
def _forget(slots: Ints, length: Lengths) -> int:
    freed = 0
    for slot in slots:
        freed += length[slot]
        length[slot] = 0
    return freed


@compiled
def _gathered(slots: Ints, begin: Ints, heap: Bytes, places: Ints) -> Bytes:
    """Copies texts; those that lie one after the other, as rows of one batch do, at once."""
    found = np.empty(places[-1], np.uint8)
    n = 0
    while n < len(slots):
        first, source = n, begin[slots[n]]
        n += 1
        while n < len(slots) and begin[slots[n]] == source + places[n] - places[first]:
            n += 1
        for place in range(places[n] - places[first]):
            found[places[first] + place] = heap[source + place]
    return found


@compiled
def _rewrite(begin: Ints, length: Lengths, heap: Bytes, into: Bytes) -> int:
    """Copies what is live, by slot, and returns where it ends."""
    end = 0
    for slot in range(len(begin)):
        source = begin[slot]
        for place in range(length[slot]):
            into[end + place] = heap[source + place]
        begin[slot] = end
        end += length[slot]
    return end
