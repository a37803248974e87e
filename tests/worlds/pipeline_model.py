"""What everyone should receive of a pipeline, at each step, by the oracle alone.

Who looks at a query from some step on begins with nothing; a query over the results of others reads what the oracle
says that its own reader would receive of these, at the moments at which it would. Each tuple of a step is a moment, and
so is the end. All who look at a cumulative query look through one view, which lasts
as long as anybody does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from headgate.labels import Clearance, Label
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.secure import Mode
from headgate.testing.oracle import Arrival, Change, Event, Limit, OracleResult, Tuple, cumulative, exact
from worlds.pipeline_worlds import World

Path = tuple[str, ...]
"""A subscriber, and the queries through which it looks."""
Key = tuple[Path, str]
Wanted = dict[tuple[str, str], list[OracleResult]]
"""By subscriber and query."""


@dataclass
class Made:
    """What one reader receives of a query: results by step and moment, and the watermark after each moment; `ends` has
    the steps in which the view ended, because of a limit or with a query that it read, and at which moment."""

    results: dict[tuple[int, int], list[OracleResult]] = field(default_factory=dict)
    watermarks: dict[tuple[int, int], float | None] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def of(self, step: int) -> list[OracleResult]:
        return [x for (own, _), results in self.results.items() if own == step for x in results]


class Model:
    def __init__(self, world: World) -> None:
        self.world = world
        self.looking = [dict(_looking(step.snapshot)) for step in world.steps]
        self._shared: dict[str, dict[Path, Made]] = {}
        self.of = cache(self._of)

    @property
    def ends(self) -> dict[Key, set[int]]:
        """The steps in which views ended that exceeded a limit, or read from one that did."""
        keys = {key for looking in self.looking for key in looking}
        return {key: set(self.of(key).ends) for key in keys}

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
        return {
            (path[0], query): self.of((path, query)).of(step) for path, query in self.looking[step] if len(path) == 1
        }

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

    def _of(self, key: Key) -> Made:
        """What one who looks receives."""
        path, query = key
        running = next(step.snapshot.running[query] for step in self.world.steps if query in step.snapshot.running)
        if running.mode == Mode.CUMULATIVE:
            return self._of_shared(running).get(path, Made())
        made = Made()
        for first, end in _episodes(key in looking for looking in self.looking):
            me, events, when = "me", list[Event](), list[tuple[int, int]]()
            before = self.looking[first][key]
            for number in range(first, end):
                now = self.looking[number][key]
                coming: list[Event] = [self._limit(running, number)]
                coming += [Change(me, now, None)] if now != before else []
                before = now
                events += coming
                when += [(number, -1)] * len(coming)
                last = self._reads_no_more(running, path, number)
                for moment, arrival in enumerate(self._arriving(running, path, number), -1):
                    if last is None or moment <= last:
                        events.append(arrival)
                        when.append((number, moment))
                if last is not None:
                    made.ends[number] = last
                    end = number + 1
                    break
            ends, watermarks = dict[str, int](), dict[str, list[float | None]]()
            subscribers = {me: self.looking[first][key]}
            setting = self._setting(running, first)
            received = exact(running.query, events, subscribers, **setting, ends=ends, watermarks=watermarks)[me]
            self._share_out(made, received, watermarks.get(me, []), when)
            if me in ends and ends[me] < len(when):
                made.ends.pop(end - 1, None)
                made.ends[when[ends[me]][0]] = when[ends[me]][1]
        return made

    def _limit(self, running: ContinuousQuery, number: int) -> Limit:
        now = self.world.steps[number].snapshot.running[running.name]
        return Limit(now.most_state, now.most_results)

    def _reads_no_more(self, running: ContinuousQuery, path: Path, number: int) -> int | None:
        """The moment of this step at which a query that it reads ended for this reader, who may know of it: of one at a
        level that it does not look from, it may not."""
        step, here = self.world.steps[number], (*path, running.name)
        told = (
            producer.name
            for producer in _producers(step.snapshot, running)
            if (clearance := self.looking[number].get((here, producer.name))) is not None
            and step.snapshot.rules.order.dominates(clearance.level, producer.level)
        )
        ends = (self.of((here, name)).ends.get(number) for name in told)
        return min((x for x in ends if x is not None), default=None)

    def _of_shared(self, running: ContinuousQuery) -> dict[Path, Made]:
        if running.name not in self._shared:
            here = [{p: x for (p, q), x in looking.items() if q == running.name} for looking in self.looking]
            self._shared[running.name] = {path: Made() for looking in here for path in looking}
            first, stuck = 0, set[Path]()
            while first < len(here):
                mine = self._sharing(here, first, stuck)
                end = next((x for x in range(first, len(here)) if not mine[x]), len(here))
                ended = self._replay_shared(running, mine, first, end) if end > first else None
                if ended is not None:
                    step, moment = ended
                    for path in mine[step]:
                        self._shared[running.name][path].ends[step] = moment
                    stuck, first = {x for x in here[step] if x in mine[step] or x in stuck}, step
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
    ) -> tuple[int, int] | None:
        """Returns the step and the moment in which the view ended that exceeded a limit."""
        events, when = list[Event](), list[tuple[int, int]]()
        everyone = {path for looking in here[first:end] for path in looking}
        names = {path: "/".join(path) for path in everyone}
        before = here[first]
        for number in range(first, end):
            coming: list[Event] = [
                self._limit(running, number),
                *(Change(names[path], x, None) for path, x in _changes(before, here[number])),
            ]
            before = here[number]
            arriving = list(self._arriving(running, (), number))
            events += [*coming, *arriving]
            when += [*[(number, -1)] * len(coming), *((number, moment) for moment in range(-1, len(arriving) - 1))]
        subscribers = {names[path]: here[first].get(path) for path in everyone}
        ends, watermarks = dict[str, int](), dict[str, list[float | None]]()
        setting = self._setting(running, first)
        received = cumulative(running.query, events, subscribers, **setting, ends=ends, watermarks=watermarks)
        for path in everyone:
            made = self._shared[running.name][path]
            self._share_out(made, received[names[path]], watermarks.get(names[path], []), when)
        at = next(iter(ends.values()), None)
        return when[at] if at is not None and at < len(when) else None

    def _share_out(
        self,
        made: Made,
        received: Iterable[OracleResult],
        watermarks: Sequence[float | None],
        when: Sequence[tuple[int, int]],
    ) -> None:
        """Results by the moment at which they came; at the end of an episode that is not the end of all, what waits for
        its time is gone."""
        for result in received:
            if result.after < len(when):
                made.results.setdefault(when[result.after], []).append(result)
        made.watermarks.update(zip(when, watermarks, strict=False))

    def _arriving(self, running: ContinuousQuery, path: Path, number: int) -> Iterator[Arrival]:
        """The moments of a step: what changed before it, then each tuple, with what other queries make of it for this
        reader, stage by stage; and the end of all. A restart is none: what changed with it is part of the next step."""
        step = self.world.steps[number]
        if step.kind == "restart":
            return
        clock = int(step.now * 1000) if step.kind == "batch" else None
        ending = dict.fromkeys(running.streams, math.inf)
        own: list[Tuple | None] = [None, *step.tuples, None]
        producers = sorted(_producers(step.snapshot, running), key=lambda x: (x.stage, x.output))
        made = {x.name: self.of(((*path, running.name), x.name)) for x in producers}
        for moment, tuple_ in enumerate(own, -1):
            tuples, watermarks = list[Tuple](), dict[str, float | None]()
            if tuple_ is not None and tuple_.stream in running.streams:
                tuples.append(replace(tuple_, clock=clock))
            for producer in producers:
                tuples += self._results_of(producer, made[producer.name].results.get((number, moment), ()))
                watermarks[producer.output] = made[producer.name].watermarks.get((number, moment), -math.inf)
            if moment == len(step.tuples):
                watermarks |= ending if step.kind == "end" else self._settled(running, number)
            yield Arrival(tuple(tuples), watermarks)

    def _settled(self, running: ContinuousQuery, number: int) -> dict[str, float | None]:
        """The watermark that the clock gives a stream with a declared delay."""
        step = self.world.steps[number]
        found = step.snapshot.descriptors.get(step.stream)
        if found is None or found.delay is None or step.settled is None or step.stream not in running.streams:
            return {}
        return {step.stream: step.settled - found.delay}

    def _results_of(self, producer: ContinuousQuery, results: Iterable[OracleResult]) -> Iterator[Tuple]:
        columns = [name for name, _ in producer.query.columns]
        for result in results:
            values = dict(zip(columns, result.values, strict=True))
            yield Tuple(producer.output, result.time, values, self._with_source(result.label, producer.output))

    def _with_source(self, label: Label, source: str) -> Label:
        return self.world.rules.combine(label, Label(sources=frozenset({source})))

    def _setting(self, running: ContinuousQuery, step: int) -> dict[str, Any]:
        tables = [x for name in sorted(running.tables) for x in self._snapshot(name, step)]
        outputs = {x.output for step in self.world.steps for x in step.snapshot.queries}
        return {
            "tables": tables,
            "rules": self.world.rules,
            "lateness": running.lateness,
            "level": running.level,
            "outputs": outputs,
            "declared": {x: self._declared(step, x) for x in running.streams},
        }

    def _declared(self, step: int, stream: str) -> Label:
        found = self.world.steps[step].snapshot.descriptors.get(stream)
        return self._with_source(Label() if found is None else found.policy, stream)

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
