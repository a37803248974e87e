"""What everyone should receive of a pipeline, at each step, by the oracle alone.

Who looks at a query from some step on begins with nothing; a query over the results of others reads what the oracle
says that its own reader would receive of these. All who look at a cumulative query look through one view, which lasts
as long as anybody does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from headgate.labels import Clearance, Label
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.secure import Mode
from headgate.testing.oracle import Change, Event, Limit, Result, Tuple, cumulative, exact
from worlds.pipeline_worlds import World

Path = tuple[str, ...]
"""A subscriber, and the queries through which it looks."""
Key = tuple[Path, str]
Wanted = dict[tuple[str, str], list[Result]]
"""By subscriber and query."""


class Model:
    def __init__(self, world: World) -> None:
        self.world = world
        self.looking = [dict(_looking(step.snapshot)) for step in world.steps]
        self._shared: dict[str, list[dict[Path, list[Result]]]] = {}
        self.ends: dict[Key, set[int]] = {}
        """The steps in which views ended that exceeded a limit, or read from one that did."""
        self.of = cache(self._of)

    def delivered(self) -> list[Wanted]:
        """What goes out at each step."""
        found: list[Wanted] = []
        last: Wanted = {}
        for number, step in enumerate(self.world.steps):
            if step.kind != "restart":
                last = self._computed(number)
            out = last if step.kind != "restart" and step.during is step.snapshot else self._allowed(last, step.during)
            found.append({} if step.lost else {key: results for key, results in out.items() if results})
            if not step.lost:  # what is out does not come again
                last = {}
        return found

    def _computed(self, step: int) -> Wanted:
        return {(path[0], query): self.of((path, query))[step] for path, query in self.looking[step] if len(path) == 1}

    def _allowed(self, results: Wanted, now: CatalogSnapshot) -> Wanted:
        found: Wanted = {}
        for (name, query), own in results.items():
            running, clearance = now.running.get(query), now.clearances.get((name, query))
            order = self.world.rules.order
            if running is None or clearance is None or not order.dominates(clearance.level, running.level):
                continue
            here = replace(clearance, level=running.level)
            found[name, query] = [
                x
                for x in own
                if self.world.rules.permits(x.label, here, aggregated=running.query.blocks[x.block].aggregated)
            ]
        return found

    def _of(self, key: Key) -> list[list[Result]]:
        """What one who looks receives at each step."""
        path, query = key
        found: list[list[Result]] = [[] for _ in self.world.steps]
        running = next(step.snapshot.running[query] for step in self.world.steps if query in step.snapshot.running)
        if running.mode == Mode.CUMULATIVE:
            for number, results in enumerate(self._of_shared(running)):
                found[number] = results.get(path, [])
            return found
        there = [key in looking for looking in self.looking]
        for first, end in _episodes(there):
            me, events, steps = "me", list[Event](), list[int]()
            before = self.looking[first][key]
            for number in range(first, end):
                now = self.looking[number][key]
                coming: list[Event] = [
                    self._limit(running, number),
                    *([Change(me, now)] if now != before else []),
                    *self._arriving(running, path, number),
                ]
                before = now
                events += coming
                steps += [number] * len(coming)
                if self._reads_no_more(running, path, number):
                    self.ends.setdefault(key, set()).add(number)
                    end = number + 1
                    break
            ends: dict[str, int] = {}
            subscribers = {me: self.looking[first][key]}
            received = exact(running.query, events, subscribers, **self._setting(running, first), ends=ends)[me]
            self._share_out(received, steps, end, found.__getitem__)
            if me in ends and (ends[me] < len(steps) or end == len(self.world.steps)):
                self.ends[key] = self.ends.get(key, set()) - {end - 1} | {[*steps, end - 1][ends[me]]}
        return found

    def _limit(self, running: ContinuousQuery, number: int) -> Limit:
        now = self.world.steps[number].snapshot.running[running.name]
        return Limit(now.most_state, now.most_results)

    def _reads_no_more(self, running: ContinuousQuery, path: Path, number: int) -> bool:
        """Whether a query that it reads ended for this reader in this step, who may know of it: of one at a level that
        it does not look from, it may not."""
        step, here = self.world.steps[number], (*path, running.name)
        told = (
            producer.name
            for producer in _producers(step.snapshot, running)
            if (clearance := self.looking[number].get((here, producer.name))) is not None
            and step.snapshot.rules.order.dominates(clearance.level, producer.level)
        )
        return any(number in self.ends.get((here, name), ()) for name in told)

    def _of_shared(self, running: ContinuousQuery) -> list[dict[Path, list[Result]]]:
        if running.name not in self._shared:
            self._shared[running.name] = [{} for _ in self.world.steps]
            here = [{p: x for (p, q), x in looking.items() if q == running.name} for looking in self.looking]
            first, stuck = 0, set[Path]()
            while first < len(here):
                mine = self._sharing(here, first, stuck)
                end = next((x for x in range(first, len(here)) if not mine[x]), len(here))
                ended = self._replay_shared(running, mine, first, end) if end > first else None
                if ended is not None:
                    self.ends |= {
                        (x, running.name): self.ends.get((x, running.name), set()) | {ended} for x in mine[ended]
                    }
                    stuck, first = {x for x in here[ended] if x in mine[ended] or x in stuck}, ended
                elif end > first:
                    first = end - 1
                first += 1
                stuck &= here[first].keys() if first < len(here) else set()
        return self._shared[running.name]

    def _sharing(
        self, here: Sequence[Mapping[Path, Clearance | None]], first: int, stuck: set[Path]
    ) -> list[dict[Path, Clearance | None]]:
        """Those who share a view that begins with a step: all but those who are still there since one that ended."""
        mine: list[dict[Path, Clearance | None]] = [{} for _ in here]
        for number in range(first, len(here)):
            stuck = stuck & here[number].keys()
            mine[number] = {path: x for path, x in here[number].items() if path not in stuck}
        return mine

    def _replay_shared(
        self, running: ContinuousQuery, here: Sequence[Mapping[Path, Clearance | None]], first: int, end: int
    ) -> int | None:
        """Returns the step in which the view ended that exceeded a limit."""
        events, steps = list[Event](), list[int]()
        everyone = {path for looking in here[first:end] for path in looking}
        names = {path: "/".join(path) for path in everyone}
        before = here[first]
        for number in range(first, end):
            coming: list[Event] = [
                self._limit(running, number),
                *(Change(names[path], x) for path, x in _changes(before, here[number])),
                *self._arriving(running, (), number),
            ]
            before = here[number]
            events += coming
            steps += [number] * len(coming)
        subscribers = {names[path]: here[first].get(path) for path in everyone}
        ends: dict[str, int] = {}
        received = cumulative(running.query, events, subscribers, **self._setting(running, first), ends=ends)
        for path in everyone:
            self._share_out(
                received[names[path]],
                steps,
                end,
                lambda number: self._shared[running.name][number].setdefault(path, []),  # noqa: B023
            )
        at = next(iter(ends.values()), None)
        return [*steps, end - 1][at] if at is not None and (at < len(steps) or end == len(here)) else None

    def _share_out(
        self, received: Iterable[Result], steps: Sequence[int], end: int, to: Callable[[int], list[Result]]
    ) -> None:
        """Results by the step in which they came; at the end of an episode that is not the end of all, what waits for
        its time is gone."""
        for result in received:
            if result.after < len(steps):
                to(steps[result.after]).append(result)
            elif end == len(self.world.steps):
                to(end - 1).append(result)

    def _arriving(self, running: ContinuousQuery, path: Path, number: int) -> Iterator[Tuple]:
        """The tuples of a step; then what other queries made of them for this reader, stage by stage."""
        step = self.world.steps[number]
        clock = int(step.now * 1000) if step.kind == "batch" else None
        yield from (replace(x, clock=clock) for x in step.tuples if x.stream in running.streams)
        producers = _producers(step.snapshot, running)
        for producer in sorted(producers, key=lambda x: (x.stage, x.output)):
            columns = [name for name, _ in producer.query.columns]
            for result in self.of(((*path, running.name), producer.name))[number]:
                values = dict(zip(columns, result.values, strict=True))
                label = self._with_source(result.label, producer.output)
                yield Tuple(producer.output, result.time, values, label, clock)

    def _with_source(self, label: Label, source: str) -> Label:
        return self.world.rules.combine(label, Label(sources=frozenset({source})))

    def _setting(self, running: ContinuousQuery, step: int) -> dict[str, Any]:
        tables = [x for name in sorted(running.tables) for x in self._snapshot(name, step)]
        return {"tables": tables, "rules": self.world.rules, "lateness": running.lateness, "level": running.level}

    def _snapshot(self, table: str, step: int) -> list[Tuple]:
        """What a table held at the first of all steps up to this one in which some query reads it."""
        read = (any(table in query.tables for query in x.snapshot.queries) for x in self.world.steps)
        begun = next(first for first, end in _episodes(read) if first <= step < end)
        return [found for _, found in self.world.steps[begun].content[table]]


def _looking(snapshot: CatalogSnapshot) -> Iterator[tuple[Key, Clearance | None]]:
    """All who look, also those through other queries, in the order in which they were told."""
    waiting: list[tuple[Key, Clearance | None]] = [(((x.name,), x.query), x.clearance) for x in snapshot.subscribers]
    while waiting:
        (path, query), clearance = waiting.pop(0)
        yield (path, query), clearance
        producers = sorted(_producers(snapshot, snapshot.running[query]), key=lambda x: x.output)
        waiting += [(((*path, query), producer.name), clearance) for producer in producers]


def _producers(snapshot: CatalogSnapshot, running: ContinuousQuery) -> list[ContinuousQuery]:
    return [x for x in snapshot.queries if x.output in running.streams]


def _episodes(there: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """Runs of steps in which somebody is there: the first, and the one after the last."""
    first = None
    for number, here in enumerate((*there, False)):
        if here and first is None:
            first = number
        elif not here and first is not None:
            yield first, number
            first = None


def _changes(
    before: Mapping[Path, Clearance | None], now: Mapping[Path, Clearance | None]
) -> Iterator[tuple[Path, Clearance | None]]:
    """Who leaves, who comes, whose rights are others; of the last, those with the same ones together."""
    yield from ((path, None) for path in before if path not in now)
    yield from ((path, x) for path, x in now.items() if path not in before)
    changed = [(path, x) for path, x in now.items() if path in before and before[path] != x]
    rank: dict[Clearance | None, int] = {}
    for _, clearance in changed:
        rank.setdefault(clearance, len(rank))
    yield from sorted(changed, key=lambda x: rank[x[1]])
