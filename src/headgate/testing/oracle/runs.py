"""One running block: which tuples its windows hold as time passes, and which results they yield (SPEC.md, 4.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from headgate.plan.queries import QueryBlock, Stream
from headgate.testing.oracle.blocks import BlockOver, Row, Yield
from headgate.testing.oracle.rights import Rights, Setting
from headgate.testing.oracle.tuples import BEGINNING, Seen, TupleKey
from headgate.testing.oracle.windows import Instant, held, slide_of, slides_over


class Run:
    """One block of a view: the tuples it may see, the contents of its windows now and at the previous instant, and the
    rows of that instant."""

    def __init__(self, block: QueryBlock, setting: Setting, rights: Rights) -> None:
        self.block = block
        self.tuples: dict[TupleKey, Seen] = {}
        self._setting = setting
        self._contents: list[list[TupleKey]] = [[] for _ in block.readings]
        self._held: list[list[TupleKey]] = [[] for _ in block.readings]
        self._before: list[Row] = []
        self.passed = -math.inf
        self.lose(rights)

    def _hidden_by(self, rights: Rights) -> dict[str, frozenset[str]]:
        return {x.stream.name: rights.hide(x.stream, self.block) for x in self.block.readings}

    def _fresh(self, tuples: Mapping[TupleKey, Seen]) -> BlockOver:
        return BlockOver(self.block, tuples, self._setting.rules, self._setting.level, self._hidden)

    def stream(self, name: str) -> Stream | None:
        return next((x.stream for x in self.block.readings if x.stream.name == name), None)

    def _tables(self) -> dict[TupleKey, Seen]:
        """All tuples of the tables that the block reads, unmasked."""
        given = enumerate(self._setting.tables)
        return {TupleKey.in_table(x, number): Seen.whole(x) for number, x in given if self.stream(x.stream)}

    def pass_through(self, position: TupleKey, seen: Seen) -> list[Yield]:
        """The results of a stateless block for a tuple; it keeps no state."""
        over = self._fresh({position: seen})
        return over.yields(over.rows([[position]] if over.enters(0, position) else [[]]), [], sliding=False)

    def lose(self, rights: Rights) -> None:
        """Removes what the rights no longer permit from the windows and from the previous instant, whose rows are
        recomputed from the remaining tuples, as they read now. Tables hold what may be seen now, as if they had never
        held anything else."""
        self._hidden = self._hidden_by(rights)
        there = {position: seen for position, seen in self.tuples.items() if position.time > BEGINNING} | self._tables()
        self.tuples = {
            position: seen.without(self._hidden[position.stream])
            for position, seen in there.items()
            if rights.permit(seen.label, self.block)
        }
        self._over = self._fresh(self.tuples)
        for contents in (self._contents, self._held):
            for source, content in enumerate(contents):
                if self.block.readings[source].stream.table:
                    content = sorted(self.tuples)
                contents[source] = self._left_of(source, content)
        self._before = self._over.rows(self._held)

    def _left_of(self, source: int, content: list[TupleKey]) -> list[TupleKey]:
        """Partitions that are one, now that a column reads as NULL, together hold no more than one does."""
        left = [x for x in content if x in self.tuples and self._over.enters(source, x)]
        window = self.block.readings[source].window
        if window is None or window.kind != "PARTITIONED":
            return left
        return held(window, left, BEGINNING, self._over.partition(source))

    def yields(self, instant: Instant) -> list[Yield]:
        """The results of the block at an instant to which its windows have moved."""
        slides = bool(slide_of(self.block))
        if instant.slides != slides or self._passed_over():
            return []
        now = self._over.rows(self._contents)
        found = self._over.yields(now, self._before, sliding=slides)
        self._before, self._held = now, list(self._contents)
        return found

    def holds(self, time: int) -> int:
        """How many tuples the windows of all sources hold at a time. Tables do not count."""
        return sum(
            len(held(reading.window, content, time, self._over.partition(source)))
            for source, (reading, content) in enumerate(zip(self.block.readings, self._contents, strict=True))
            if reading.window is not None and not reading.stream.table
        )

    def moves(self, until: float) -> list[Instant]:
        """Tuples that enter windows, and instants of sliding, whose time has now passed."""
        if until <= self.passed:
            return []
        there = (x for x in self.tuples if x.time > BEGINNING and self.passed <= x.time < until)
        coming = (x for x in there if self._over.enters_any(x))
        found = set(map(Instant.of, coming))
        for source, reading in enumerate(self.block.readings):
            if reading.window and reading.window.slide:
                for position in self.tuples:
                    if self._over.enters(source, position):
                        found.update(slides_over(reading.window, position, self.passed, until))
        return sorted(found)

    def move(self, instant: Instant) -> None:
        for source, reading in enumerate(self.block.readings):
            content, coming = self._contents[source], instant.position
            if coming is not None and self._over.enters(source, coming):
                content = [*content, coming]
            if reading.window is not None:
                content = held(reading.window, content, instant.time, self._over.partition(source))
            self._contents[source] = content

    def _passed_over(self) -> bool:
        """A block with sliding windows is not evaluated while all of them are empty."""
        windows = zip(self._contents, self.block.readings, strict=True)
        sliding = [content for content, reading in windows if reading.window and reading.window.slide]
        return bool(sliding) and not any(sliding)
