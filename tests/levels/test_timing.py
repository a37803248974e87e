"""Non-interference of timing: with the higher level idle, loaded and overloaded, what the lower level receives is the
same and its delays cannot be told apart; without the priority of lower levels they can.

Everything runs on one processor core, so that levels compete for it. The test also says how small a shift of delays it
would have found."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import mannwhitneyu
from worlds.harness import stream

from headgate.labels import Level
from headgate.levels.child import ProcessChild, Resources
from headgate.server.level_settings import priority
from levels.harness import Levels, closing

RUNS = int(os.environ.get("HEADGATE_RUNS", "200"))
LOADS = {"idle": 0, "loaded": 1, "overloaded": 4}
SURE = 0.001
LOW, HIGH = stream("low", "n INT"), stream("high", "k INT, n INT")
HEAVY = "SELECT COUNT(*) AS c FROM high [ROWS 200] a, high [ROWS 200] b WHERE a.k = b.k"
Times = npt.NDArray[np.float64]


@contextmanager
def one_core() -> Iterator[None]:
    """For this process and those that it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass
class Measured:
    delays: dict[str, list[float]]
    received: dict[str, list[object]]

    def times(self, load: str) -> Times:
        return np.array(self.delays[load])


def measure(home: Path, runs: int, *, by_level: bool) -> Measured:
    """Delays of the low level's results, in random order of the loads of the high one."""
    levels = Levels(home, LOW, HIGH, start=ProcessChild)
    share = lambda level, now: Resources(nice=priority(level, now.rules.order, {}) if by_level else 0)  # noqa: E731
    levels.setting = replace(levels.setting, share=share)
    levels.query("qU", "SELECT COUNT(*) AS c, SUM(n) AS s FROM low [ROWS 50]", level="U")
    levels.query("qS", HEAVY, level="S")
    levels.subscribed(uU=("qU", "", "U"), uS=("qS", "", "S"))
    chance, found = Random(1), Measured({x: [] for x in LOADS}, {x: [] for x in LOADS})
    with one_core(), closing(levels):
        shepherd = levels.open_up()
        for run in range(-6, runs):
            load = chance.choice(list(LOADS)) if run >= 0 else "overloaded"
            for _ in range(LOADS[load]):
                levels.take("high", *[("TRUE AT S", n % 7, n) for n in range(1000)])
            before, begun = len(levels.received("uU", "qU")), time.perf_counter()
            levels.take("low", *[("TRUE", n) for n in range(100)])
            shepherd.lanes[Level("U")].wait(None)
            took = time.perf_counter() - begun
            if run >= 0:
                found.delays[load].append(took)
                found.received[load] += [len(levels.received("uU", "qU")) - before]
            shepherd.drain()
    return found


def told_apart(found: Measured) -> dict[str, float]:
    """By load: the probability that its delays are as those of an idle high level."""
    idle = found.times("idle")
    return {load: float(mannwhitneyu(idle, found.times(load)).pvalue) for load in LOADS if load != "idle"}


def smallest_found(times: Times, count: int) -> float:
    """The shift of delays, in seconds, that samples of this size would show in nine of ten cases."""
    drawn = np.random.default_rng(1)
    for percent in range(1, 300):
        shift = np.median(times) * percent / 100
        pairs = ((drawn.choice(times, count), drawn.choice(times, count) + shift) for _ in range(50))
        if sum(mannwhitneyu(a, b).pvalue <= SURE for a, b in pairs) >= 45:
            return float(shift)
    return float("inf")


def told(name: str, found: Measured) -> None:
    medians = {load: f"{1000 * np.median(found.times(load)):.1f} ms of {len(found.delays[load])}" for load in LOADS}
    power = 1000 * smallest_found(found.times("idle"), min(map(len, found.delays.values())))
    print(f"{name}: medians {medians}; p {told_apart(found)}; a shift of {power:.2f} ms would be found")


@pytest.mark.long
def test_delays_of_a_low_level_do_not_tell_what_a_high_one_does(tmp_path: Path) -> None:
    found = measure(tmp_path, RUNS, by_level=True)
    told("with priority", found)
    assert {n for x in found.received.values() for n in x} == set(found.received["idle"])
    assert min(told_apart(found).values()) > SURE


@pytest.mark.long
def test_without_priority_they_tell(tmp_path: Path) -> None:
    found = measure(tmp_path, RUNS, by_level=False)
    told("without priority", found)
    assert min(told_apart(found).values()) <= SURE
