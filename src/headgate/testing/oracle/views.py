"""A view holds the tuples that may be seen: by one subscriber for exact answers, by at least one of all for cumulative
ones.

Its windows move with its watermark, and keep no tuple that they lost. Of tables it holds what may be seen at the
moment, whatever could be seen before. A view that exceeds a limit ends.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from headgate.testing.oracle.rights import Rights, Setting, Subscribers
from headgate.testing.oracle.runs import Run
from headgate.testing.oracle.tuples import BEGINNING, Arrival, Limit, OracleResult, Seen, Tuple, TupleKey

_MANY = 1_000_000
"""More tuples than arrive at one moment."""


class OracleView:
    def __init__(self, setting: Setting, rights: Rights) -> None:
        self.rights = rights
        self._setting = setting
        self._runs = [Run(block, setting, rights) for block in setting.query.blocks]
        self._greatest: dict[str, int] = {}
        self._own: dict[str, dict[str, int]] = {}
        self._known: dict[str, float] = {}
        self._closed = set[str]()
        self._passed = -math.inf
        self._passed_for: dict[str, float] = {}
        self.limit = Limit()
        self.ended = False
        self._second, self._yielded = -math.inf, 0

    def watermark(self, name: str) -> float | None:
        """The watermark of the query's output for one subscriber: as far as tuples that it may see have moved it. So
        nothing comes with an earlier time, but for what stateless blocks pass on of late tuples. None: all streams are
        closed to this subscriber."""
        return self._passed_for.get(name, -math.inf) if self._open([name]) else None

    def _open(self, names: Collection[str]) -> set[str]:
        """The streams that any of these subscribers may read; the others do not hold the watermark back."""
        readings = ((run.block, reading.stream) for run in self._runs for reading in run.block.readings)
        return {
            stream.name
            for block, stream in readings
            if not stream.table
            and stream.name not in self._closed
            and not set(names).isdisjoint(self.rights.open(stream, block))
        }

    def _least(self, greatest: Mapping[str, int], names: Collection[str]) -> float:
        late = self._setting.lateness
        reached = (
            max(greatest.get(name, -math.inf) - late.get(name, 0), self._known.get(name, -math.inf))
            for name in self._open(names)
        )
        return min(reached, default=-math.inf)

    def _pass(self) -> None:
        """Moves the watermark, which never falls: neither does a stream that a right opens bring time back."""
        self._passed = max(self._passed, self._least(self._greatest, list(self.rights.subscribers)))
        for name in self.rights.subscribers:
            least = self._least(self._own.get(name, {}), [name])
            self._passed_for[name] = max(self._passed_for.get(name, -math.inf), least)

    def arrive(self, arrival: Arrival, number: int) -> list[OracleResult]:
        """All that arrives at one moment is late or not by the watermark before it."""
        watermark, entered, passed = self._passed, False, list[OracleResult]()
        for place, arriving in enumerate(arrival.tuples):
            position = TupleKey(arriving.time, arriving.stream, number * _MANY + place)
            entered |= self._enter(arriving, position, arriving.time < watermark, number, passed)
        for stream, reached in arrival.watermarks.items():
            if reached is None:
                self._closed.add(stream)
            else:
                self._closed.discard(stream)
                self._known[stream] = max(reached, self._known.get(stream, -math.inf))
        self._pass()
        if entered and self._exceeds(self._waiting(), self.limit.state):
            return []
        found = self.advance(self._passed, number)
        return [*found, *([] if self.ended else self._counted(passed))]

    def _enter(self, arriving: Tuple, position: TupleKey, late: bool, number: int, passed: list[OracleResult]) -> bool:
        """Whether the tuple entered a window; what it yields by itself is `passed` on."""
        entered = False
        for place, run in enumerate(self._runs):
            stream = run.stream(arriving.stream)
            permitted = [] if stream is None else self.rights.permit(arriving.label, run.block)
            if stream is None or not permitted:
                continue
            if stream.name not in self._setting.outputs:
                for greatest in (self._greatest, *(self._own.setdefault(name, {}) for name in permitted)):
                    greatest[stream.name] = max(arriving.reaches, greatest.get(stream.name, arriving.reaches))
            seen = Seen.whole(arriving).without(self.rights.hide(stream, run.block))
            if run.block.stateless:
                yields = run.pass_through(position, seen)
                passed += (OracleResult(arriving.time, *yielded, block=place, after=number) for yielded in yields)
            elif not late:
                run.tuples[position] = seen
                entered = True
        return entered

    def _waiting(self) -> int:
        """How many tuples wait for their time, whichever blocks they wait for."""
        return len({x for run in self._runs for x in run.tuples if x.time > BEGINNING and x.time >= self._passed})

    def _exceeds(self, number: int, most: int | None) -> bool:
        exceeds = most is not None and number > most
        self.ended = self.ended or exceeds
        return exceeds

    def _counted(self, results: list[OracleResult]) -> list[OracleResult]:
        """As many results as the limit allows in the second of the latest one; with one more the view ends. Results
        from before there was a limit do not count."""
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
        self.rights = Rights(self._setting, subscribers)
        for run in self._runs:
            run.lose(self.rights)

    def advance(self, until: float, number: int) -> list[OracleResult]:
        """Evaluates all instants before `until` that were not evaluated yet, as long as the windows stay within their
        limit."""
        found: list[OracleResult] = []
        moves = [set(run.moves(until)) for run in self._runs]
        for instant in sorted(set().union(*moves)):
            moving = [(place, run) for place, run in enumerate(self._runs) if instant in moves[place]]
            for _, run in moving:
                run.move(instant)
            if instant.position and self._exceeds(sum(x.holds(instant.time) for x in self._runs), self.limit.state):
                break
            for place, run in moving:
                found += (OracleResult(instant.time, *x, block=place, after=number) for x in run.yields(instant))
        for run in self._runs:
            run.passed = until
        return self._counted(found)
