"""What EXPLAIN ANALYZE shows a reader, for random sets of queries: the same as if the reader, its query and the tuples
that it may see were all there is, however they come in batches."""

from __future__ import annotations

from random import Random

import pytest
from worlds.processor_replay import TOP, Replay

from headgate.labels import Clearance
from headgate.plan.analysis import StepCounts, analyzed
from headgate.plan.explain import tree
from headgate.plan.lowering import lower
from headgate.plan.merged import MergedPlan
from headgate.plan.queries import Query
from headgate.plan.secure import Mode
from headgate.testing.oracle import Tuple
from plan.test_meaning import RULES, random_set

NURSE = Clearance(frozenset({"nurse"}), TOP)
DOCTOR = Clearance(frozenset({"doctor"}), TOP)


def replayed(queries: dict[str, Query], tuples: list[Tuple], readers: dict[str, Clearance], seed: int) -> Replay:
    rng, waiting = Random(seed), list[Tuple]()
    streams = {
        reading.stream.name for query in queries.values() for block in query.blocks for reading in block.readings
    }
    replay = Replay(queries, dict.fromkeys(streams, 0), readers, Mode.EXACT)
    for tuple_ in tuples:
        waiting.append(tuple_)
        if rng.random() < 0.3:
            replay.batch(waiting)
            waiting = []
    replay.batch(waiting)
    return replay


def shown(replay: Replay, name: str, query: Query) -> list[str]:
    """What the nurse is shown."""
    plan = MergedPlan()
    plan.add(name, lower(query))
    (view,) = (view for who, view in replay.views if who == "nurse" and view.running.name == name)
    done = {x: StepCounts(y.taken, y.given, y.held) for x, y in replay.processor.profile(view).items()}
    return list(analyzed(tree(plan, name, {}), done, everything=False))


def one_set(seed: int) -> int:
    """How many numbers there were to compare."""
    queries, tuples = random_set(Random(seed))
    tuples = sorted(tuples, key=lambda x: x.time)
    seen = [x for x in tuples if RULES.permits(x.label, NURSE)]
    together = replayed(queries, tuples, {"doctor": DOCTOR, "nurse": NURSE}, seed)
    numbers = 0
    for name, query in list(queries.items())[:2]:
        lines = shown(replayed({name: query}, seen, {"nurse": NURSE}, seed + 1), name, query)
        assert shown(together, name, query) == lines, f"seed {seed}: {name}"
        numbers += sum("   -- in " in line and " in 0," not in line for line in lines)
    return numbers


def test_a_reader_is_shown_what_it_would_be_shown_alone() -> None:
    assert sum(map(one_set, range(6))) > 10


@pytest.mark.long
def test_a_reader_is_shown_what_it_would_be_shown_alone_in_1000_sets() -> None:
    assert sum(map(one_set, range(1000, 2000))) > 2000
