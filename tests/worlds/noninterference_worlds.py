"""What both runs of a pair have in common, drawn at random: a world, the subscribers at each step, and the tuples that
the observer may see.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from headgate.labels import Clearance, Level
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.secure import Mode
from worlds.noninterference_queries import labelled, labelled_streams, queries_beside, random_queries, with_makers
from worlds.noninterference_values import (
    AT,
    LABELS,
    LEVELS,
    OBSERVER,
    POLICY,
    ROLES,
    RULES,
    SKEW,
    TABLE,
    Batch,
    Fetch,
    Look,
    Restart,
    Row,
    Step,
    Visible,
    Wanted,
    World,
    label_from,
    random_row,
    random_values,
)

DOCTOR = Clearance(frozenset(ROLES), Level("TS"), frozenset({"s", "t", "d", "out.d0", "out.d1"}))


def random_world(rng: Random, *, together: bool = False, results: int | None = None) -> World:
    """`together`: what reads cumulative windows is watched too. `results`: the queries over the table, which the
    observer and someone who sees everything subscribe to, have this MAX RESULTS."""
    streams = labelled_streams(rng)
    lateness = {x.name: rng.choice((0, 0, 2000, 10_000)) for x in streams}
    queries = random_queries(rng, streams, lateness)
    apart = Random(repr(rng.getstate()))  # what concerns the table, so that all else is what it is without one
    clocks = Random(f"clocks {rng.getstate()}")
    fast = clocks.random() < 0.5  # some tuples are ahead of the clock
    table = labelled(apart, TABLE, (POLICY, Type.STRING))
    beside = queries_beside(apart, streams, table, lateness, results)
    looks = Random(f"looks {rng.getstate()}")
    delays = {x.name: looks.choice((None, 0, 500, 2000)) for x in streams} if looks.random() < 0.5 else {}
    descriptors = {
        x.name: StreamDescriptor(x.name, x.columns, AT, {"LABEL": POLICY}, skew=SKEW, delay=delays.get(x.name))
        for x in streams
    }
    descriptors[table.name] = StreamDescriptor(table.name, table.columns, None, {"LABEL": POLICY}, table=True)
    sources = frozenset({*descriptors, *(query.output for query in queries)})
    own = [x for x in queries if x.mode == Mode.EXACT and (together or not _together(x, queries))]
    watched = rng.sample(own, min(3, len(own)))

    def clearance() -> Clearance:
        roles = frozenset(rng.sample(ROLES, rng.choice((0, 1, 1, 2))))
        known = sources if rng.random() < 0.9 else sources - {rng.choice(streams).name}
        return Clearance(roles, Level(rng.choice((*LEVELS, *["TS"] * 6))), known)

    held = clearance()
    clearances, others = [held], dict[tuple[str, str], Clearance | None]()
    world = World(streams, [], clearances, rng.choice((0, 0, 2, 3)), rng.random() < 0.96, [*queries, *beside], table)

    def subscribed() -> Wanted:
        subscribers = [Subscriber(OBSERVER, query.name, held) for query in watched]
        subscribers += [Subscriber(name, query, x) for (name, query), x in others.items()]
        rng.shuffle(subscribers)
        subscribers += [Subscriber(name, x.name, y) for x in beside for name, y in ((OBSERVER, held), ("doc", DOCTOR))]
        names = {x.query for x in subscribers}
        running = with_makers(world.queries, names)
        read = {stream for query in running for stream in query.streams}
        return Wanted(
            CatalogSnapshot(RULES, {k: x for k, x in descriptors.items() if k in read}, running, tuple(subscribers))
        )

    def others_change() -> None:
        for number in range(rng.randint(0, 3)):
            key = f"u{number}", rng.choice(queries).name
            if key in others and rng.random() < 0.4:
                del others[key]
            else:
                others[key] = clearance() if rng.random() < 0.9 else None

    others_change()
    world.steps.append(subscribed())
    times = [0]
    for _ in range(rng.randint(3, 6)):
        stream = rng.choice(streams)
        seen = [x for x in LABELS if RULES.permits(label_from(x, stream.name), held)]
        rows = [random_row(rng, stream, times, lateness, seen) for _ in range(rng.randint(3, 9))]
        clock = max(0, times[-1] - clocks.choice((0, 0, 0, 500, 2500))) if fast else SKEW // 20
        world.steps.append(Batch(stream.name, tuple(rows), clock))
        if delays and looks.random() < 0.7:
            reached = times[-1] + looks.choice((0, 500, 3000))
            world.steps.append(Look({x.name: reached for x in streams if looks.random() < 0.8}))
        if rng.random() < 0.35:
            others_change()
            if rng.random() < 0.3:
                held = clearance()
                clearances.append(held)
            world.steps.append(subscribed())
        if rng.random() < 0.2:
            world.steps.append(Fetch())
        if rng.random() < 0.1:
            world.steps.append(Restart())
    visible = Visible(world)
    content = (
        Row(table.name, None, apart.choice(LABELS), random_values(apart, table)) for _ in range(apart.randint(0, 12))
    )
    world.content = tuple(x for x in content if x.label is not None and visible.row(x.stream, x.label))
    world.steps = [_only_visible(step, visible) for step in world.steps]
    world.parquet = looks.random() < 0.3
    return world


def _only_visible(step: Step, visible: Visible) -> Step:
    if not isinstance(step, Batch):
        return step
    rows = tuple(x for x in step.rows if x.label is not None and visible.row(x.stream, x.label))
    return Batch(step.stream, rows, step.clock)


def _together(query: ContinuousQuery, queries: Sequence[ContinuousQuery]) -> bool:
    """Whether it reads, at any distance, results of a cumulative query with windows: these are made of what any
    subscriber may see, and show it where owners have consented to that (SPEC.md, 4.3)."""
    producers = [x for x in queries if x.output in query.streams]
    cumulative = (x.mode == Mode.CUMULATIVE and not all(b.stateless for b in x.query.blocks) for x in producers)
    return any(cumulative) or any(_together(x, queries) for x in producers)
