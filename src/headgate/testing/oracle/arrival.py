"""What subscribers receive (SPEC.md, 4.3): tuples and changes of rights arrive in one order, and instants become final.

A view holds what may be seen: by one subscriber for exact answers, by at least one of all for cumulative ones. Its
windows move on with its watermark, and keep nothing that they lost. Of tables it holds what may be seen at the moment,
whatever could be seen before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.labels import LEAST, Clearance, Label, Level, Rules
from headgate.plan.queries import Block, Query, Stream
from headgate.testing.oracle.blocks import BlockOver, Row, Yield
from headgate.testing.oracle.tuples import BEGINNING, Change, Event, Limit, Position, Result, Seen, Tuple
from headgate.testing.oracle.windows import Instant, held, slide_of, slides_over

Subscribers = Mapping[str, Clearance | None]


def exact(
    query: Query,
    events: Sequence[Event],
    subscribers: Subscribers,
    *,
    tables: Sequence[Tuple] = (),
    rules: Rules | None = None,
    lateness: Mapping[str, int] | None = None,
    level: Level = LEAST,
    ends: dict[str, int] | None = None,
) -> dict[str, list[Result]]:
    """What each subscriber receives, each by its own view. `lateness` is by stream, in milliseconds; `tables` are the
    tuples of all tables; `ends` is told with which event the views of some ended that exceeded a limit."""
    setting = _Setting(query, tuple(tables), rules or Rules(), lateness or {}, level, masking=True)
    return {name: _replay(setting, events, {name: subscribers[name]}, ends)[name] for name in subscribers}


def cumulative(
    query: Query,
    events: Sequence[Event],
    subscribers: Subscribers,
    *,
    tables: Sequence[Tuple] = (),
    rules: Rules | None = None,
    lateness: Mapping[str, int] | None = None,
    level: Level = LEAST,
    ends: dict[str, int] | None = None,
) -> dict[str, list[Result]]:
    """What each subscriber of one shared plan receives."""
    setting = _Setting(query, tuple(tables), rules or Rules(), lateness or {}, level, masking=False)
    return _replay(setting, events, subscribers, ends)


@dataclass(frozen=True)
class _Setting:
    """`masking`: columns that may not be read are NULL (exact), not a part of the result's label (cumulative)."""

    query: Query
    tables: tuple[Tuple, ...]
    rules: Rules
    lateness: Mapping[str, int]
    level: Level
    masking: bool


@dataclass(frozen=True)
class _Rights:
    """Who looks at a view. All look from the level of the query; who cannot come there sees nothing."""

    setting: _Setting
    subscribers: Subscribers

    def of(self, name: str) -> Clearance | None:
        clearance, level = self.subscribers[name], self.setting.level
        if clearance is None or not self.setting.rules.order.dominates(clearance.level, level):
            return None
        return replace(clearance, level=level)

    def permit(self, label: Label, block: Block) -> list[str]:
        """The subscribers whom a label permits; blocks with aggregates read what may only be read so."""
        found = ((name, self.of(name)) for name in self.subscribers)
        permits = self.setting.rules.permits
        return [name for name, x in found if x is not None and permits(label, x, aggregated=block.aggregated)]

    def hide(self, stream: Stream, block: Block) -> frozenset[str]:
        if not self.setting.masking:
            return frozenset()
        return frozenset(name for name, label in stream.labels if not self.permit(label, block))


def _replay(
    setting: _Setting, events: Sequence[Event], subscribers: Subscribers, ends: dict[str, int] | None
) -> dict[str, list[Result]]:
    received: dict[str, list[Result]] = {name: [] for name in subscribers}
    view = _View(setting, _Rights(setting, subscribers))

    def deliver(results: list[Result]) -> None:
        for result in results:
            for name in view.rights.permit(result.label, setting.query.blocks[result.block]):
                received[name].append(result)

    for number, event in enumerate(events):
        match event:
            case Tuple():
                deliver(view.arrive(event, number))
            case Change() if event.subscriber in subscribers:
                view.change({**view.rights.subscribers, event.subscriber: event.clearance})
            case Limit():
                view.limit = event
        if view.ended:
            break
    else:
        number = len(events)
        deliver(view.advance(math.inf, number))
    if view.ended and ends is not None:
        ends |= dict.fromkeys(subscribers, number)
    return received


class _View:
    def __init__(self, setting: _Setting, rights: _Rights) -> None:
        self.rights = rights
        self._setting = setting
        self._runs = [_Run(block, setting, rights) for block in setting.query.blocks]
        self._greatest: dict[str, int] = {}
        self.limit = Limit()
        self.ended = False
        self._second, self._yielded = -math.inf, 0

    @property
    def _watermark(self) -> float:
        readings = (reading for run in self._runs for reading in run.block.readings)
        streams = {reading.stream.name for reading in readings if not reading.stream.table}
        return min(self._greatest.get(name, -math.inf) - self._setting.lateness.get(name, 0) for name in streams)

    def arrive(self, arriving: Tuple, number: int) -> list[Result]:
        position = Position(arriving.time, arriving.stream, number)
        late = arriving.time < self._watermark
        passed: list[Result] = []
        entered = False
        for place, run in enumerate(self._runs):
            stream = run.stream(arriving.stream)
            if stream is None or not self.rights.permit(arriving.label, run.block):
                continue
            self._greatest[stream.name] = max(arriving.time, self._greatest.get(stream.name, arriving.time))
            seen = Seen.whole(arriving).without(self.rights.hide(stream, run.block))
            if run.block.stateless:
                yields = run.pass_through(position, seen)
                passed += (Result(arriving.time, *yielded, block=place, after=number) for yielded in yields)
            elif not late:
                run.tuples[position] = seen
                entered = True
        if entered and self._exceeds(self._waiting(), self.limit.state):
            return []
        found = self.advance(self._watermark, number)
        return [*found, *([] if self.ended else self._counted(passed))]

    def _waiting(self) -> int:
        """How many tuples wait for their time, whichever blocks they wait for."""
        return len({x for run in self._runs for x in run.tuples if x.time > BEGINNING and x.time >= self._watermark})

    def _exceeds(self, number: int, most: int | None) -> bool:
        exceeds = most is not None and number > most
        self.ended = self.ended or exceeds
        return exceeds

    def _counted(self, results: list[Result]) -> list[Result]:
        """As many as may come in a second, that of the latest that came; with one more the view ends. What came while
        there was no limit does not count."""
        if self.limit.results is None:
            return results
        for number, result in enumerate(results):
            second = max(self._second, result.time // 1000)
            self._yielded = self._yielded + 1 if second == self._second else 1
            self._second = second
            if self._exceeds(self._yielded, self.limit.results):
                return results[:number]
        return results

    def change(self, subscribers: Subscribers) -> None:
        self.rights = _Rights(self._setting, subscribers)
        for run in self._runs:
            run.lose(self.rights)

    def advance(self, until: float, number: int) -> list[Result]:
        """Evaluates all instants before `until` that were not yet, as far as the windows hold no more than they may."""
        found: list[Result] = []
        moves = [set(run.moves(until)) for run in self._runs]
        for instant in sorted(set().union(*moves)):
            moving = [(place, run) for place, run in enumerate(self._runs) if instant in moves[place]]
            for _, run in moving:
                run.move(instant)
            if instant.position and self._exceeds(sum(x.holds(instant.time) for x in self._runs), self.limit.state):
                break
            for place, run in moving:
                found += (Result(instant.time, *x, block=place, after=number) for x in run.yields(instant))
        for run in self._runs:
            run.passed = until
        return self._counted(found)


class _Run:
    """One block of a view: the tuples it may see, what its windows hold, what they held at the last instant, and the
    rows there were then."""

    def __init__(self, block: Block, setting: _Setting, rights: _Rights) -> None:
        self.block = block
        self.tuples: dict[Position, Seen] = {}
        self._setting = setting
        self._contents: list[list[Position]] = [[] for _ in block.readings]
        self._held: list[list[Position]] = [[] for _ in block.readings]
        self._before: list[Row] = []
        self.passed = -math.inf
        self.lose(rights)

    def _hidden_by(self, rights: _Rights) -> dict[str, frozenset[str]]:
        return {x.stream.name: rights.hide(x.stream, self.block) for x in self.block.readings}

    def _fresh(self, tuples: Mapping[Position, Seen]) -> BlockOver:
        return BlockOver(self.block, tuples, self._setting.rules, self._setting.level, self._hidden)

    def stream(self, name: str) -> Stream | None:
        return next((x.stream for x in self.block.readings if x.stream.name == name), None)

    def _tables(self) -> dict[Position, Seen]:
        """All tuples of the tables that the block reads, as they are."""
        given = enumerate(self._setting.tables)
        return {Position.in_table(x, number): Seen.whole(x) for number, x in given if self.stream(x.stream)}

    def pass_through(self, position: Position, seen: Seen) -> list[Yield]:
        """What a stateless block makes of a tuple; nothing of it stays."""
        over = self._fresh({position: seen})
        return over.yields(over.rows([[position]] if over.enters(0, position) else [[]]), [], sliding=False)

    def lose(self, rights: _Rights) -> None:
        """What the rights no longer permit is gone, from the windows and from the last instant: its rows are those
        that what is left of it makes, as it reads now. Tables are there as they may be seen now, and count as never
        having been there otherwise."""
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

    def _left_of(self, source: int, content: list[Position]) -> list[Position]:
        """Partitions that are one, now that a column reads as NULL, hold no more than one does."""
        left = [x for x in content if x in self.tuples and self._over.enters(source, x)]
        window = self.block.readings[source].window
        if window is None or window.kind != "PARTITIONED":
            return left
        return held(window, left, BEGINNING, self._over.partition(source))

    def yields(self, instant: Instant) -> list[Yield]:
        """What the block yields at an instant to which its windows have moved."""
        slides = bool(slide_of(self.block))
        if instant.slides != slides or self._passed_over():
            return []
        now = self._over.rows(self._contents)
        found = self._over.yields(now, self._before, sliding=slides)
        self._before, self._held = now, list(self._contents)
        return found

    def holds(self, time: int) -> int:
        """How many tuples the windows hold at a time, those of all sources together. Tables have none."""
        return sum(
            len(held(reading.window, content, time, self._over.partition(source)))
            for source, (reading, content) in enumerate(zip(self.block.readings, self._contents, strict=True))
            if reading.window is not None and not reading.stream.table
        )

    def moves(self, until: float) -> list[Instant]:
        """Tuples that come into windows, and instants of sliding, whose time has now passed."""
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
        """A block with windows that slide is not looked at while all of those are empty."""
        windows = zip(self._contents, self.block.readings, strict=True)
        sliding = [content for content, reading in windows if reading.window and reading.window.slide]
        return bool(sliding) and not any(sliding)
