"""The sequences of one view group: one for each input of windows, and one for each PARTITIONED window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.operators.block_rows import own_sequence, shared_sequence, windows_of
from headgate.operators.group_labels import LabelKinds
from headgate.operators.inputs import Inputs
from headgate.operators.partitioned_set import PartitionedSet
from headgate.operators.previous_instant import name_of
from headgate.operators.sequence import Sequence as Entered
from headgate.operators.tuple_store import TupleStore
from headgate.operators.visible import Reader
from headgate.operators.window_set import WindowSet
from headgate.plan import nodes as n
from headgate.plan import steps

_PART = 1 << 18
"""So many tuples that were held before enter at once: what is computed on the way stays small."""


class Sequences:
    """by_name: the sequence that each window reads; the input of each is computed after those that it is computed from

    `query` is one of the queries of the blocks, which are given by their trees and their rows; `windows` are what
    windows held before, by name (`view_group.Held`).
    """

    def __init__(
        self,
        store: TupleStore,
        kinds: LabelKinds,
        query: str,
        blocks: Iterable[tuple[n.Node, n.Node]],
        windows: Mapping[str, Ints],
    ) -> None:
        self._store = store
        self.by_name: dict[str, Entered] = {}
        self._inputs: dict[str, n.Node] = {}
        self._steps: dict[str, str] = {}
        self._bases: dict[str, n.Select | None] = {}
        """The selections below windows, each after the one that it is computed from."""
        self._fill(kinds, blocks, windows)
        self._put_in_order(query)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.by_name))

    def _fill(self, kinds: LabelKinds, blocks: Iterable[tuple[n.Node, n.Node]], windows: Mapping[str, Ints]) -> None:
        """Let enter what windows held; positions are those of all these tuples together."""
        everything = self._store.together([*windows.values()])
        place = np.empty(int(everything.max(initial=-1)) + 1, np.int64)
        place[everything] = np.arange(-len(everything), 0)
        tuples: dict[str, list[Ints]] = {}
        for top, rows in blocks:
            for name, window in sequence_names(rows):
                self._inputs[name] = window.input
                self._steps[name] = steps.sequence(window, rows)
                tuples.setdefault(name, []).extend(
                    windows[key] for key in (window.key, name_of(top, window)) if key in windows
                )
        for name, parts in tuples.items():
            entered = self._store.together(parts)
            self.by_name[name] = Entered(self._store, kinds)
            for first in range(0, len(entered), _PART):
                part = entered[first : first + _PART]
                self.by_name[name].enter(part, place[part])

    def _put_in_order(self, query: str) -> None:
        selections = {x.key: x for x in self._inputs.values() if isinstance(x, n.Select)}
        if selections:
            bases = self._store.program.bases(query, selections.values())
            self._bases = {select.key: base for select, base in bases}
            order = {key: place for place, key in enumerate(self._bases)}
            self.by_name = dict(sorted(self.by_name.items(), key=lambda x: order.get(self._inputs[x[0]].key, -1)))

    def inputs(self, finals: Ints, reader: Reader) -> Inputs:
        """The inputs of windows, for tuples that become final."""
        return Inputs(finals, self._bases, reader)

    def input_of(self, name: str) -> n.Node:
        return self._inputs[name]

    def enter(self, name: str, finals: Ints, entering: Bools, first: int, reader: Reader) -> None:
        """Let those of the tuples enter that its input lets through; `first` is the position of the first tuple."""
        with reader.profile.running(self._steps[name]) as step:
            places = np.flatnonzero(entering)
            self.by_name[name].enter(finals[places], places + first)
            step.count(len(finals), len(places))

    def close(self, window: PartitionedSet) -> None:
        """The window is gone, and with it its sequence."""
        window.close()
        self.by_name = {name: x for name, x in self.by_name.items() if x is not window.sequence}

    def trim(self, windows: Iterable[WindowSet | PartitionedSet]) -> None:
        """Let go of rows that none of these windows, which are all, holds any more."""
        first: dict[str, int] = {}
        for window in windows:
            if isinstance(window, WindowSet):
                name = shared_sequence(window.window)
                first[name] = min(first.get(name, window.first), window.first)
        for name, sequence in self.by_name.items():
            if " " not in name:
                sequence.forget(first.get(name, sequence.end))

    def forget_all(self) -> None:
        for sequence in self.by_name.values():
            sequence.forget(sequence.end)


def sequence_names(rows: n.Node) -> Sequence[tuple[str, n.Window]]:
    """The sequence that each window of the rows reads; each PARTITIONED window has its own."""
    sides = rows.sides if isinstance(rows, n.Join) else (rows,)
    found, alike = [], Counter[str]()
    for side in sides:
        for window, _ in windows_of(side):
            name = shared_sequence(window)
            if window.kind == "PARTITIONED":
                alike[side.key] += 1
                name = own_sequence(rows, side, alike[side.key])
            found.append((name, window))
    return found
