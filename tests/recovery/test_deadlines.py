"""Queries with deadlines in a pipeline: what readers receive, what they are told, what levels feel of each other."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.harness import stream
from worlds.live import CHAIN, LiveBench

from headgate.cql.deadlines import FULL, Deadline, Version
from headgate.labels import Level, parse_label
from headgate.realtime.settings import OPEN
from headgate.recovery import live_queries
from headgate.recovery.deadlines import Governing, PieceDecision
from headgate.recovery.live_query import LiveQuery
from headgate.recovery.messages import LEFT_OUT, of_version
from headgate.testing.oracle import Tuple, exact

VITALS = "patient INT, bp INT"
HALF = Version(sample=0.5)
SAMPLED = Deadline(2000, (HALF, Version(sample=0.1)))
PLAIN = "SELECT patient, bp FROM V"
WINDOWED = "SELECT patient, COUNT(*) AS n, SUM(bp) AS s FROM V [ROWS 20] GROUP BY patient"
SLIDING = "SELECT COUNT(*) AS n, SUM(bp) AS s FROM V [RANGE 1 SECOND SLIDE 1 SECOND]"


def batch(rng: np.random.Generator, rows: int, label: str = "TRUE") -> list[tuple[str, int, int]]:
    return [(label, int(x), int(y)) for x, y in rng.integers(0, 5, (rows, 2))]


def one(home: Path, text: str, deadline: Deadline = SAMPLED) -> LiveBench:
    """One reader of one query over one stream."""
    bench = LiveBench(home, stream("V", VITALS))
    bench.due("q", text, deadline)
    bench.subscribed_at(ann=("q", "", "U"))
    return bench


def test_with_little_load_every_tuple_is_taken_and_nobody_is_told_anything(tmp_path: Path) -> None:
    bench, rng = one(tmp_path, PLAIN), np.random.default_rng(1)
    for n in range(6):
        bench.arrive(0.5 * n, "V", batch(rng, 10))
    bench.run(4)
    assert bench.values("ann") == [row[1:] for _, rows in bench.taken["V"] for row in rows]
    assert bench.notices("ann") == []


def test_results_are_due_within_the_deadline(tmp_path: Path) -> None:
    bench, rng = one(tmp_path, PLAIN), np.random.default_rng(1)
    bench.arrive(1, "V", batch(rng, 10))
    bench.run(4)
    assert {x.time < bench.begun + 3 for x in bench.by("ann")} == {True}


# Overload -------------------------------------------------------------------------------------------------------------


def loaded(
    home: Path,
    loads: dict[str, float],
    seconds: float,
    governing: Governing | None = None,
    deadline: Deadline = SAMPLED,
) -> LiveBench:
    """A stream and a query at each level; a load of 100 is the whole processor at full QoS."""
    bench = LiveBench(home, *(stream(level, VITALS) for level in loads), governing=governing)
    for level in loads:
        bench.due(f"q{level}", PLAIN.replace("V", level), deadline, level=level)
    bench.subscribed_at(**{f"reader{level}": (f"q{level}", "", level) for level in loads})
    for level, load in loads.items():
        rng, gap = np.random.default_rng([ord(x) for x in level]), 0.5
        rows = int(load / 100 * gap / (bench.each + bench.fixed / 20))  # about 20 tuples at once
        for n in range(int(seconds / gap) if load else 0):
            bench.arrive(gap * n + 0.01, level, batch(rng, rows, f"TRUE AT {level}" if level != "U" else "TRUE"))
    bench.begin()
    bench.deadlines.decisions = deque()  # all of them
    bench.run(seconds)
    return bench


def ratio(bench: LiveBench, level: str) -> float:
    """Of the admitted pieces that ended, the share that missed the deadline, in percent."""
    counts = bench.deadlines.counts
    late = counts[f"q{level}", level, "missed"] + counts[f"q{level}", level, "late"]
    return 100 * late / max(1, late + counts[f"q{level}", level, "done"])


@pytest.mark.parametrize(("seconds", "settled"), [(15, 5), pytest.param(600, 80, marks=pytest.mark.long)])
def test_under_twice_the_load_admitted_work_is_in_time_and_the_processor_is_used(
    tmp_path: Path, seconds: float, settled: float
) -> None:
    """Two versions, as in the paper: the lower one alone would still fill the processor."""
    bench = loaded(tmp_path, {"U": 67, "C": 67, "S": 67}, seconds, deadline=Deadline(2000, (HALF,)))
    assert {level: ratio(bench, level) < 5 for level in "UCS"} == dict.fromkeys("UCS", True)
    above = [[x.time for x in bench.samples if x.miss_ratio(k) > 5] for k in range(3)]
    assert all(b - a > 5 for times in above for a, b in pairwise(times))  # one control period at a time
    assert np.mean([sum(x.utilisation) for x in bench.samples if x.time > settled]) >= 80
    assert {"qos": LEFT_OUT} in bench.notices("readerS")


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.long)])
def test_without_control_the_highest_level_misses_most(tmp_path: Path, seconds: float) -> None:
    bench = loaded(tmp_path, {"U": 67, "C": 67, "S": 67}, seconds, Governing(OPEN, seed=7))
    assert ratio(bench, "U") < 5
    assert ratio(bench, "S") > 90 > 50 > ratio(bench, "C") * 0.5


def seen(bench: LiveBench, level: str) -> tuple[list[PieceDecision], list[Any]]:
    """All that happens to a level: its decisions with their times, what its reader receives, and when."""
    return [x for x in bench.deadlines.decisions if x.key[1] == level], bench.by(f"reader{level}")


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.long)])
def test_a_level_feels_nothing_of_higher_levels_event_by_event(tmp_path: Path, seconds: float) -> None:
    found = [loaded(tmp_path / str(load), {"U": 80, "C": load, "S": load}, seconds) for load in (0, 40, 200)]
    idle, busy, overloaded = (seen(bench, "U") for bench in found)
    assert idle == busy == overloaded
    assert idle[0]
    assert idle[1]
    assert any(x.word == "rejected" for x in seen(found[2], "S")[0])
    assert all(bench.deadlines.governor and not bench.deadlines.governor.overruns.count for bench in found)


def test_tuples_that_a_level_may_not_see_do_not_change_what_it_is_admitted(tmp_path: Path) -> None:
    """One stream with tuples of two levels: those above are no work of the level below."""

    def run(home: Path, high: int) -> tuple[list[PieceDecision], list[Any]]:
        bench = LiveBench(home, stream("V", VITALS))
        bench.due("qU", PLAIN, SAMPLED)
        bench.subscribed_at(readerU=("qU", "", "U"))
        rng, above = np.random.default_rng(1), np.random.default_rng(2)
        for n in range(5):
            bench.arrive(0.5 * n, "V", [*batch(rng, 400), *batch(above, high, "TRUE AT S")])
        bench.run(3)
        return seen(bench, "U")

    assert run(tmp_path / "none", 0) == run(tmp_path / "many", 1000)


# Versions -------------------------------------------------------------------------------------------------------------


class Fixed:
    """Decides versions as told, batch by batch, and admits everything but the batches of `never`."""

    def __init__(self, bench: LiveBench, versions: Sequence[int], never: Sequence[int] = ()) -> None:
        deadlines = bench.deadlines
        governor = deadlines.governor
        assert governor is not None
        release, decide = governor.release, deadlines._decide
        given = dict(enumerate(versions, 1))
        self.now = 1

        def deciding(live: Any, waiting: Any, start: int) -> None:
            self.now = waiting.number
            decide(live, waiting, start)

        governor.version = lambda level, versions: given.get(self.now, versions - 1)  # type: ignore[method-assign] # noqa: ARG005
        governor.release = lambda *x: None if self.now in never else release(*x)  # type: ignore[method-assign]
        deadlines._decide = deciding  # type: ignore[method-assign]


def oracle(bench: LiveBench, version: Version, rows: Sequence[tuple[int, Any]]) -> list[object]:
    """What this version means over these tuples, with the end of the stream after them."""
    events = [Tuple("V", when, {"patient": x, "bp": y}, parse_label(label), clock=when) for when, (label, x, y) in rows]
    query = bench.queries["q"].version(version).query
    clearance = bench.clearance("", "U")
    found = exact(query, events, {"ann": clearance}, rules=CHAIN, level=Level("U"))["ann"]
    return [x.values for x in found]


def taken(bench: LiveBench) -> list[tuple[PieceDecision, list[tuple[int, Any]]]]:
    """The tuples of each piece that was done, after sampling, in order."""
    (live,) = bench.deadlines.queries.values()
    return taken_by(bench, live, [x for x in bench.deadlines.decisions if x.word == "done"])


def taken_by(bench: LiveBench, live: LiveQuery, done: Sequence[PieceDecision]) -> list[tuple[PieceDecision, list[Any]]]:
    found = []
    for x in done:
        when, rows = bench.taken["V"][x.batch - 1]
        share = live.deadline.versions[x.version].sample
        kept = live.draws(x.batch, x.start, x.stop) < share
        found.append((x, [(when, row) for row, yes in zip(rows[x.start : x.stop], kept, strict=True) if yes]))
    return found


def test_results_of_a_sample_are_those_of_the_query_over_the_tuples_that_were_taken(tmp_path: Path) -> None:
    bench, rng = one(tmp_path, WINDOWED), np.random.default_rng(3)
    bench.arrive(0, "V", [])
    bench.run(0.2)
    Fixed(bench, [2, 2, 1, 0, 2, 2], never=[5])
    for n in range(1, 7):
        bench.arrive(0.5 * n, "V", batch(rng, 40))
    bench.run(5)
    tuples = taken(bench)
    bench.end()
    bench.fetch()
    assert 40 > sum(len(rows) for x, rows in tuples if x.version == 1) > 5
    assert bench.values("ann") == oracle(bench, FULL, [row for _, rows in tuples for row in rows])
    said = [x["qos"] for x in bench.notices("ann") if isinstance(x, dict)]
    assert said == [of_version(HALF), of_version(SAMPLED.lower[1]), f"{of_version(FULL)}; {LEFT_OUT}"]


@pytest.mark.parametrize(
    ("text", "version"),
    [(WINDOWED, Version(columns=("patient", "n"))), (SLIDING, Version(slide=2000)), (PLAIN, Version(columns=("bp",)))],
    ids=["columns of a window", "slide", "columns"],
)
def test_each_version_means_what_it_declares_over_the_batches_in_which_it_is_in_force(
    tmp_path: Path, text: str, version: Version
) -> None:
    bench, rng = one(tmp_path, text, Deadline(2000, (version,))), np.random.default_rng(4)
    bench.arrive(0, "V", [])
    bench.run(0.2)
    Fixed(bench, [1, 1, 0, 0, 1, 1])
    for n in range(1, 7):
        bench.arrive(0.7 * n, "V", batch(rng, 20))
    bench.run(6)
    tuples = taken(bench)
    bench.end()
    bench.fetch()
    ranges: list[tuple[int, list[tuple[int, Any]]]] = []
    for x, rows in tuples:
        if not ranges or ranges[-1][0] != x.version:
            ranges.append((x.version, []))
        ranges[-1][1].extend(rows)
    assert [number for number, _ in ranges] == [1, 0, 1]
    versions = (version, FULL)
    assert bench.values("ann") == [y for number, rows in ranges for y in oracle(bench, versions[number], rows)]


# Crashes --------------------------------------------------------------------------------------------------------------


class Died(BaseException):
    """The process is gone."""


def dying(bench: LiveBench, commits: int, *, committed: bool) -> None:
    """After so many commits the next one is the last: it was done, or it was not."""
    assert bench.pipeline is not None
    states, left = bench.pipeline._committer.states, [commits]
    save = states.save

    def saving(saved: Any) -> None:
        left[0] -= 1
        if left[0] >= 0 or committed:
            save(saved)
        if left[0] < 0:
            raise Died

    states.save = saving  # type: ignore[method-assign]


def lines(bench: LiveBench) -> list[tuple[object, ...]]:
    """The results in the reader's file."""
    (file,) = (bench.home / "out").rglob("q.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [tuple(x["values"].values()) for x in found if "values" in x]


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(("commits", "together"), [(0, 0), (1, 0), (2, 0), (0, live_queries.TOGETHER)])
def test_after_a_crash_what_was_decided_is_done_as_it_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int, together: int, committed: bool
) -> None:
    monkeypatch.setattr(live_queries, "TOGETHER", together)  # of 0: each piece by itself
    first, rng = one(tmp_path, WINDOWED), np.random.default_rng(5)
    first.storage = None
    first.begin(first.files())
    first.arrive(0, "V", [])
    first.run(0.2)
    Fixed(first, [2, 1, 0])
    for n in range(3):
        first.arrive(0.51 + 0.01 * n, "V", batch(rng, 40))
    first.run(0.6)
    dying(first, commits, committed=committed)
    with pytest.raises(Died):
        first.run(3)
    decided = [x for x in first.deadlines.decisions if x.word == "admitted"]
    assert first.pipeline is not None
    first.pipeline.close()

    second = one(tmp_path, WINDOWED)
    second.storage = None
    second.clock.advance(60)  # all deadlines have passed
    second.begin(second.files())
    second.taken = first.taken
    (live,) = second.deadlines.queries.values()
    second.end()
    done = [x for x in first.deadlines.decisions if x.word == "done"]
    again = [x for x in second.deadlines.decisions if x.word == "late"]
    lost = decided[len(done) : len(decided) - len(again)] if committed else []  # committed, and not noted any more
    assert len(lost) == committed if not together else not committed or len(lost) > 1
    pieces = [replace(x, time=0, word="done") for x in (*done, *lost, *again)]
    if commits or committed:
        assert pieces == [replace(x, time=0, word="done") for x in decided]
    tuples = taken_by(second, live, pieces)
    assert sum(x.stop - x.start for x in pieces) == 120
    assert lines(second) == oracle(second, FULL, [row for _, rows in tuples for row in rows])
