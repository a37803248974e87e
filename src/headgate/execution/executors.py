"""Where cells run: all blocks in one cell, or dealt out to several of which each computes its part alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints, distinct
from headgate.execution.partition_groups import PartitionGroup
from headgate.execution.partitions import WHOLE, PartitionName, PartitionStates, renumbered_visibility, split
from headgate.execution.results import packed
from headgate.expressions.limits import Evaluate
from headgate.model.results import BlockResults
from headgate.model.visibility import HIDDEN, Visibility
from headgate.operators.partition import GroupResults, PartitionState, advance, empty, state_changes, with_copied
from headgate.operators.program import VISIBILITY, Program
from headgate.operators.stateless import stateless_results
from headgate.visibility.role_limits import Changes


class Executor(Protocol):
    """Runs the cells: what it is given in one call is one batch, done wholly or not at all."""

    @property
    def cells(self) -> PartitionStates:
        """All that they keep."""
        ...

    def sights(self) -> Ints:
        """The sights that tuples in the cells have: all others may be forgotten."""
        return distinct(np.concatenate([cell.table.column(VISIBILITY).to_numpy() for cell in self.cells.values()]))

    def restore(self, cell: PartitionState) -> None:
        """Goes on from what other cells, gathered into one, have kept."""
        ...

    def run(
        self, arriving: pa.Table, sight: Visibility, changed: Ints | None, tables: pa.Table | None
    ) -> list[BlockResults]:
        """`changed` says for each sight which one takes its place, if rights changed since the last batch; `tables` are
        the tuples of tables, which cells do not keep."""
        ...

    def state_changes(
        self, arriving: pa.Table, sight: Visibility, changed: Ints | None, views: Collection[int]
    ) -> list[Changes]:
        """What such a batch would bring into the windows of these views and take out of them; nothing changes yet."""
        ...


class LocalExecutor(Executor):
    """One cell, in memory, in this process."""

    def __init__(self, program: Program, schema: pa.Schema, evaluate: Evaluate) -> None:
        self._program = program
        self._evaluate = evaluate
        self._cell = empty(schema)

    @property
    def cells(self) -> PartitionStates:
        return {WHOLE: self._cell}

    def restore(self, cell: PartitionState) -> None:
        self._cell = cell

    def run(
        self, arriving: pa.Table, sight: Visibility, changed: Ints | None, tables: pa.Table | None
    ) -> list[BlockResults]:
        cell = self._cell if changed is None else renumbered_visibility(self._cell, changed)
        passed = stateless_results(self._program, arriving, sight, self._evaluate)
        self._cell, found = advance(self._program, cell, arriving, sight, self._evaluate, tables)
        blocks = Counter(block.query for block in (*self._program.blocks, *self._program.passing))
        return [
            packed(x, stateless_results=passes, alone=blocks[x.block.query] == 1)
            for x, passes in (*((x, False) for x in found), *((x, True) for x in passed))
        ]

    def state_changes(
        self, arriving: pa.Table, sight: Visibility, changed: Ints | None, views: Collection[int]
    ) -> list[Changes]:
        cell = self._cell if changed is None else renumbered_visibility(self._cell, changed)
        found = state_changes(self._program, cell, arriving, sight, self._evaluate, views)
        return [Changes(own, *parts) for own, parts in found]


class PartitionedExecutor(Executor):
    """So many cells for each share that is dealt, in memory, in this process. `program` is that of all shares."""

    def __init__(self, program: Program, shares: Sequence[PartitionGroup], cells: int, evaluate: Evaluate) -> None:
        self._program = program
        self._shares = shares
        self._count = cells
        self._evaluate = evaluate
        self._cells: dict[PartitionName, PartitionState] = {
            (share.name, number): empty(share.schema) for share in shares for number in range(self._cells_of(share))
        }
        self._restored: PartitionState | None = None

    @property
    def cells(self) -> PartitionStates:
        return self._cells if self._restored is None else {WHOLE: self._restored}

    def restore(self, cell: PartitionState) -> None:
        """It is dealt out with the next batch: by then the levels of labels are known, which may be keys."""
        self._restored = cell

    def run(
        self, arriving: pa.Table, sight: Visibility, changed: Ints | None, tables: pa.Table | None
    ) -> list[BlockResults]:
        after, found = {}, list[GroupResults]()
        there: dict[PartitionName, pa.Table] = {}
        for share in self._shares if tables is not None else ():
            there |= self._dealt(share, tables, _of_share(share, sight))
        for share, own, name, cell, coming in self._each(arriving, sight, changed):
            after[name], yielded = advance(share.program, cell, coming, own, self._evaluate, there.get(name))
            found += yielded
        passed = stateless_results(self._program, arriving, sight, self._evaluate)
        self._cells, self._restored = after, None
        return _packed(found, passed)

    def state_changes(
        self, arriving: pa.Table, sight: Visibility, changed: Ints | None, views: Collection[int]
    ) -> list[Changes]:
        found = list[Changes]()
        for share, own, _, cell, coming in self._each(arriving, sight, changed):
            mine = _views(own).intersection(views)
            parts = state_changes(share.program, cell, coming, own, self._evaluate, mine)
            found += [Changes(looking, *part) for looking, part in parts]
        return found

    def _each(
        self, arriving: pa.Table, sight: Visibility, changed: Ints | None
    ) -> Iterator[tuple[PartitionGroup, Visibility, PartitionName, PartitionState, pa.Table]]:
        """Every cell, with what it is given."""
        cells = self._cells
        if self._restored is not None:
            cells = {name: cell for share in self._shares for name, cell in self._anew(share, self._restored, sight)}
        for share in self._shares:
            own = _of_share(share, sight)
            for name, coming in self._dealt(share, arriving, own):
                yield (
                    share,
                    own,
                    name,
                    cells[name] if changed is None else renumbered_visibility(cells[name], changed),
                    coming,
                )

    def _cells_of(self, share: PartitionGroup) -> int:
        return self._count if share.deal else 1

    def _dealt(
        self, share: PartitionGroup, arriving: pa.Table, sight: Visibility
    ) -> Iterator[tuple[PartitionName, pa.Table]]:
        """What each cell is given of the tuples that somebody who looks at this share sees."""
        table = arriving.select(share.schema.names)
        seen = (sight.table[:, sorted(_views(sight))] != HIDDEN).any(axis=1)
        table = table.filter(pa.array(seen[table.column(VISIBILITY).to_numpy()]))
        numbers = share.cell_numbers(table, sight.levels, self._count)
        for number in range(self._cells_of(share)):
            yield (share.name, number), table.filter(pa.array(numbers == number))

    def _anew(
        self, share: PartitionGroup, cell: PartitionState, sight: Visibility
    ) -> Iterator[tuple[PartitionName, PartitionState]]:
        """The cells of a share, of a cell that holds what all shares do."""
        classes = with_copied(cell.classes, sight.copied)
        own = replace(cell, table=cell.table.select(share.schema.names), classes=classes)
        numbers = share.cell_numbers(own.table, sight.levels, self._count)
        for number, part in enumerate(split(own, numbers, self._cells_of(share), _views(_of_share(share, sight)))):
            yield (share.name, number), part


def _of_share(share: PartitionGroup, sight: Visibility) -> Visibility:
    """Who looks at the blocks of a share: everybody else sees to it elsewhere, and is no business of its cells."""
    wanted = share.targets()
    return replace(sight, targets=tuple(target if target in wanted else ("", 0) for target in sight.targets))


def _views(sight: Visibility) -> frozenset[int]:
    return frozenset(view for view, (query, _) in enumerate(sight.targets) if query)


def _packed(found: Sequence[GroupResults], passed: Sequence[GroupResults]) -> list[BlockResults]:
    return [*(packed(x, stateless_results=False) for x in found), *(packed(x, stateless_results=True) for x in passed)]
