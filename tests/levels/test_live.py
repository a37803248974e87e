"""Queries with deadlines where levels are apart: each processor governs those of its level by the real clock."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.harness import Row, stream

from headgate.clock import SystemClock
from headgate.cql.deadlines import Deadline, Version
from headgate.labels import Level
from headgate.levels.checked import NotAsAgreed
from headgate.levels.child import ProcessChild, Resources, Start
from headgate.levels.live import DeadlineReport, checked_report
from headgate.levels.wire import Message
from headgate.recovery.deadline_samples import DEADLINES
from headgate.server.level_settings import priority
from levels.harness import Dying, Levels, ThreadChild, closing

LEVELS = ("U", "C", "S")
DUE = Deadline(2000, (Version(sample=0.5), Version(sample=0.25)))
NUMBERS = stream("numbers", "n INT")
BOTH = pytest.mark.parametrize("architecture", ["replicated", "kernelized"])
SECONDS = float(os.environ.get("HEADGATE_SECONDS", "120"))
HEAVY = "SELECT COUNT(*) AS c FROM {0} [ROWS 200] a, {0} [ROWS 200] b WHERE a.n = b.n"


class Live(Levels):
    """By the clock of the machine, as the processors are."""

    def __init__(self, home: Path, *streams: Any, architecture: str = "replicated", start: Start = ThreadChild) -> None:
        super().__init__(home, *streams, architecture=architecture, start=start)
        self.clock = SystemClock()  # type: ignore[assignment]

    def due(self, name: str, text: str, level: str) -> None:
        self.queries[name] = replace(self.query(name, text, level=level), deadline=DUE)

    def come(self, name: str, *rows: Row) -> None:
        """Tuples of this moment, each with a time of its own."""
        now = dt.datetime.now(dt.UTC)
        times = [now + dt.timedelta(microseconds=n - len(rows)) for n in range(len(rows))]
        self.take(name, *rows, times=times)

    def until(self, wanted: int, who: str, query: str, seconds: float = 30.0) -> None:
        """Waits until so many results have come."""
        end = time.monotonic() + seconds
        while len(self.received(who, query)) < wanted:
            assert time.monotonic() < end, (len(self.received(who, query)), wanted)
            time.sleep(0.01)


def bench(home: Path, architecture: str, start: Start = ThreadChild) -> Live:
    found = Live(home, NUMBERS, architecture=architecture, start=start)
    for level in ("U", "S"):
        found.due(f"q{level}", "SELECT n FROM numbers", level)
    found.subscribed(uU=("qU", "", "U"), uS=("qS", "", "S"))
    return found


@BOTH
def test_results_come_in_time_and_everybody_is_told_how_levels_do(tmp_path: Path, architecture: str) -> None:
    with closing(bench(tmp_path, architecture)) as levels:
        shepherd = levels.open_up()
        shepherd.drain()
        begun = time.monotonic()
        levels.come("numbers", ("TRUE", 1), ("TRUE AT S", 2))
        levels.until(2, "uS", "qS")
        levels.until(1, "uU", "qU")
        assert time.monotonic() - begun < 2
        assert levels.received("uS", "qS") == [(1,), (2,)]
        shepherd.drain()
        told = {(x.query, x.level): (x.version, x.admitted, x.rejected, x.timely, x.missed) for x in shepherd.due()[0]}
        assert told == {("qU", "U"): ("full", 1, 0, 1, 0), ("qS", "S"): ("full", 1, 0, 1, 0)}
        assert shepherd.counts.due[0] == shepherd.due()[0]
        while {x.level for x in shepherd.due()[1]} != {"U", "S"}:  # a control period ends after five seconds
            assert time.monotonic() - begun < 30
            time.sleep(0.05)
        periods = [json.loads(line) for line in (tmp_path / DEADLINES).read_text().splitlines()]
        assert {tuple(x["levels"]) for x in periods} == {("U",), ("S",)}
        assert sum(x["timely"][0] for x in periods) == 2
        levels.subscribed(uS=("qS", "", "S"))
        shepherd.drain()
        assert [x.level for x in shepherd.due()[0]] == ["S"]


@BOTH
def test_a_processor_that_dies_at_any_message_loses_and_repeats_nothing(tmp_path: Path, architecture: str) -> None:
    """Pieces that were admitted are done after it, whatever time it is; what was not decided is decided then."""
    dying = Dying(1)
    with closing(bench(tmp_path, architecture, dying)) as levels:
        shepherd = levels.open_up()
        for number in range(8):
            levels.come("numbers", ("TRUE", 2 * number), ("TRUE AT S", 2 * number + 1))
            levels.until(2 * number + 2, "uS", "qS")
        levels.until(8, "uU", "qU")
        shepherd.drain()
        assert levels.received("uS", "qS") == [(n,) for n in range(16)]
        assert levels.received("uU", "qU") == [(n,) for n in range(0, 16, 2)]
        assert dying.deaths > 2


def test_other_queries_of_a_level_do_not_wait_for_its_deadlines_and_these_not_for_them(tmp_path: Path) -> None:
    with closing(bench(tmp_path, "replicated")) as levels:
        levels.query("all", "SELECT n FROM numbers", level="S")
        levels.subscribed(uU=("qU", "", "U"), uS=("qS", "", "S"), aS=("all", "", "S"))
        shepherd = levels.open_up()
        for number in range(20):
            levels.come("numbers", ("TRUE", number))
        shepherd.wait_for_processors()
        assert levels.received("aS", "all") == [(n,) for n in range(20)]
        levels.until(20, "uS", "qS")


def test_a_level_is_not_told_of_higher_ones(tmp_path: Path) -> None:
    """What its lane sends to its processor is the same whatever comes above, but for when it asks for work."""

    def sent(home: Path, high: int) -> list[tuple[str, object]]:
        asked: list[tuple[str, object]] = []

        def start(folder: Path, identity: Any, share: Resources) -> ThreadChild:
            child = ThreadChild(folder, identity, share)
            send = child.channel.send

            def noted(kind: str, *parts: bytes, **facts: Any) -> None:
                if folder.parent.name == low and kind not in ("work", "delivered", "begin"):
                    asked.append((kind, facts.get("stream")))
                send(kind, *parts, **facts)

            child.channel.send = noted  # type: ignore[method-assign]
            return child

        with closing(bench(home, "replicated", start)) as levels:
            low = "0"
            shepherd = levels.open_up()
            for _ in range(3):
                for _ in range(high):
                    levels.come("numbers", *[("TRUE AT S", n) for n in range(500)])
                levels.come("numbers", ("TRUE", 1))
            levels.until(3, "uU", "qU")
            shepherd.wait_for_processors()
        return asked

    found = sent(tmp_path / "idle", 0)
    assert found == sent(tmp_path / "busy", 5)
    assert [kind for kind, _ in found].count("take") == 3


# What a processor says ------------------------------------------------------------------------------------------------

PERIOD = {
    "time": 5.0,
    "levels": ["S"],
    "submitted": [3],
    "admitted": [3],
    "timely": [2],
    "tardy": [1],
    "misses": [33.3],
    "utilisation": [10.0],
    "quality": [100.0],
    "limit": [50.0],
}


def said(levels: Live, **facts: Any) -> tuple[DeadlineReport, list[dict[str, Any]]]:
    message = Message("done", {"again": 0.0, "due": [["qS", "full", 3, 0, 2, 1]], "periods": [PERIOD], **facts})
    return checked_report(message, DeadlineReport(), Level("S"), levels.now)


def test_what_a_processor_says_is_about_its_own_level(tmp_path: Path) -> None:
    levels = bench(tmp_path, "replicated")
    before = time.time()
    told, periods = said(levels, periods=[{**PERIOD, "levels": ["U"], "secret": "of another"}])
    assert {x.level for x in told.queries} | {x.level for x in told.levels} == {"S"}
    assert periods == [PERIOD]
    assert told.again is not None and told.again > before  # it is not asked again and again without a pause
    assert said(levels, due=[["gone", "full", 3, 0, 2, 1], ["qS", "as I like", 3, 0, 2, 1]])[0].queries == []


def test_a_processor_cannot_tell_of_more_control_periods_than_have_been(tmp_path: Path) -> None:
    """They would push those of other levels out of the file. A clock that was set back ends no processor."""
    levels, now = bench(tmp_path, "replicated"), time.time()
    ends = (now - 20, now - 19, now - 15, now - 30, now - 10, now + 100)
    told, periods = said(levels, periods=[{**PERIOD, "time": x} for x in ends])
    assert [x["time"] for x in periods] == [now - 20, now - 15, now - 10]
    assert told.ended == now - 10


@pytest.mark.parametrize(
    "facts",
    [
        {"again": "soon"},
        {"again": math.nan},
        {"again": True},
        {"due": [["qS", "full", 3, 0, 2]]},
        {"due": [["qS", "full", 3, 0, 2, "many"]]},
        {"due": 3},
        {"periods": [{**PERIOD, "misses": ["none"]}]},
        {"periods": [{**PERIOD, "tardy": [1.5]}]},
        {"periods": [{**PERIOD, "limit": []}]},
        {"periods": [{**PERIOD, "limit": [10**400]}]},
        {"periods": [{}]},
    ],
)
def test_what_no_processor_of_ours_says_is_refused(tmp_path: Path, facts: Mapping[str, Any]) -> None:
    with pytest.raises(NotAsAgreed):
        said(bench(tmp_path, "replicated"), **facts)


# Overload -------------------------------------------------------------------------------------------------------------


def overloaded(home: Path, architecture: str, rates: Sequence[int], seconds: float) -> dict[str, dict[str, float]]:
    """So many tuples a second at each level, for so long; what each level came to after it has settled."""
    streams = [stream(level.lower(), "n INT") for level in LEVELS]
    levels, rng = Live(home, *streams, architecture=architecture, start=ProcessChild), np.random.default_rng(1)
    share = lambda level, now: Resources(nice=priority(level, now.rules.order, {}))  # noqa: E731
    levels.setting = replace(levels.setting, share=share)
    for level in LEVELS:
        levels.due(f"q{level}", HEAVY.format(level.lower()), level)
    levels.subscribed(**{f"u{level}": (f"q{level}", "", level) for level in LEVELS})
    with closing(levels):
        levels.open_up().drain()
        begun = time.monotonic()
        for number in range(int(2 * seconds)):
            for level, rate in zip(LEVELS, rates, strict=True):
                levels.come(level.lower(), *[(f"TRUE AT {level}", int(x)) for x in rng.integers(0, 7, rate // 2)])
            time.sleep(max(0.0, begun + (number + 1) / 2 - time.monotonic()))
    lines = [json.loads(line) for line in (home / DEADLINES).read_text().splitlines()]
    first = min(x["time"] for x in lines)
    found = {}
    for level in LEVELS:
        own = [x for x in lines if x["levels"] == [level] and x["time"] - first >= min(30, seconds / 2)]
        timely, tardy, submitted, admitted = (
            sum(x[name][0] for x in own) for name in ("timely", "tardy", "submitted", "admitted")
        )
        found[level] = {
            "misses": 100 * tardy / max(1, timely + tardy),
            "utilisation": float(np.mean([x["utilisation"][0] for x in own])),
            "admitted": 100 * admitted / max(1, submitted),
            "quality": float(np.mean([x["quality"][0] for x in own])),
        }
    print(architecture, {level: {x: round(y, 2) for x, y in facts.items()} for level, facts in found.items()})
    return found


@pytest.mark.long
@BOTH
def test_an_overloaded_level_keeps_its_promise_and_others_are_admitted_as_without_it(
    tmp_path: Path, architecture: str
) -> None:
    """S gets far more than it can do. It leaves work out, and what it admits is in time; U and C do not notice."""
    calm = overloaded(tmp_path / "calm", architecture, (400, 400, 400), SECONDS / 2)
    loaded = overloaded(tmp_path / "loaded", architecture, (400, 400, 40_000), SECONDS)
    assert max(x["misses"] for found in (calm, loaded) for x in found.values()) < 5
    assert loaded["S"]["admitted"] < 90 or loaded["S"]["quality"] < 90
    for level in ("U", "C"):
        assert loaded[level]["admitted"] == calm[level]["admitted"] == 100
        assert loaded[level]["quality"] == calm[level]["quality"] == 100
