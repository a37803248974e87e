"""`min` and `max` inside recursion: the best row of each group is kept, and only better rows are derived from.

Shortest paths need no enumeration of paths: a row that is not better than the one held is dropped, and in each round
only the rows that became better run through the strands (aggregates are monotone there, see `recursion`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from headgate.sendlog.codegen import Loop
from headgate.sendlog.compiled import Component, Grouping
from headgate.sendlog.core import Rel
from headgate.sendlog.derivations import Fact
from headgate.sendlog.functions import FAILURES
from headgate.sendlog.tables import Table
from headgate.sendlog.values import Row


@dataclass
class _Slot:
    """A relation inside a recursion of `min` or `max`: the row held for each group, and better ones of this round."""

    rel: Rel
    table: Table
    group: Callable[[Row], Any] | None
    over: Callable[[Row], Any] | None
    held: dict[Any, Row]
    better: dict[Any, Row] = field(default_factory=dict)
    loops: list[tuple[_Slot, Loop]] = field(default_factory=list)

    def keep(self, key: Any, row: Row) -> bool:
        """Whether the row is new; it takes the place of the one it beats."""
        if self.over is not None:
            old = self.held.get(key)
            if old is not None:
                self.table.remove(old)
            self.held[key] = row
        return self.table.add(row)


class Best:
    """The rows that are held, by relation and group. `record` notes derivations, `count` and `failed` count."""

    def __init__(
        self,
        tables: Mapping[Rel, Table],
        record: Callable[[Rel, list[Any]], list[Row]],
        count: Callable[[int], None],
        failed: Callable[[], None],
    ) -> None:
        self._tables, self._record, self._count, self._failed = tables, record, count, failed
        self._held: dict[Rel, dict[Any, Row]] = {}

    def forget(self, rels: Iterable[Rel]) -> None:
        for rel in rels:
            self._held.pop(rel, None)

    def improve(self, component: Component, strands: Iterable[tuple[Rel, Rel, Loop]], queue: Iterable[Fact]) -> None:
        """Keeps the best row of each group, and derives only from rows that are better than before, round by round."""
        bests = {grouping.rule.rel: grouping for grouping in component.groupings}
        slots = {rel: self._slot(rel, bests.get(rel)) for rel in component.rels}
        for trigger, target, loop in strands:
            if trigger in slots:
                slots[trigger].loops.append((slots[target], loop))
        pending = [(slots[rel], row) for rel, row in queue]
        least = component.best == "min"
        while pending:
            for slot, row in pending:
                self._consider(slot, row, least=least)
            pending = []
            for slot in slots.values():
                better, slot.better = slot.better, {}
                for key, row in better.items():
                    if slot.keep(key, row):
                        for to, loop in slot.loops:
                            found: list[Any] = []
                            loop(row, found)
                            if found:
                                self._count(len(found))
                                pending += [(to, one) for one in self._record(to.rel, found)]

    def _slot(self, rel: Rel, grouping: Grouping | None) -> _Slot:
        group = itemgetter(*grouping.group) if grouping and grouping.group else None
        over = itemgetter(*grouping.over) if grouping else None
        return _Slot(rel, self._tables[rel], group, over, self._held.setdefault(rel, {}))

    def _consider(self, slot: _Slot, row: Row, *, least: bool) -> None:
        if slot.over is None:
            slot.better[row] = row
            return
        key = slot.group(row) if slot.group is not None else ()
        known = slot.better.get(key) or slot.held.get(key)
        if known is not None:
            try:
                value, held = slot.over(row), slot.over(known)
                if not (value < held if least else value > held):
                    return
            except FAILURES:
                self._failed()
                return
        slot.better[key] = row
