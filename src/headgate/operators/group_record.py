"""The record of a view group: the few facts from which, with the tuples of the segments, all it holds can be derived.

A window holds what entered its input since its first tuple: the tuples that the views see, that are final for them, and
that meet the conditions below the window. A PARTITIONED window holds the last of these in each of its partitions. Two
things cannot be derived after a change of rights: that a tuple did not meet a condition while a column was not hidden
yet, and which tuples a lost one had displaced. There the tuples that a window held are listed in a file of their own,
and so are those that a window kept when it was last folded, with another file for what it has folded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns.factorize import codes
from headgate.columns.sorting import Bools, Ints, stable_order
from headgate.model.times import NO_TIME
from headgate.operators.block_rows import windows_of
from headgate.operators.blocks import Shape
from headgate.operators.folding import folded_of
from headgate.operators.inputs import Inputs
from headgate.operators.previous_instant import name_of, previous_rows
from headgate.operators.program import ARRIVAL, STREAM, TIME, Block
from headgate.operators.reading import stream_of
from headgate.operators.segments import Read
from headgate.operators.tuple_store import TupleStore
from headgate.operators.view_group import Held
from headgate.operators.visible import Reader
from headgate.plan import nodes as n

Start = tuple[int, str, int] | None
"""The time, stream and arrival number of a window's first tuple; None if it holds the last of each partition."""


@dataclass(frozen=True)
class Listed:
    """The tuples that a window held when all times before `until` were final, in a file of their arrival numbers. Of
    later tuples it holds those that entered."""

    file: str
    until: int


@dataclass(frozen=True)
class GroupRecord:
    """views: the numbers of the views
    last: the time of the last instant of each block, by the key of its rows
    starts: where what a window holds begins, by name (`view_group.Held`); a window that holds nothing is left out
    listed: the windows whose tuples are listed
    folded: the files of what windows have folded, by the window's key
    """

    views: tuple[int, ...]
    last: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, Start] = field(default_factory=dict)
    listed: Mapping[str, Listed] = field(default_factory=dict)
    folded: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return {
            "views": self.views,
            "last": dict(self.last),
            "starts": dict(self.starts),
            "listed": {name: [x.file, x.until] for name, x in self.listed.items()},
            "folded": dict(self.folded),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> GroupRecord:
        starts = {name: None if x is None else (x[0], x[1], x[2]) for name, x in plain["starts"].items()}
        listed = {name: Listed(*x) for name, x in plain["listed"].items()}
        return cls(tuple(plain["views"]), plain["last"], starts, listed, plain["folded"])


def named_windows(blocks: Sequence[Block]) -> Iterator[tuple[str, n.Window, str | None]]:
    """The windows of blocks by the names under which what they hold is recorded; and the key of the block's rows, if
    that is what they held at the block's previous instant."""
    for block in blocks:
        rows, before = Shape.of(block.top).rows, previous_rows(block.top)
        for window, _ in windows_of(rows):
            yield window.key, window, None
            if window in before:
                yield name_of(block.top, window), window, rows.key


def needs_listing(window: n.Window) -> bool:
    """Whether what a window holds cannot be derived after a change of rights."""
    return window.kind == "PARTITIONED" or isinstance(window.input, n.Select)


def position_of(store: TupleStore, tuple_: int) -> Start:
    """The start of a window with this first tuple; -1: it holds the last of each partition."""
    if tuple_ < 0:
        return None
    time, stream, arrival = (int(store.numbers(x)[tuple_]) for x in (TIME, STREAM, ARRIVAL))
    return time, store.program.streams[stream], arrival


def derived(
    record: GroupRecord, store: TupleStore, blocks: Sequence[Block], order: Ints, until: int, reader: Reader, read: Read
) -> Held:
    """What the windows of a view group hold: of all tuples, in `order`, those that entered before `until`."""
    there = reader.tuples.visible(order[: store.before(order, until)])
    inputs: dict[str, Ints] = {}
    windows: dict[str, Ints] = {}
    for name, window, rows in named_windows(blocks):
        if name not in record.starts or name in windows:
            continue
        if window.input.key not in inputs:
            entering = Inputs(there, {}, reader).entering(window.input)
            inputs[window.input.key] = there if entering.all() else there[entering]
        found = _since(inputs[window.input.key], store, record.starts[name])
        if rows is not None:
            found = found[: store.before(found, record.last.get(rows, NO_TIME) + 1)]
        if name in record.listed:
            found = found[_listed(found, store, record.listed[name], read)]
        if window.kind == "PARTITIONED":
            found = found[_last_of_each(found, window, reader)]
        windows[name] = found
    folded = {x: folded_of(read(file), windows[x], store) for x, file in record.folded.items() if x in windows}
    return Held(windows, record.last, folded)


def _since(tuples: Ints, store: TupleStore, start: Start) -> Ints:
    """The tuples from a position on."""
    if start is None:
        return tuples
    time, name, arrival = start
    streams = store.program.streams
    stream = bisect_left(streams, name)
    return tuples[store.before(tuples, time, stream, *((arrival,) if name in streams else ())) :]


def _listed(tuples: Ints, store: TupleStore, listed: Listed, read: Read) -> Bools:
    arrivals = read(listed.file).column(ARRIVAL).to_numpy()
    return np.isin(store.numbers(ARRIVAL)[tuples], arrivals) | (store.numbers(TIME)[tuples] >= listed.until)


def listing(tuples: Ints, store: TupleStore) -> pa.Table:
    """The content of the file that lists these tuples."""
    return pa.table({ARRIVAL: np.sort(store.numbers(ARRIVAL)[tuples])})


def _last_of_each(tuples: Ints, window: n.Window, reader: Reader) -> Bools:
    """Which tuples are among the last of their partition."""
    kept = np.ones(len(tuples), np.bool_)
    if len(tuples):
        columns = [reader.tuples.column(stream_of(window), column.name, tuples) for column in window.partition]
        partition = codes(columns, null_is_a_value=True)
        order = stable_order(partition)
        later = order[window.rows :]
        displaced = order[: len(later)]
        kept[displaced[partition[displaced] == partition[later]]] = False
    return kept
