"""The streams and queries of a random world: some queries over results of others, some over a table beside a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from plan import test_meaning as random_plans

from headgate.cql.queries import parse_query
from headgate.errors import HeadgateError
from headgate.labels import Level, parse_label
from headgate.model.query import ContinuousQuery
from headgate.plan.expressions import Type, written
from headgate.plan.queries import Stream, bind_query
from headgate.plan.secure import Mode
from headgate.testing.queries import Features, finder, random_query, random_streams
from worlds.noninterference_values import AT, LABELS, LEVELS, POLICY
from worlds.partitioned_queries import STREAMS, partitioned_query
from worlds.pipeline_queries import tabled


def labelled_streams(rng: Random) -> tuple[Stream, ...]:
    found = STREAMS if rng.random() < 0.8 else random_streams(rng)
    return tuple(labelled(rng, x, (AT, Type.TIMESTAMP), (POLICY, Type.STRING)) for x in found)


def labelled(rng: Random, stream: Stream, *more: tuple[str, Type]) -> Stream:
    """With labels on some columns, and with these more."""
    labels = tuple((name, parse_label(rng.choice(LABELS))) for name, _ in stream.columns if rng.random() < 0.2)
    return Stream(stream.name, (*stream.columns, *more), labels, stream.table)


def queries_beside(
    rng: Random, streams: tuple[Stream, ...], table: Stream, lateness: Mapping[str, int], results: int | None = None
) -> list[ContinuousQuery]:
    """Queries that read the table beside a stream, with MAX RESULTS `results`."""
    found: list[ContinuousQuery] = []
    while len(found) < 2 and streams[0].name == "s":
        try:
            query = bind_query(parse_query(tabled(rng, (table,))), finder((*streams, table)))
        except HeadgateError:
            continue
        name = f"d{len(found)}"
        found.append(
            ContinuousQuery(name, query, Level("S"), lateness, Mode.EXACT, f"out.{name}", most_results=results)
        )
    return found


def random_queries(rng: Random, streams: tuple[Stream, ...], lateness: Mapping[str, int]) -> list[ContinuousQuery]:
    found: list[ContinuousQuery] = []
    limits = Random(f"limits {rng.getstate()[1][:3]}")
    known = list(streams)
    while len(found) < 4:
        features = Features(blocks=2, sources=2, spelling=False, roles=())
        if streams[0].name == "s" and len(known) == len(streams):
            text = rng.choice((random_plans.plain_query, partitioned_query))(rng)
        elif rng.random() < 0.6:
            text = _over_results(rng, written(rng.choice(known).name))
        else:
            text = random_query(rng, known, features)
        name = f"q{len(found)}"
        try:
            query = bind_query(parse_query(text), finder(known))
        except HeadgateError:
            continue
        names = {reading.stream.name for block in query.blocks for reading in block.readings}
        producers = [x for x in found if x.output in names]
        stage = 1 + max((x.stage for x in producers), default=-1)
        level = max(
            [rng.choice(("U", "C", "S", "S", "S", "S", "TS")), *(x.level.name for x in producers)], key=LEVELS.index
        )
        mode = Mode.CUMULATIVE if not stage and rng.random() < 0.15 else Mode.EXACT
        own = {x: lateness.get(x, 0) for x in names}
        state, results = (limits.choice((None, None, 2, 4, 8)) for _ in range(2))
        if mode == Mode.CUMULATIVE:  # all who share it have one count, of what any of them may see (SPEC.md, 4.3)
            state = results = None
        found.append(
            ContinuousQuery(
                name, query, Level(level), own, mode, f"out.{name}", stage, most_state=state, most_results=results
            )
        )
        if len(found) >= 2:
            known = [*streams, *(Stream(x.output, x.query.columns) for x in found if x.stage < 2)]
    if not any(x.mode == Mode.EXACT for x in found):
        found[0] = replace(found[0], mode=Mode.EXACT)
    return found


def _over_results(rng: Random, stream: str) -> str:
    """Something that yields whatever there is, over a stream of any form."""
    window = rng.choice(("", "", "[ROWS 3]", "[RANGE 2 SECONDS]", "[UNBOUNDED]", "[RANGE 2 SECONDS SLIDE 1 SECOND]"))
    items = rng.choice(("*", "COUNT(*) AS n", "DISTINCT *", "LEVEL", "RSTREAM *", "DSTREAM *"))
    return f"SELECT {items} FROM {stream} {window}"


def with_makers(queries: Sequence[ContinuousQuery], names: set[str]) -> tuple[ContinuousQuery, ...]:
    needed = set(names)
    for query in reversed(queries):
        if query.name in needed:
            needed |= {x.name for x in queries if x.output in query.streams}
    return tuple(x for x in queries if x.name in needed)
