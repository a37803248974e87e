"""Queries over the results of queries: what everyone receives is what the oracle says, tuple by tuple and in this
order, however tuples are split into batches, and whatever comes that may not be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from worlds.chain_worlds import ANN, Replay, chained, random_world, with_looks, with_noise

from headgate.labels import parse_label
from headgate.model import moments as course
from headgate.model.results import ResultBatch
from headgate.model.tuples import TupleBatch
from headgate.recovery.query_graph import QueryGraph
from headgate.testing.oracle import ChainSetting, Result, Tuple
from headgate.visibility import index, watermarks

LONGEST = (1, 4, 1000)
"""A batch for each tuple, small batches, one for each run of tuples of one stream."""


def agree(seed: int, *, delay: bool = False) -> Counter[str]:
    world, counts = random_world(Random(seed), delay=delay), Counter[str]()
    wanted = world.wanted()
    for longest in LONGEST:
        found = Replay(world, Random(seed), longest).all(world.events)
        noisy = Replay(world, Random(seed), longest).all(with_noise(Random(seed), world.events))
        for key, results in wanted.items():
            assert shown(found[key]) == shown(results), (seed, longest, key, world.texts)
            assert shown(noisy[key]) == shown(results), (seed, longest, key, world.texts, "with what is hidden")
    counts["worlds"] += 1
    for (_, output), results in wanted.items():
        counts[f"results of {output}"] += len(results)
    return counts


def shown(results: list[Result]) -> list[tuple[object, ...]]:
    return [(x.time, x.values, str(x.label), x.block) for x in results]


def check(first: int, cases: int) -> Counter[str]:
    counts = sum((agree(seed, delay=seed % 3 == 0) for seed in range(first, first + cases)), Counter[str]())
    assert all(counts[f"results of O{n}"] > 10 * cases for n in (1, 2)) and counts["results of O3"] > 5 * cases
    return counts


def test_chains_mean_what_the_oracle_says_in_any_split_and_beside_anything_hidden() -> None:
    check(0, 25)


@pytest.mark.long
def test_1000_chains_mean_what_the_oracle_says() -> None:
    print(dict(check(10_000, 1_000)))


@pytest.mark.parametrize("seed", range(20))
def test_looks_at_the_clock_change_nothing_for_tuples_that_come_as_declared(seed: int) -> None:
    """Only when results come: so batches of others, which look at the clock, tell nothing. What reads UNION ALL of
    stateless and windowed blocks is left out: tuples of one time are then in the order in which they come."""
    drawn = random_world(Random(f"looks {seed}"))
    tuples = [x for x in drawn.events if isinstance(x, Tuple)]
    setting = ChainSetting(drawn.setting.rules, {"A": 4000, "B": 4000}, {"A": 700, "B": 700})
    world = chained(drawn.texts, tuples, setting)
    once = Replay(world, Random(seed), 5).all(tuples)
    often = Replay(world, Random(seed), 5).all(with_looks(Random(seed), tuples, 700))
    mixed = {x.output for x in world.links if len({block.stateless for block in x.query.blocks}) > 1}
    read = {x.output: {y.stream.name for block in x.query.blocks for y in block.readings} for x in world.links}
    for key, results in once.items():
        behind = read[key[1]] | {x for y in read[key[1]] for x in read.get(y, ())}
        if behind & mixed:
            continue
        assert Counter(map(str, shown(often[key]))) == Counter(map(str, shown(results))), (key, world.texts)


# What would break it --------------------------------------------------------------------------------------------------


def results_come_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Derived tuples arrive after all that came in one batch with what made them final."""
    tuples = QueryGraph._consumer_tuples

    def late(self: QueryGraph, found: ResultBatch) -> list[TupleBatch]:
        end = np.full(len(found), 0 if found.moments is None or not len(found) else int(found.moments.max()))
        return list(tuples(self, found if found.moments is None else _at(found, end)))

    patch.setattr(QueryGraph, "_consumer_tuples", late)


def _at(found: ResultBatch, moments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> ResultBatch:
    object.__setattr__(found, "moments", moments)
    return found


def watermarks_do_not_travel(patch: pytest.MonkeyPatch) -> None:
    """Time is guessed from the times of results."""
    real: Any = watermarks.Coming
    patch.setattr(index, "Coming", lambda *given: real(*given[:-1], False))
    patch.setattr(QueryGraph, "_tell", lambda *_: None)


def watermarks_are_ahead(patch: pytest.MonkeyPatch) -> None:
    """An output is told to be further than its blocks guarantee."""
    real = watermarks._marks
    patch.setattr(watermarks, "_marks", lambda *given: real(*given) + 400)


def clock_is_not_told(patch: pytest.MonkeyPatch) -> None:
    real = QueryGraph.batch

    def batch(self: QueryGraph, arrivals: object, *, last: bool = False, **_: object) -> list[ResultBatch]:
        return real(self, arrivals, last=last)  # type: ignore[arg-type]

    patch.setattr(QueryGraph, "batch", batch)


def ends_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """A query goes on beyond the moment at which one ended that it reads."""
    patch.setattr(course.Course, "until", lambda self, _: self)
    patch.setattr("headgate.model.view.View.end_with", lambda self, _, reason: setattr(self, "ending", reason))


FAULTS = (results_come_at_the_end, watermarks_do_not_travel, watermarks_are_ahead, clock_is_not_told, ends_are_not_told)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_a_fault_in_time_is_found_out(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check(0, 120)


@pytest.mark.parametrize("longest", [1, 6, 60])
def test_a_window_over_two_streams_read_one_after_the_other_loses_nothing(longest: int) -> None:
    """A's 60 tuples, then B's: each counts, in 120, 20 and 2 batches."""
    world = chained(
        ("SELECT v FROM A UNION ALL SELECT v FROM B", "SELECT COUNT(*) AS v FROM O1 [UNBOUNDED]"),
        [Tuple(name, 1000 * n, {"v": n}, parse_label(f"TRUE FROM {name}")) for name in "AB" for n in range(60)],
    )
    found = Replay(world, Random(0), longest).all(world.events)[ANN, "O2"]
    assert [x.values for x in found] == [(n,) for n in range(1, 121)]


@pytest.mark.parametrize("longest", [1, 7, 70])
def test_a_window_over_stateless_and_windowed_blocks_loses_nothing(longest: int) -> None:
    texts = (
        "SELECT v FROM A UNION ALL SELECT MAX(v) AS v FROM A [RANGE 1 SECOND SLIDE 1 SECOND]",
        "SELECT COUNT(*) AS v FROM O1 [UNBOUNDED]",
    )
    given = [Tuple("A", 1000 * n + 500, {"v": n}, parse_label("TRUE FROM A")) for n in range(70)]
    world = chained(texts, given)
    found = Replay(world, Random(0), longest).all(world.events)[ANN, "O2"]
    assert [x.values for x in found] == [(n,) for n in range(1, 141)]
