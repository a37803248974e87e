"""One partition of a running plan: the tuples it keeps, what each view's windows hold of them, and one batch more.

Views whose sight is the same, tuple for tuple, are one class and are computed once, however many they are and whoever
looks through them. A class splits where its views come to see different tuples, and two become one again when nothing
tells them apart any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.engine.kernels.rows import Bools, Ints
from headgate.engine.kernels.view import Evaluate, ViewRun, Yielded
from headgate.plan import nodes as n
from headgate.plan.binding import LEVEL

TIME, STREAM, ARRIVAL, LABEL, SIGHT = "time", "stream", "arrival", "label", "sight"
HIDDEN = 0
"""In a sight: this view does not see the tuple. Any other number is one more than the number of a mask."""

Sights = npt.NDArray[np.int32]
Mask = frozenset[tuple[str, str]]
"""Columns, with their streams, that a view may not see."""


@dataclass(frozen=True)
class Block:
    """A block of a query, by its number there."""

    query: str
    number: int
    top: n.Node


@dataclass(frozen=True)
class Program:
    """What a cell computes: blocks with windows, and blocks that tuples merely pass. `streams` are in the order of
    their names; `columns` says which column of the cell's table holds which column of which stream."""

    blocks: tuple[Block, ...]
    passing: tuple[Block, ...]
    streams: tuple[str, ...]
    columns: Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Sight:
    """Who sees what: for each sight (a row) and each view (a column) HIDDEN or a mask. `targets` say which block of
    which query a view looks at (no query: nobody looks any more); `since` and `until` are the times from and to which
    tuples become final with this batch; `levels` are the levels of labels, as text."""

    targets: tuple[tuple[str, int], ...]
    table: Sights
    masks: tuple[Mask, ...]
    since: Ints
    until: Ints
    levels: Mapping[int, str]


@dataclass(frozen=True)
class Class:
    """Views, what each window holds for them (as places in the cell's table), the last instants of their blocks."""

    views: tuple[int, ...]
    held: Mapping[str, Ints] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    table: pa.Table
    classes: tuple[Class, ...] = ()


@dataclass(frozen=True)
class Found:
    """The results of one block for some views; `table` is the cell's, for what `yielded` says of tuples."""

    block: Block
    views: tuple[int, ...]
    yielded: Yielded
    table: pa.Table


def advance(
    program: Program, cell: Cell, arriving: pa.Table, sight: Sight, evaluate: Evaluate
) -> tuple[Cell, list[Found]]:
    """The next batch: tuples that arrive, and times that become final."""
    table, classes = _ordered(cell, arriving)
    run = _Batch(program, table, sight, evaluate)
    found: list[Found] = []
    after: list[Class] = []
    for class_ in _refined(classes, sight, run.sights):
        moved, results = run.class_results(class_)
        after.append(moved)
        found += results
    return _kept(table, _joined(after, sight, run.sights), sight), found


def _ordered(cell: Cell, arriving: pa.Table) -> tuple[pa.Table, tuple[Class, ...]]:
    """All tuples in the order of SPEC.md, 4.2; places move with them."""
    table = pa.concat_tables([cell.table, arriving]).combine_chunks()
    keys = [table.column(name).to_numpy() for name in (ARRIVAL, STREAM, TIME)]
    order = np.lexsort(keys)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    classes = tuple(replace(c, held={key: np.sort(place[held]) for key, held in c.held.items()}) for c in cell.classes)
    return table.take(pa.array(order)).combine_chunks(), classes


def _refined(classes: Sequence[Class], sight: Sight, present: Ints) -> list[Class]:
    """Views that see the same of what is there stay together; views that are new begin with nothing."""
    known = {view for class_ in classes for view in class_.views}
    fresh = Class(tuple(view for view in range(len(sight.targets)) if view not in known))
    found = []
    for class_ in (*classes, fresh):
        together: dict[bytes, list[int]] = {}
        for view in class_.views:
            if sight.targets[view][0]:
                together.setdefault(_looks(view, sight, present), []).append(view)
        found += [replace(class_, views=tuple(views)) for views in together.values()]
    return found


def _looks(view: int, sight: Sight, present: Ints) -> bytes:
    """What tells views apart: what they see of what is there, and how far their time has come."""
    bounds = np.array([sight.since[view], sight.until[view]])
    return bytes(sight.table[present, view].tobytes() + bounds.tobytes())


def _joined(classes: Sequence[Class], sight: Sight, present: Ints) -> list[Class]:
    together: dict[tuple[object, ...], Class] = {}
    for class_ in classes:
        held = tuple(sorted((key, places.tobytes()) for key, places in class_.held.items() if len(places)))
        state = _looks(class_.views[0], sight, present), held, tuple(sorted(class_.last.items()))
        if state in together:
            class_ = replace(class_, views=tuple(sorted((*together[state].views, *class_.views))))
        together[state] = class_
    return list(together.values())


def _kept(table: pa.Table, classes: Sequence[Class], sight: Sight) -> Cell:
    """What some window still holds, and what is not final for everyone."""
    needed = np.zeros(table.num_rows, np.bool_)
    times, sights = table.column(TIME).to_numpy(), table.column(SIGHT).to_numpy()
    for class_ in classes:
        view = class_.views[0]
        needed |= (sight.table[sights, view] != HIDDEN) & (times >= sight.until[view])
        for held in class_.held.values():
            needed[held] = True
    place = np.cumsum(needed) - 1
    moved = tuple(replace(c, held={key: place[held] for key, held in c.held.items()}) for c in classes)
    return Cell(table.filter(pa.array(needed)).combine_chunks(), moved)


class _Batch:
    def __init__(self, program: Program, table: pa.Table, sight: Sight, evaluate: Evaluate) -> None:
        self._program = program
        self._table = table
        self._sight = sight
        self._evaluate = evaluate
        self._times = table.column(TIME).to_numpy()
        self._sights = table.column(SIGHT).to_numpy()
        self.sights: Ints = np.unique(self._sights)

    def class_results(self, class_: Class) -> tuple[Class, list[Found]]:
        """Where a class stands after the batch, and what its blocks yielded."""
        view = class_.views[0]
        since, until = int(self._sight.since[view]), int(self._sight.until[view])
        seen = self._sight.table[self._sights, view] != HIDDEN
        held = {key: places[seen[places]] for key, places in class_.held.items()}
        new = seen & (self._times >= since) & (self._times < until)
        taken = new.copy()
        for places in held.values():
            taken[places] = True
        places = np.flatnonzero(taken)
        position = np.cumsum(taken) - 1
        marks = {key: _mark(position[at], len(places)) for key, at in held.items()}
        tuples = Seen(self._program, self._table, places, self._sight, view)
        run = ViewRun(tuples, marks, self._evaluate, since, until, class_.last)
        targets = {self._sight.targets[v] for v in class_.views}
        blocks = [block for block in self._program.blocks if (block.query, block.number) in targets]
        table = self._table.take(pa.array(places))
        found = []
        for block in blocks:
            views = tuple(v for v in class_.views if self._sight.targets[v] == (block.query, block.number))
            yielded = run.results(block.top)
            if len(yielded.instant):
                found.append(Found(block, views, yielded, table))
        windows = {node.key: node for block in blocks for node in block.top.walk() if isinstance(node, n.Window)}
        content = {key: places[np.flatnonzero(run.content(window))] for key, window in windows.items()}
        return Class(class_.views, content, {**class_.last, **run.last_instants()}), found


def _mark(places: Ints, size: int) -> Bools:
    marked = np.zeros(size, np.bool_)
    marked[places] = True
    return marked


class Seen:
    """The tuples of a cell as one view sees them."""

    def __init__(self, program: Program, table: pa.Table, places: Ints, sight: Sight, view: int) -> None:
        self._program = program
        self._table = table
        self._places = pa.array(places)
        self._sight = sight
        self._masks = sight.table[table.column(SIGHT).to_numpy()[places], view] - 1
        self._columns: dict[tuple[str, str], pa.Array] = {}
        self.times: Ints = table.column(TIME).to_numpy()[places]
        self._streams = table.column(STREAM).to_numpy()[places]

    def of_stream(self, stream: str) -> Bools:
        return np.asarray(self._streams == self._program.streams.index(stream), np.bool_)

    def column(self, stream: str, name: str) -> pa.Array:
        key = stream, name
        if key not in self._columns:
            self._columns[key] = self._read(stream, name)
        return self._columns[key]

    def _read(self, stream: str, name: str) -> pa.Array:
        if name == LEVEL:
            labels = self._table.column(LABEL).take(self._places).combine_chunks().dictionary_encode()
            texts = pa.array([self._sight.levels[number] for number in labels.dictionary.to_pylist()], pa.string())
            return texts.take(labels.indices)
        array = self._table.column(self._program.columns[stream, name]).take(self._places).combine_chunks()
        hiding = [number for number, mask in enumerate(self._sight.masks) if (stream, name) in mask]
        if hiding:
            hidden = np.isin(self._masks, hiding)
            array = array.filter(pa.array(~hidden)).take(pa.array(np.cumsum(~hidden) - 1, mask=hidden))
        return array


def empty(table: pa.Schema) -> Cell:
    return Cell(table.empty_table())
