"""The running operators of one view group: views that see the same tuples with the same columns. Each operator is there
once, however many views and queries read it, and is kept from batch to batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headgate.columns.sorting import Ints
from headgate.expressions.limits import Evaluate, Limited
from headgate.model.budget import LimitExceeded, Meter, hold
from headgate.model.times import NO_TIME
from headgate.model.visibility import Visibility
from headgate.operators.accumulators import adds_up
from headgate.operators.block_rows import BlockRows, Changes, Finals, windows_of
from headgate.operators.blocks import AllRows, Shape, grouping_of
from headgate.operators.emit import NOTHING
from headgate.operators.evaluation import BlockEmitted, Evaluation
from headgate.operators.folding import Folded, Folding, foldable, part_of
from headgate.operators.group_labels import LabelKinds
from headgate.operators.grouping import Grouping
from headgate.operators.inputs import Inputs
from headgate.operators.partitioned_set import PartitionedSet
from headgate.operators.pieces import joined, pieces
from headgate.operators.previous_instant import name_of, previous_rows
from headgate.operators.profile import Profile
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, Block
from headgate.operators.reading import stream_of
from headgate.operators.rowsets import TableSet
from headgate.operators.sequences import Sequences, sequence_names
from headgate.operators.state_size import changes
from headgate.operators.tuple_store import TupleStore, VisibleTuples
from headgate.operators.visible import Reader
from headgate.operators.window_set import WindowSet
from headgate.plan import nodes as n
from headgate.plan import steps

_NONE = np.empty(0, np.int64)
FEW_KEYS = 1 << 16
"""So many keys are never too many."""
FEW_UNFOLDED, TIMES_FOLDED = 1 << 16, 2
"""A window is folded when it keeps so many tuples, and so many times those that it kept after it was folded before."""


@dataclass(frozen=True)
class Held:
    """What the windows of a view group hold, from which all its operators can be built again.

    windows: by the window's key, the tuples that it holds, in order; and what some windows held at the previous instant
        of a block that compares with it (`previous_instant.name_of`)
    last: the time of the last instant of each block, by the key of its rows
    folded: what some windows hold beside these tuples, by the window's key
    """

    windows: Mapping[str, Ints] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)
    folded: Mapping[str, Folded] = field(default_factory=dict)


class Operators:
    """The operators of these blocks. `tables` are the tuples of tables, in order."""

    def __init__(
        self,
        store: TupleStore,
        blocks: Sequence[Block],
        visibility: Visibility,
        view: int,
        evaluate: Evaluate,
        tables: Ints,
        held: Held,
    ) -> None:
        self._store = store
        self._evaluate = evaluate
        self.profile = Profile()
        """What the operators did since they were built."""
        self._kinds = LabelKinds()
        self._position = 1
        """The position of the next tuple. What windows hold already has positions below 0."""
        self.blocks = tuple(blocks)
        self._shapes = {block.target: Shape.of(block.top) for block in blocks}
        self._kept = {shape.rows.key for shape in self._shapes.values() if shape.kept}
        self._rows: dict[tuple[str, bool], BlockRows] = {}
        self._groupings: dict[tuple[object, ...], Grouping] = {}
        self._all: dict[str, AllRows] = {}
        self._failed: dict[tuple[str, int], str] = {}
        """Blocks that cannot go on, and why."""
        self.folded: Mapping[str, Folded] = {}
        """What windows hold beside the tuples that they keep."""
        self._begin(self._reader(visibility, view), tables, held, visibility)
        self._keys_at_first = self._keys
        self._stored_at_first = {key: self._stored(key) for key in self._foldable}

    def _reader(self, visibility: Visibility, view: int, profile: Profile | None = None) -> Reader:
        return Reader(VisibleTuples(self._store, visibility, view), self._evaluate, profile)

    # Building ---------------------------------------------------------------------------------------------------------

    def _begin(self, reader: Reader, tables: Ints, held: Held, visibility: Visibility) -> None:
        there = self._checked(reader, held)
        self.folded = there.folded
        trees = [(block.top, self._shapes[block.target].rows) for block in self.blocks]
        self._sequences = Sequences(self._store, self._kinds, self.blocks[0].query, trees, there.windows)
        for block in self.blocks:
            self._add(block, reader, tables)
        for key, rows in list(self._rows.items()):
            try:
                with Limited(visibility.limits, Meter({})):
                    self._begin_rows(key, rows, there, reader)
            except LimitExceeded as error:
                self._fail((x for x in self.blocks if self._rows_key(self._shapes[x.target]) == key), str(error))
                self._end(key)
        self._trim()

    def _begin_rows(self, key: tuple[str, bool], rows: BlockRows, held: Held, reader: Reader) -> None:
        changes = rows.begin(held.windows, self._before(rows, held), held.last.get(key[0], NO_TIME), reader)
        for grouping in self._groupings_of(key).values():
            grouping.begin(changes, reader)
        for window in rows.windows:
            if window.window.key in held.folded:
                window.folded = held.folded[window.window.key].tuples
                self._take_folded(rows, window, held.folded[window.window.key])
        if key[0] in self._all and key[1]:
            self._all[key[0]].advance(changes)
        rows.release()

    def _take_folded(self, rows: BlockRows, window: WindowSet | PartitionedSet, folded: Folded) -> None:
        """Let groups have what their rows carry. A part that was not folded for is a mistake, never nothing."""
        slots = window.sequence.order(window.sequence.first, window.sequence.end)
        tuples = window.sequence.tuples(slots)
        order = np.argsort(tuples)
        done = set[tuple[object, ...]]()
        for shape in (x for x in self._shapes.values() if x.rows.key == rows.node.key):
            name = shape.grouping(bool(rows.slide))
            for call in shape.calls:
                carried = folded.parts[part_of(shape, call)]
                if adds_up(call) and (name, call) not in done:
                    done.add((name, call))
                    places = order[np.searchsorted(tuples, carried.carriers, sorter=order)]
                    self._groupings[name].carry(call, slots[places], carried.amounts)

    def _groupings_of(self, key: tuple[str, bool]) -> dict[tuple[object, ...], Grouping]:
        return {name: x for name, x in self._groupings.items() if name[0] == key[0] and key[1]}

    def _fail(self, blocks: Iterable[Block], reason: str) -> None:
        for block in blocks:
            self._failed.setdefault(block.target, reason)

    def _checked(self, reader: Reader, held: Held) -> Held:
        """What is left of what windows held: a column that was lost may have been the reason why a tuple entered."""
        windows = {}
        for block in self.blocks:
            shape = self._shapes[block.target]
            for window, _ in windows_of(shape.rows):
                for name in (window.key, name_of(block.top, window)):
                    if name in held.windows:
                        tuples = held.windows[name]
                        windows[name] = tuples[Inputs(tuples, {}, reader).entering(window.input)]
        folded = {name: x.among(windows[name]) for name, x in held.folded.items() if name in windows}
        return Held(windows, held.last, {name: x for name, x in folded.items() if x.tuples})

    def _before(self, rows: BlockRows, held: Held) -> dict[str, Ints]:
        found = {}
        for block in self.blocks:
            if self._shapes[block.target].rows.key == rows.node.key:
                for window in previous_rows(block.top):
                    name = name_of(block.top, window)
                    if name in held.windows:
                        found[window.key] = held.windows[name]
        return found

    def _add(self, block: Block, reader: Reader, tables: Ints) -> None:
        shape = self._shapes[block.target]
        key = self._rows_key(shape)
        if key not in self._rows:
            sets = {side.key: self._table(side, reader, tables) for side in _tables_of(shape.rows)}
            self._rows[key] = BlockRows(shape.rows, self._sequences.by_name, sets, kept=shape.rows.key in self._kept)
        rows = self._rows[key]
        if shape.aggregate is not None or shape.distinct:
            name = shape.grouping(bool(rows.slide))
            if name not in self._groupings:
                self._groupings[name] = grouping_of(shape, rows, self._kinds)
            for call in shape.aggregate.calls if shape.aggregate else ():
                self._groupings[name].add(call)
        elif shape.operator == "RSTREAM" and rows.node.key not in self._all:
            self._all[rows.node.key] = AllRows(rows)

    def _rows_key(self, shape: Shape) -> tuple[str, bool]:
        return shape.rows.key, shape.rows.key in self._kept or not isinstance(shape.rows, n.Join)

    def _table(self, side: n.Node, reader: Reader, tables: Ints) -> TableSet:
        stream = stream_of(side)
        with self.profile.running(steps.reading(side.input if isinstance(side, n.Select) else side)) as step:
            tuples = tables[reader.tuples.of_stream(stream, tables)]
            tuples = reader.tuples.visible(tuples)
            step.held = len(tuples)  # not counted: how often a table is read depends on others
        if isinstance(side, n.Select):
            with self.profile.running(steps.reading(side)) as step:
                chosen = reader.meets([stream], (tuples,), side.conditions)
                tuples = tuples[chosen]
                step.held = len(tuples)
        return TableSet(tuples, self._kinds.of(self._store.numbers(LABEL)[tuples]))

    # A batch ----------------------------------------------------------------------------------------------------------

    def advance(
        self, finals: Ints, since: int, until: int, waiting: int, visibility: Visibility, views: Sequence[int]
    ) -> list[BlockEmitted]:
        """Tuples become final, in order; returns the results of all blocks for these views."""
        found, times = list[list[BlockEmitted]](), self._store.numbers(TIME)[finals]
        for piece, end in pieces(times, until):
            last = piece.stop == len(finals)
            batch = Finals(finals[piece], times[piece], self._position, since, end, waiting if last else None)
            found.append(self._advance_piece(batch, visibility, views))
            since = end
        return joined(found)

    def _advance_piece(self, batch: Finals, visibility: Visibility, views: Sequence[int]) -> list[BlockEmitted]:
        reader, looking = self._reader(visibility, views[0], self.profile), _looking(visibility, views)
        found = self._enter(batch.tuples, reader, visibility, looking)
        self._position += len(batch.tuples)
        for rows, blocks in self._together(looking).items():
            found += self._block_results(rows, blocks, batch, reader, visibility)
        self._trim()
        return found

    def _enter(
        self, finals: Ints, reader: Reader, visibility: Visibility, looking: Mapping[tuple[str, int], list[int]]
    ) -> list[BlockEmitted]:
        """Let the tuples enter that meet the conditions before windows."""
        found = list[BlockEmitted]()
        inputs = self._sequences.inputs(finals, reader)
        for name in self._sequences:
            blocks = [x for x in self.blocks if x.target in looking and self._reads(x, name)]
            meter = visibility.meter([view for x in blocks for view in looking[x.target]])
            entering = np.zeros(len(finals), np.bool_)
            try:
                with Limited(visibility.limits, meter):
                    entering = inputs.entering(self._sequences.input_of(name))
            except LimitExceeded as error:
                self._fail(blocks, str(error))
            for view, reason in meter.exceeded.items():
                found += [BlockEmitted(x, (view,), NOTHING, reason) for x in blocks if view in looking[x.target]]
            self._sequences.enter(name, finals, entering, self._position, reader)
        return found

    def _reads(self, block: Block, name: str) -> bool:
        return any(name == own for own, _ in sequence_names(self._shapes[block.target].rows))

    def _together(self, looking: Mapping[tuple[str, int], list[int]]) -> dict[tuple[str, bool], dict[Block, list[int]]]:
        """The blocks that share their rows, with their views."""
        found: dict[tuple[str, bool], dict[Block, list[int]]] = {}
        for block in (block for block in self.blocks if block.target in looking):
            found.setdefault(self._rows_key(self._shapes[block.target]), {})[block] = looking[block.target]
        return found

    def _block_results(
        self,
        key: tuple[str, bool],
        blocks: Mapping[Block, list[int]],
        batch: Finals,
        reader: Reader,
        visibility: Visibility,
    ) -> Iterable[BlockEmitted]:
        rows, failed = self._rows.get(key), self._failed
        evaluation = Evaluation(blocks, self._shapes, failed, visibility, reader)
        changes = None
        if rows is not None:
            changes = evaluation.shared(blocks, lambda: self._advanced(rows, batch, reader))
        if rows is not None and changes is not None:
            for name, grouping in self._groupings_of(key).items():
                evaluation.group(name, grouping, changes, bool(rows.slide))
            if key[0] in self._all and key[1]:
                evaluation.all_rows(self._all[key[0]], changes)
        yield from evaluation.results(rows, changes)
        if changes is None:
            self._end(key)
        elif rows is not None:
            rows.release()
            for window in rows.windows:  # now, since what leaves does so before the next batch, whichever that is
                self.profile.steps[window.step].held = window.held

    def _advanced(self, rows: BlockRows, batch: Finals, reader: Reader) -> Changes:
        changes = rows.advance(batch, reader)
        if batch.waiting is not None:
            hold((rows.node.key, rows.kept), rows.stored, batch.waiting, rows.held)
        return changes

    def changes(self, block: Block, finals: Ints, visibility: Visibility, view: int) -> tuple[Ints, ...]:
        """The positions at which tuples would enter and leave the windows of a block with these tuples."""
        reader, held = self._reader(visibility, view), self.held()
        windows = []
        for window, _ in windows_of(self._shapes[block.target].rows):
            entering = finals[Inputs(finals, {}, reader).entering(window.input)]
            folded = held.folded[window.key].tuples if window.key in held.folded else 0
            windows.append((window, held.windows.get(window.key, _NONE), folded, entering))
        return changes(windows, reader.tuples, self._store)

    def _end(self, key: tuple[str, bool]) -> None:
        """Drop operators that failed in the middle of a batch; all who read them have ended."""
        rows = self._rows.pop(key, None)
        for window in rows.windows if rows is not None else ():
            if isinstance(window, PartitionedSet):
                self._sequences.close(window)
        for name in [name for name in self._groupings if name[0] == key[0]]:
            del self._groupings[name]
        read = {window.window.key for x in self._rows.values() for window in x.windows}
        self.folded = {name: x for name, x in self.folded.items() if name in read}

    def _trim(self) -> None:
        """Let go of rows that no window holds any more."""
        self._sequences.trim(window for rows in self._rows.values() for window in rows.windows)

    # State ------------------------------------------------------------------------------------------------------------

    def held(self) -> Held:
        windows: dict[str, Ints] = {}
        for rows in self._rows.values():
            for window in rows.windows:
                name, content = window.window.key, window.content()
                windows[name] = self._either(windows[name], content) if name in windows else content
        for block in self.blocks:
            rows_key = self._rows_key(self._shapes[block.target])
            wanted = {window.key for window in previous_rows(block.top)}
            for window in self._rows[rows_key].windows if wanted and rows_key in self._rows else ():
                if window.window.key in wanted:
                    windows[name_of(block.top, window.window)] = window.content_at(self._rows[rows_key].last)
        return Held(windows, self.last, {name: x for name, x in self.folded.items() if name in windows})

    # Folding ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _foldable(self) -> dict[str, list[Shape]]:
        return foldable(self.blocks)

    def _stored(self, key: str) -> int:
        """How many tuples a window keeps."""
        kept = (x for rows in self._rows.values() for x in rows.windows if x.window.key == key)
        return next((x.held - x.folded for x in kept), 0)

    @property
    def due(self) -> list[str]:
        """The windows that have many tuples to fold, by key."""
        return [
            key
            for key, first in self._stored_at_first.items()
            if self._stored(key) > TIMES_FOLDED * first + FEW_UNFOLDED
        ]

    def fold(self, windows: Collection[str], visibility: Visibility, view: int) -> Held:
        """What all windows hold, with the tuples of these folded. One that cannot be folded keeps its tuples."""
        held, reader = self.held(), self._reader(visibility, view)
        kept, folded = dict(held.windows), dict(held.folded)
        for key in windows:
            with suppress(LimitExceeded), Limited(visibility.limits, Meter({})):
                folding = Folding(kept[key], folded.get(key, Folded()), self._store, reader)
                kept[key], folded[key] = folding.folded(self._foldable[key])
        return Held(kept, held.last, {key: x for key, x in folded.items() if x.tuples})

    def starts(self) -> dict[str, int]:
        """Where what windows hold begins, by the names that `held` uses: the first tuple; -1 if time alone does not
        tell what a window holds. A window that holds nothing is left out."""
        found: dict[str, list[int | None]] = {}
        for rows in self._rows.values():
            for window in rows.windows:
                found.setdefault(window.window.key, []).append(window.start())
        for block in self.blocks:
            wanted = {window.key for window in previous_rows(block.top)}
            rows_key = self._rows_key(self._shapes[block.target])
            for window in self._rows[rows_key].windows if wanted and rows_key in self._rows else ():
                if window.window.key in wanted:
                    name = name_of(block.top, window.window)
                    found.setdefault(name, []).append(window.start_at(self._rows[rows_key].last))
        return {name: min(there, key=self._position_of) for name, x in found.items() if (there := _there(x))}

    def _position_of(self, tuple_: int) -> tuple[int, ...]:
        return () if tuple_ < 0 else tuple(int(self._store.numbers(x)[tuple_]) for x in (TIME, STREAM, ARRIVAL))

    @property
    def last(self) -> dict[str, int]:
        """The time of the last instant of each block, by the key of its rows."""
        last: dict[str, int] = {}
        for (key, _), rows in self._rows.items():
            last[key] = max(rows.last, last.get(key, rows.last))
        return {key: time for key, time in last.items() if time != NO_TIME}

    def _either(self, a: Ints, b: Ints) -> Ints:
        return self._store.together([a, b])

    def sizes(self) -> tuple[object, ...]:
        """What differs if two states differ, almost always, without reading all of them."""
        states = (
            (key[0], key[1], rows.last, *(window.held for window in rows.windows)) for key, rows in self._rows.items()
        )
        return tuple(sorted(states))

    @property
    def _keys(self) -> int:
        """The most keys that an operator knows: of groups, joins, values of DISTINCT, labels."""
        rows, groups = (x.keys for x in self._rows.values()), (x.keys for x in self._groupings.values())
        return max(len(self._kinds), *rows, *groups, 0)

    @property
    def knows_the_gone(self) -> bool:
        """Whether an operator knows many keys that no row can have any more, most of them since it was built: then it
        costs little more to build all of them again than it took to learn these keys."""
        rows = sum(x.rows for x in self._rows.values())
        return self._keys > max(rows, 2 * self._keys_at_first) + FEW_KEYS

    def close(self) -> None:
        """Let go of all tuples."""
        for key in list(self._rows):
            self._end(key)
        self._sequences.forget_all()


def _there(starts: Iterable[int | None]) -> list[int]:
    return [x for x in starts if x is not None]


def _tables_of(rows: n.Node) -> list[n.Node]:
    sides = rows.sides if isinstance(rows, n.Join) else ()
    return [side for side in sides if any(isinstance(x, n.Table) for x in side.walk())]


def _looking(visibility: Visibility, views: Iterable[int]) -> dict[tuple[str, int], list[int]]:
    """The views by their block."""
    looking: dict[tuple[str, int], list[int]] = {}
    for view in views:
        looking.setdefault(visibility.targets[view], []).append(view)
    return looking
