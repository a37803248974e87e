"""Fold the tuples of UNBOUNDED windows into sums, where blocks need them only together (docs/decisions/051).

Nothing leaves such a window by itself; a lost right takes all tuples of one label that came under the same rights. A
*cell* has the tuples of one group that have one label and one visibility row. Of a cell the window keeps the first
tuple, which stands for its group, its label and its place in the order of results, and tuples that count by themselves
(MIN, MAX, DISTINCT). All others are folded into amounts that the first tuple carries: whoever sees the carrier sees
them, and they are lost with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.columns.factorize import codes
from headgate.columns.sorting import Bools, Ints
from headgate.expressions.sql import arrow_type
from headgate.loops.exact import Digits
from headgate.operators.accumulators import Accumulator, Amounts, Extreme, accumulator, adds_up
from headgate.operators.block_rows import Changes, windows_of
from headgate.operators.blocks import Shape
from headgate.operators.grouping import NO_EMISSIONS
from headgate.operators.program import ARRIVAL, LABEL, VISIBILITY, Block
from headgate.operators.reading import stream_of
from headgate.operators.rowsets import Instants
from headgate.operators.tuple_store import TupleStore
from headgate.operators.visible import Reader
from headgate.plan import nodes as n
from headgate.plan.expressions import AggregateCall, typed_text

Part = tuple[str, str, str]
"""The key of the rows of a block, the expressions that it groups them by, and an aggregate."""
ALL: Part = ("", "", "")
"""How many tuples were folded."""
_NONE = np.empty(0, np.int64)
_PARTS = b"parts"


@dataclass(frozen=True)
class Carried:
    """Amounts, and the tuple that carries each."""

    carriers: Ints
    amounts: Amounts

    def where(self, chosen: Bools) -> Carried:
        rows = np.flatnonzero(chosen)
        return Carried(self.carriers[rows], self.amounts.at(rows))


@dataclass(frozen=True)
class Folded:
    """What was folded of one window, by the part of a block that needs it. A part is there if it was computed, also if
    nothing was folded for it."""

    parts: Mapping[Part, Carried] = field(default_factory=dict)

    @property
    def tuples(self) -> int:
        """How many tuples are not kept."""
        return int(self.parts[ALL].amounts.count.sum()) if self.parts else 0

    def among(self, tuples: Ints) -> Folded:
        """What these tuples carry."""
        return Folded({part: x.where(np.isin(x.carriers, tuples)) for part, x in self.parts.items()})

    def moved(self, place: Ints) -> Folded:
        """With carriers numbered anew: `place` has their new number, or -1 for those that are gone."""
        found = {}
        for part, x in self.parts.items():
            there = x.where(place[x.carriers] >= 0)
            found[part] = Carried(place[there.carriers], there.amounts)
        return Folded(found)

    def equals(self, other: Folded) -> bool:
        return self.parts.keys() == other.parts.keys() and all(
            np.array_equal(x.carriers, other.parts[part].carriers) and x.amounts.equals(other.parts[part].amounts)
            for part, x in self.parts.items()
        )


def together(parts: Sequence[Folded]) -> Folded:
    """What several partitions have folded; carriers are numbered in common."""
    found: dict[Part, list[Carried]] = {}
    for folded in parts:
        for part, x in folded.parts.items():
            found.setdefault(part, []).append(x)
    return Folded(
        {
            part: Carried(np.concatenate([x.carriers for x in some]), Amounts.together([x.amounts for x in some]))
            for part, some in found.items()
        }
    )


def foldable(blocks: Iterable[Block]) -> dict[str, list[Shape]]:
    """The windows, by key, that these blocks need no single tuples of, with the shapes of those that read them."""
    found: dict[str, list[Shape]] = {}
    refused = set[str]()
    for block in blocks:
        shape = Shape.of(block.top)
        alone = not isinstance(shape.rows, n.Join) and not block.labelled and not shape.emits_all
        for window, _ in windows_of(shape.rows):
            if alone and window.kind == "UNBOUNDED":
                found.setdefault(window.key, []).append(shape)
            else:
                refused.add(window.key)
    return {key: shapes for key, shapes in found.items() if key not in refused}


def part_of(shape: Shape, call: AggregateCall | None = None) -> Part:
    """Where to find what was folded for a block: for one of its aggregates, or for its groups."""
    return shape.rows.key, ", ".join(map(typed_text, shape.grouped)), "" if call is None else typed_text(call)


# Folding --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FoldedGroups:
    """rows: the tuples that meet the conditions after the window, by place; cell: the cell of each
    first: the place of the first tuple of each cell"""

    rows: Ints
    cell: Ints
    first: Ints

    @classmethod
    def of(cls, rows: Ints, columns: Sequence[pa.Array]) -> _FoldedGroups:
        cell = codes(columns, null_is_a_value=True)
        return cls(rows, cell, rows[_first(cell)])

    def at(self, places: Ints, size: int) -> Ints:
        """The cells of tuples."""
        cell = np.full(size, -1)
        cell[self.rows] = self.cell
        return cell[places]


def _first(cell: Ints) -> Ints:
    """The first place of each number."""
    first = np.full(int(cell.max(initial=-1)) + 1, -1)
    first[cell[::-1]] = np.arange(len(cell))[::-1]
    return first[first >= 0] if (first < 0).any() else first


class Folding:
    """Folds what a window holds: `tuples`, in order, of which some carry what was folded `before`."""

    def __init__(self, tuples: Ints, before: Folded, store: TupleStore, reader: Reader) -> None:
        self._tuples = tuples
        self._before = before
        self._reader = reader
        self._origin = [pa.array(store.numbers(x)[tuples]) for x in (LABEL, VISIBILITY)]
        self._kept = np.zeros(len(tuples), np.bool_)
        self._order = np.argsort(tuples)

    def folded(self, shapes: Sequence[Shape]) -> tuple[Ints, Folded]:
        """The tuples that the window keeps for these blocks, and what it has folded."""
        whole = _FoldedGroups.of(np.arange(len(self._tuples)), self._origin)
        self._kept[whole.first] = True
        groups: dict[Part, _FoldedGroups] = {}
        wanted: dict[Part, tuple[_FoldedGroups, AggregateCall, Shape]] = {}
        for shape in (x for x in shapes if x.aggregate is not None or x.distinct):
            if part_of(shape) not in groups:
                groups[part_of(shape)] = self._cells(shape)
            for call in shape.calls:
                wanted[part_of(shape, call)] = groups[part_of(shape)], call, shape
        for cells in groups.values():
            self._kept[cells.first] = True
        for cells, call, shape in wanted.values():
            if not adds_up(call):
                self._kept[self._single(cells, call, shape)] = True
        none = Carried(_NONE, Amounts(_NONE))
        parts = {ALL: self._counted(whole), **dict.fromkeys(groups, none)}
        for part, (cells, call, shape) in wanted.items():
            parts[part] = self._summed(part, cells, call, shape) if adds_up(call) else none
        return self._tuples[self._kept], Folded(parts)

    def _cells(self, shape: Shape) -> _FoldedGroups:
        streams, rows = [stream_of(shape.rows)], np.arange(len(self._tuples))
        ((_, conditions),) = windows_of(shape.rows)
        if conditions:
            rows = np.flatnonzero(self._reader.meets(streams, (self._tuples,), conditions))
        columns = self._reader.computed(streams, (self._tuples[rows],), shape.grouped) if shape.grouped else []
        return _FoldedGroups.of(rows, [*(x.take(pa.array(rows)) for x in self._origin), *columns])

    def _argument(self, call: AggregateCall, shape: Shape, rows: Ints) -> pa.Array | None:
        if call.argument is None:
            return None
        if not len(rows):
            return pa.array([], arrow_type(call.argument.type))
        (found,) = self._reader.computed([stream_of(shape.rows)], (self._tuples[rows],), [call.argument])
        return found

    def _single(self, cells: _FoldedGroups, call: AggregateCall, shape: Shape) -> Ints:
        """The tuples that count by themselves: one with each value of a cell, or the one with its extreme value."""
        argument, kept = self._argument(call, shape, cells.rows), accumulator(call)
        if not isinstance(kept, Extreme):
            return cells.rows[_first(codes([pa.array(cells.cell), argument], null_is_a_value=True))]
        _take(kept, cells.cell, argument, len(cells.first))
        rows = kept.rows[: len(cells.first)]
        return cells.rows[rows[rows >= 0]]

    def _counted(self, cells: _FoldedGroups) -> Carried:
        count = np.bincount(cells.cell[~self._kept[cells.rows]], minlength=len(cells.first))
        if ALL in self._before.parts:
            before = self._before.parts[ALL]
            np.add.at(count, self._at(before, cells), before.amounts.count)
        return self._carried(cells, Amounts(count))

    def _summed(self, part: Part, cells: _FoldedGroups, call: AggregateCall, shape: Shape) -> Carried:
        gone = ~self._kept[cells.rows]
        kept = accumulator(call)
        _take(kept, cells.cell[gone], self._argument(call, shape, cells.rows[gone]), len(cells.first))
        if part in self._before.parts:
            before = self._before.parts[part]
            kept.add(self._at(before, cells), before.amounts)
        return self._carried(cells, kept.amounts().at(np.arange(len(cells.first))))

    def _at(self, before: Carried, cells: _FoldedGroups) -> Ints:
        """The cells of those who carry what was folded before: some cells are one now."""
        places = self._order[np.searchsorted(self._tuples, before.carriers, sorter=self._order)]
        return cells.at(places, len(self._tuples))

    def _carried(self, cells: _FoldedGroups, amounts: Amounts) -> Carried:
        return Carried(self._tuples[cells.first], amounts).where(amounts.count > 0)


def _take(kept: Accumulator, group: Ints, argument: pa.Array | None, groups: int) -> None:
    """Let an accumulator take rows of these groups."""
    rows, at = np.arange(len(group)), np.zeros(len(group), np.int64)
    once = Instants(np.zeros(1, np.int64), np.zeros(1, np.int64), _NONE, slides=False)
    changes = Changes(rows, np.ones(len(rows), np.int8), at, once, rows, at, rows)
    kept.advance(changes, group, rows, argument, NO_EMISSIONS, groups, max(len(rows), 1))


# Files ----------------------------------------------------------------------------------------------------------------


def table_of(folded: Folded, store: TupleStore) -> pa.Table:
    """What was folded, as it is written: a row for each carrier and part, with the carrier's arrival number."""
    names, rows = list[object](), list[pa.Table]()
    for number, (part, x) in enumerate(folded.parts.items()):
        names.append([part, [[y.unit, y.digits.shape[1]] for y in x.amounts.sums]])
        digits = np.concatenate([np.empty((len(x.carriers), 0), np.int64), *(y.digits for y in x.amounts.sums)], axis=1)
        offsets = np.arange(len(digits) + 1, dtype=np.int32) * digits.shape[1]
        columns = {
            "part": pa.array(np.full(len(digits), number, np.int32)),
            ARRIVAL: store.numbers(ARRIVAL)[x.carriers],
            "count": x.amounts.count,
            "digits": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(digits.reshape(-1), pa.int64())),
        }
        rows.append(pa.table(columns))
    return pa.concat_tables(rows).combine_chunks().replace_schema_metadata({_PARTS: json.dumps(names).encode()})


def folded_of(table: pa.Table, tuples: Ints, store: TupleStore) -> Folded:
    """The way back: what these tuples carry."""
    arrivals = store.numbers(ARRIVAL)[tuples]
    order, parts = np.argsort(arrivals), dict[Part, Carried]()
    for number, ((rows, groups, call), sums) in enumerate(json.loads(table.schema.metadata[_PARTS])):
        own = table.filter(pa.array(table.column("part").to_numpy() == number)).combine_chunks()
        carriers = own.column(ARRIVAL).to_numpy()
        places = np.minimum(np.searchsorted(arrivals, carriers, sorter=order), max(len(tuples) - 1, 0))
        there = arrivals[order[places]] == carriers if len(tuples) else np.zeros(len(carriers), np.bool_)
        flat = pa.chunked_array(own.column("digits")).combine_chunks().flatten().to_numpy()
        digits = flat.reshape(len(carriers), sum(width for _, width in sums))
        ends = np.cumsum([width for _, width in sums], dtype=np.int64)
        split = [Digits(digits[:, end - width : end], unit) for (unit, width), end in zip(sums, ends, strict=True)]
        amounts = Amounts(own.column("count").to_numpy(), tuple(split))
        slots = tuples[order[places]] if len(tuples) else np.zeros(len(carriers), np.int64)
        parts[rows, groups, call] = Carried(slots, amounts).where(there)
    return Folded(parts)
