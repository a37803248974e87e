"""The steps of a random world through a shepherd and its processors, compared with the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from worlds.pipeline_model import Model, Wanted
from worlds.pipeline_replay import Lost, OwnSnapshots, Records, Replay, _arrow, compare, count, may_see
from worlds.pipeline_worlds import Author, Step, World

from headgate.egress.sinks import Sink, Verify
from headgate.ingress.validation import RawBatch
from headgate.labels import Level
from headgate.levels.child import Resources, Start
from headgate.levels.shepherd import LevelsSetting, Shepherd
from headgate.model.query import ContinuousQuery, name_at
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.secure import Mode
from headgate.testing.clock import ManualClock
from levels.harness import ThreadChild

OF_USERS = tuple(map(Level, ("TS", "TS", "TS", "TS", "S", "S", "S", "C", "U")))
OF_QUERIES = tuple(map(Level, ("S", "S", "S", "C", "C", "TS", "U")))
PATIENCE = 60.0


def with_levels(world: World) -> World:
    """The same world, in which every user has a level that stays, and queries have different levels. A cumulative query
    has a copy for the users of each level, as in the catalog; one that others read is an exact one instead."""
    rng = Random(f"levels {world.seed}")
    queries = {x.name: x for step in world.steps for x in (*step.snapshot.queries, *step.during.queries)}
    users = sorted({x.name for step in world.steps for x in (*step.snapshot.subscribers, *step.during.subscribers)})
    of_users = {name: rng.choice(OF_USERS) for name in users}
    of_queries = {name: rng.choice(OF_QUERIES) for name in sorted(queries)}
    read = {stream for x in queries.values() for stream in x.streams}
    shared = {name for name, x in queries.items() if x.mode == Mode.CUMULATIVE and x.output not in read}
    known: dict[int, CatalogSnapshot] = {}

    def subscriber(x: Subscriber) -> Subscriber:
        level = of_users[x.name]
        clearance = None if x.clearance is None else replace(x.clearance, level=level)
        query = name_at(x.query, str(level)) if x.query in shared else x.query
        return replace(x, query=query, clearance=clearance, level=str(level))

    def copies(x: ContinuousQuery) -> list[ContinuousQuery]:
        own = replace(x, level=of_queries[x.name])
        if x.name in shared:
            return [own.at(str(level)) for level in sorted(set(of_users.values()), key=str)]
        return [replace(own, mode=Mode.EXACT)]

    def snapshot(x: CatalogSnapshot) -> CatalogSnapshot:
        if id(x) not in known:
            own = tuple(copy for query in x.queries for copy in copies(query))
            known[id(x)] = replace(x, subscribers=tuple(map(subscriber, x.subscribers)), queries=own)
        return known[id(x)]

    steps = [replace(x, snapshot=snapshot(x.snapshot), during=snapshot(x.during)) for x in world.steps]
    return replace(world, steps=steps)


class Into(Sink):
    """One sink for all lanes: what the replay looks at. Its state is nothing, so that what was not out comes again."""

    name = "records"
    keeps = False

    def __init__(self, replay: LevelReplay, *, fails: bool) -> None:
        self._replay, self._fails = replay, fails

    def state(self, *_: object) -> dict[str, object]:
        return {}

    def restore(self, *_: object, **__: object) -> None:
        pass

    def stage(self, *_: object) -> None:
        pass

    def staged(self, *_: object) -> list[object]:  # type: ignore[override]
        return []

    def prepare(self, *given: object, **more: object) -> None:
        self._given = given, more

    def publish(self, verify: Verify) -> None:
        if self._fails and self._replay.fails:
            raise Lost
        own = Records()
        own.prepare(*self._given[0], **self._given[1])  # type: ignore[arg-type]
        own.publish(verify)
        found = self._replay.sink
        for key, results in own.results.items():
            found.results.setdefault(key, []).extend(results)
        found.ended |= own.ended
        found.rejected.update(own.rejected)

    def retain(self, *_: object) -> None:
        pass


class LevelReplay:
    def __init__(self, world: World, home: Path, architecture: str, start: Start = ThreadChild) -> None:
        self.world, self.home, self.sink, self.fails = world, home, Records(), False
        self.clock = ManualClock(0.0)
        self.snapshots = OwnSnapshots(world.steps[0].snapshot)
        self.numbers: Counter[str] = Counter()
        self.content = world.steps[0].content
        self.setting = LevelsSetting(architecture, start, lambda *_: Resources(), apart=False)
        self.shepherd = self.fresh()

    def fresh(self) -> Shepherd:
        def sinks(level: Level | None) -> list[Sink]:
            return [Into(self, fails=level is not None)]

        return Shepherd(self.home, self.snapshots, sinks, self.clock, self.setting, read_table=self.read_table)

    def read_table(self, descriptor: StreamDescriptor) -> RawBatch:
        return RawBatch(_arrow(descriptor.columns, [row for row, _ in self.content[descriptor.name]]))

    def step(self, step: Step) -> Records:
        """What went out with it."""
        self.sink, self.content = Records(), step.content
        self.fails = step.lost
        if step.kind == "restart":
            self.shepherd.close()
            self.snapshots.now = self.snapshots.during = step.snapshot
            self.shepherd = self.fresh()
            for lane in self.shepherd.lanes.values():
                lane.ask("settle")
        else:
            self.snapshots.now, self.snapshots.during = step.snapshot, step.during
            self._do(step)
        for level, lane in self.shepherd.lanes.items():
            assert lane.wait(PATIENCE, fails=step.lost), f"{level} goes on and on"
        return self.sink

    def _do(self, step: Step) -> None:
        if step.kind == "end":
            self.shepherd.end()
        elif step.kind == "look" and step.settled is not None:
            self.shepherd.settle()
            self.shepherd.pass_time({step.stream: step.settled})
        else:
            self.clock.advance(step.now - self.clock.now())
            columns = next(x.columns for x in self.world.streams if x.name == step.stream)
            number, self.numbers[step.stream] = self.numbers[step.stream], self.numbers[step.stream] + 1
            self.shepherd.take(step.stream, number, _arrow(columns, step.rows), settled=step.settled)
            for lane in self.shepherd.lanes.values():
                lane.follow()


def one_case(seed: int, home: Path, counts: Counter[str], architectures: Sequence[str], start: Start) -> bool:
    """Compares each architecture with the oracle, so they agree with each other too. False: a world with tables, of
    which each level has its own snapshot."""
    world = with_levels(Author(seed, unrest=seed % 3 == 0).world())
    if any(x.tables for step in world.steps for x in step.snapshot.queries):
        return False
    model = Model(world)
    expected = model.delivered()
    ends = [
        {
            (path[0], q)
            for (path, q), at in model.ends.items()
            if n in at and len(path) == 1 and may_see(step, path[0], q)
        }
        for n, step in enumerate(world.steps)
    ]
    for architecture in architectures:
        replayed(world, home / architecture, architecture, start, expected, ends)
    for number, step in enumerate(world.steps):
        count(step, expected[number], counts)
        counts["ended"] += len(ends[number])
    levels = {x.level for step in world.steps for x in step.snapshot.subscribers}
    counts["worlds"] += 1
    counts["worlds with several levels"] += len(levels) > 1
    return True


def replayed(
    world: World,
    home: Path,
    architecture: str,
    start: Start,
    expected: Sequence[Wanted],
    ends: Sequence[set[tuple[str, str]]],
) -> None:
    if architecture == "trusted":
        replay: Replay | LevelReplay = Replay(world, home)
    else:
        replay = LevelReplay(world, home, architecture, start)
    try:
        for number, step in enumerate(world.steps):
            where = f"seed {world.seed}, {architecture}, step {number}, {step.kind}"
            compare(where, step, replay.step(step), expected[number])
            if step.kind != "restart" and step.during is step.snapshot and not step.lost:
                assert replay.sink.ended == ends[number], where
    finally:
        (replay.pipeline if isinstance(replay, Replay) else replay.shepherd).close()
