"""Queries over the results of queries: what everyone receives is what the oracle says, tuple by tuple and in this
order, however tuples are split into batches, and whatever comes that may not be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from worlds.chain_tasks import ReplayInTasks
from worlds.chain_worlds import (
    ANN,
    ROLES,
    Replay,
    chained,
    clearance,
    random_lines,
    random_world,
    with_looks,
    with_noise,
)
from worlds.harness import Bench, stream

from headgate.columns.sorting import Ints
from headgate.egress import result_splits
from headgate.egress.gathered import Gathering
from headgate.egress.result_splits import HandedOn
from headgate.execution.tasks import written
from headgate.labels import parse_label
from headgate.model import moments as course
from headgate.model.results import BlockResults, ResultBatch
from headgate.model.times import NO_TIME
from headgate.model.tuples import in_moments
from headgate.model.view import ReaderTime, View
from headgate.model.visibility import Visibility
from headgate.recovery import consumers, query_graph
from headgate.recovery.query_graph import QueryGraph
from headgate.testing.oracle import CascadeSetting, Change, Event, OracleResult, Tuple
from headgate.visibility import index, watermarks
from headgate.visibility.index import VisibilityIndex
from headgate.visibility.policy import VisibilityPolicy

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


def shown(results: list[OracleResult]) -> list[tuple[object, ...]]:
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
    setting = CascadeSetting(drawn.setting.rules, {"A": 4000, "B": 4000}, {"A": 700, "B": 700})
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


# In tasks -------------------------------------------------------------------------------------------------------------


def agree_in_tasks(first: int, cases: int, home: Path, patch: pytest.MonkeyPatch) -> Counter[str]:
    """Worlds whose results go from stage to stage in files, or as the driver has them; with one worker, or several."""
    counts = Counter[str]()
    for seed in range(first, first + cases):
        patch.setattr(written, "WORTH_IT", 1 if seed % 3 else 10_000)
        patch.setattr(result_splits, "WORTH_SHARING", 1 if seed % 2 else 1 << 17)
        world = random_lines(Random(seed))
        wanted = world.wanted()
        for longest in (7, 60):
            replay = ReplayInTasks(world, Random(seed), longest, home / f"{seed} {longest}", seed % 3 + 1)
            found = replay.all(world.events)
            for key, results in wanted.items():
                assert shown(found[key]) == shown(results), (seed, longest, key, world.texts)
            counts["read by tasks"] += replay.tasks.read
            counts["handed on in tasks"] += replay.tasks.handed_on
            counts["decided by the driver"] += replay.refused
        for (_, output), results in wanted.items():
            counts[f"results of {output}"] += len(results)
    return counts


def test_chains_in_tasks_mean_what_the_oracle_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = agree_in_tasks(0, 8, tmp_path, monkeypatch)
    assert counts["read by tasks"] > 50 and counts["handed on in tasks"] > 50


@pytest.mark.long
def test_500_chains_in_tasks_mean_what_the_oracle_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    print(dict(agree_in_tasks(1_000, 500, tmp_path, monkeypatch)))


def outputs_are_ahead(patch: pytest.MonkeyPatch) -> None:
    """Readers of an output are told that it is further than it is."""
    real = watermarks.follow
    patch.setattr(consumers, "follow", lambda view, output, mark: real(view, output, mark + 400))


def results_go_on_as_they_lie(patch: pytest.MonkeyPatch) -> None:
    """Those of one partition after those of another."""
    real = Gathering.rows_between

    def rows_between(self: Gathering, first: int, end: int) -> tuple[list[BlockResults], Ints]:
        found, order = real(self, first, end)
        return found, np.sort(order)

    patch.setattr(Gathering, "rows_between", rows_between)


def results_are_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """All views see the results that were made for some."""
    patch.setattr(VisibilityIndex, "_for_some", lambda _, number, __: number)


IN_TASKS = (outputs_are_ahead, results_go_on_as_they_lie, results_are_for_everybody)


@pytest.mark.parametrize("fault", IN_TASKS, ids=lambda fault: str(fault.__name__))
def test_a_fault_in_tasks_is_found_out(
    fault: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        agree_in_tasks(0, 20, tmp_path, monkeypatch)


# What would break it --------------------------------------------------------------------------------------------------


def results_come_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Derived tuples arrive after all that came in one batch with what made them final."""
    handed_on = QueryGraph._handed_on

    def late(self: QueryGraph, found: ResultBatch) -> list[HandedOn]:
        end = np.full(len(found), 0 if found.moments is None or not len(found) else int(found.moments.max()))
        return list(handed_on(self, found if found.moments is None else _at(found, end)))

    patch.setattr(QueryGraph, "_handed_on", late)


def _at(found: ResultBatch, moments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> ResultBatch:
    object.__setattr__(found, "moments", moments)
    return found


def watermarks_do_not_travel(patch: pytest.MonkeyPatch) -> None:
    """Time is guessed from the times of results."""
    real: Any = watermarks.Coming
    patch.setattr(index, "Coming", lambda *given: real(*given[:-1], False))
    patch.setattr(consumers, "hand_watermarks", lambda *_: None)


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
    patch.setattr(course.WatermarkTimeline, "until", lambda self, _: self)
    patch.setattr("headgate.model.view.View.end_with", lambda self, _, reason: setattr(self, "ending", reason))


def closed_streams_hold_back(patch: pytest.MonkeyPatch) -> None:
    """A stream that a reader may not read holds its results back."""
    patch.setattr(VisibilityPolicy, "_open_to", lambda _, __, view, ___: view.timed)


def rights_open_what_makes_nothing(patch: pytest.MonkeyPatch) -> None:
    """An output holds results back although its reader may read nothing that it is made of."""
    real = VisibilityIndex.open
    patch.setattr(VisibilityIndex, "open", lambda self, view, _=None: real(self, view))


def rights_turn_time_back(patch: pytest.MonkeyPatch) -> None:
    """A stream that a right opens brings the watermark back to its own time."""
    real = watermarks._marks

    def marks(view: View, time: Any, *given: Any) -> Ints:
        return real(view, ReaderTime(time.greatest, NO_TIME, time.open), *given)

    def batch(self: VisibilityIndex, *, last: bool = False) -> Visibility:
        found = made(self, last=last)
        for view in () if last else self.views:
            view.passed = view.watermark()
        return found

    made = VisibilityIndex.batch
    patch.setattr(watermarks, "_marks", marks)
    patch.setattr(View, "watermark", lambda self: min(map(self.reached, self.open), default=self.passed))
    patch.setattr(VisibilityIndex, "batch", batch)


def rights_are_no_moment(patch: pytest.MonkeyPatch) -> None:
    """What a change of rights makes final comes with the next tuple, whoever may see that."""
    patch.setattr(query_graph, "in_moments", lambda arrivals, first: in_moments(arrivals))  # noqa: ARG005


FAULTS = (results_come_at_the_end, watermarks_do_not_travel, watermarks_are_ahead, clock_is_not_told, ends_are_not_told)
OF_RIGHTS = (
    closed_streams_hold_back,
    rights_open_what_makes_nothing,
    rights_turn_time_back,
    rights_are_no_moment,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_a_fault_in_time_is_found_out(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check(0, 120)


@pytest.mark.parametrize("fault", OF_RIGHTS, ids=lambda fault: str(fault.__name__))
def test_a_fault_in_closed_streams_is_found_out(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        test_streams_that_rights_open_and_close_mean_what_the_oracle_says()


def test_streams_that_rights_open_and_close_mean_what_the_oracle_says() -> None:
    """Of B's right: held never, got, lost, got again. The order of O2's results tells when each became final."""
    texts = (
        "SELECT v FROM A [ROWS 1] UNION ALL SELECT v FROM B [ROWS 1]",
        "SELECT v FROM A UNION ALL SELECT v FROM O1",
        "SELECT COUNT(*) AS v FROM O2 [ROWS 9]",
        "SELECT v FROM B",
        "SELECT COUNT(*) AS v FROM A [ROWS 9] UNION ALL SELECT v FROM O4 [ROWS 2]",
    )
    a, b = ([Tuple(x, 1000 * n, {"v": n}, parse_label(f"TRUE FROM {x}")) for n in range(12)] for x in "AB")
    without, with_ = (Change(ANN, clearance(ROLES[ANN], x)) for x in (["B"], []))
    events: list[Event] = [
        *(without, a[1], a[2], a[3]),
        *(with_, a[5], b[2], b[4], a[6]),
        *(without, a[7], a[8]),
        *(with_, b[6], b[7], a[9], b[8], a[10]),
        *(without, a[11]),
    ]
    world = chained(texts, events)
    wanted = world.wanted()
    assert sum(map(len, wanted.values())) > 60
    for longest in LONGEST:
        found = Replay(world, Random(longest), longest).all(world.events)
        assert {key: shown(x) for key, x in found.items()} == {key: shown(x) for key, x in wanted.items()}


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


def test_a_revoked_right_makes_results_final_while_nothing_comes(tmp_path: Path) -> None:
    """Also after a restart, and once."""
    found = Bench(tmp_path, stream("s", "a INT"), stream("t", "a INT"))
    found.query("both", "SELECT a FROM s UNION ALL SELECT a FROM t")
    found.query("n", 'SELECT COUNT(*) AS n FROM "out.both" [UNBOUNDED]')
    found.subscribed(ann=("n", "nurse"))
    for number in range(3):
        found.take("s", ("nurse", number))
    assert found.fetched("ann", "n") == []
    (all_,) = found.now.subscribers
    assert all_.clearance is not None
    less = replace(all_, clearance=replace(all_.clearance, sources=all_.clearance.sources - {"t"}))
    found.now = replace(found.now, subscribers=(less,))
    assert found.pipeline is not None
    found.pipeline.settle()
    found.pipeline.close()
    found.begin().pass_time({})
    assert found.fetched("ann", "n") == [(1,), (2,)]
    found.pipeline.pass_time({})
    assert found.fetched("ann", "n") == []
