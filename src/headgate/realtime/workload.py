"""The simulated transactions of paper 004, section 4.1: sources, arrivals, execution times, deadlines, data accesses.

INVARIANT: what a level submits is drawn from a random generator of its own, so its transactions are the same whatever
load the others have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headgate.errors import Conflict
from headgate.realtime.access import readable, writable
from headgate.realtime.arrays import Floats, Ints
from headgate.realtime.lattice import MILLISECOND, SECOND, Lattice
from headgate.realtime.settings import Model


class Script(NamedTuple):
    """Transactions in the order of their arrival, and their data accesses, for compiled code."""

    time: Ints
    level: Ints
    deadline: Ints
    estimate: Ints
    work: Ints
    first: Ints  # where the accesses of a transaction begin; one more entry than transactions
    item: Ints
    mode: Ints


@dataclass(frozen=True)
class Load:
    """What is applied: percent of the processor per level at full QoS, estimation error, items, and for how long."""

    shares: tuple[float, ...]
    error: float | tuple[float, ...] = 0.0
    """For all levels, or one for each: actual execution times average (1 + error) x the estimates."""
    items: int = 1000
    seconds: float = 600.0
    seed: int = 0
    intervals: Mapping[int, Sequence[tuple[float, float]]] | None = None
    """For some levels: between which seconds they send at all (a sender who signals); the others always do."""

    def __post_init__(self) -> None:
        if any(share < 0 for share in self.shares) or not any(self.shares):
            raise Conflict("cannot apply this load: each level needs 0 or more, and one of them more than 0")
        for k in range(len(self.shares)):
            if self.error_of(k) <= -1:
                raise Conflict(f"cannot apply an estimation error of `{self.error_of(k):g}`: it must be more than -1")
        if self.items < len(self.shares) or self.seconds <= 0:
            raise Conflict("cannot apply this load: it needs an item for each level and some time")

    def error_of(self, level: int) -> float:
        return self.error[level] if isinstance(self.error, tuple) else self.error


def item_levels(lattice: Lattice, items: int, model: Model) -> Ints:
    """The level of each data item."""
    others = len(lattice.levels) - 1
    if others == 0:
        return np.zeros(items, np.int64)
    low = min(max(1, round(items * model.low_items)), items - others)
    return np.concatenate([np.zeros(low, np.int64), 1 + np.arange(items - low, dtype=np.int64) % others])


def generate(lattice: Lattice, load: Load, model: Model) -> Script:
    """All transactions of a run."""
    levels = item_levels(lattice, load.items, model)
    parts = [_of_level(lattice, k, levels, load, model) for k, share in enumerate(load.shares) if share > 0]
    time = np.concatenate([part.time for part in parts])
    order = np.argsort(time, kind="stable")
    counts = np.concatenate([np.diff(part.first) for part in parts])
    begins = np.concatenate([[0], np.cumsum(counts)])
    sorted_counts = counts[order]
    first = np.concatenate([[0], np.cumsum(sorted_counts)])
    picked = np.repeat(begins[:-1][order] - first[:-1], sorted_counts) + np.arange(first[-1])

    def merged(name: str) -> Ints:
        return np.concatenate([getattr(part, name) for part in parts])

    return Script(
        time[order],
        merged("level")[order],
        merged("deadline")[order],
        merged("estimate")[order],
        merged("work")[order],
        first,
        merged("item")[picked],
        merged("mode")[picked],
    )


def _of_level(lattice: Lattice, level: int, levels: Ints, load: Load, model: Model) -> Script:
    draw = np.random.default_rng([load.seed, level])
    estimates = draw.uniform(*model.estimate_ms, size=model.sources)
    averages = estimates * (1 + load.error_of(level))
    per_ms = load.shares[level] / 100 / averages.mean()  # transactions
    count = draw.poisson(per_ms * load.seconds * 1000)
    time = np.sort((draw.uniform(0, load.seconds, count) * SECOND).astype(np.int64))
    source = draw.integers(0, model.sources, count)
    estimate, average = estimates[source], averages[source]
    work = np.maximum(draw.normal(average, np.sqrt(average)), model.shortest * average)
    slack = draw.uniform(*model.slack, count)
    expected = estimate * model.accesses_per_ms
    accesses = np.maximum(1, np.rint(draw.normal(expected, np.sqrt(expected)))).astype(np.int64)
    item, mode = _accesses(lattice, level, levels, int(accesses.sum()), model, draw)
    first = np.concatenate([[0], np.cumsum(accesses)])
    script = Script(
        time,
        np.full(count, level, np.int64),
        time + _ns(average * slack),
        _ns(estimate),
        _ns(work),
        first,
        item,
        mode,
    )
    if load.intervals is None or level not in load.intervals:
        return script
    return _within(script, load.intervals[level])


def _ns(milliseconds: Floats) -> Ints:
    return np.maximum(1, milliseconds * MILLISECOND).astype(np.int64)


def _accesses(
    lattice: Lattice, level: int, levels: Ints, count: int, model: Model, draw: np.random.Generator
) -> tuple[Ints, Ints]:
    """Items and modes, uniform among what the access rules allow."""
    mode = (draw.random(count) < model.write_share).astype(np.int64)
    choice = draw.random(count)
    may_read = np.flatnonzero(readable(lattice)[level][levels])
    may_write = np.flatnonzero(writable(lattice, model.write_rule)[level][levels])
    item = np.where(
        mode == 1,
        may_write[(choice * len(may_write)).astype(np.int64)],
        may_read[(choice * len(may_read)).astype(np.int64)],
    )
    return item, mode


def _within(script: Script, intervals: Sequence[tuple[float, float]]) -> Script:
    """Only what arrives in one of these intervals."""
    kept = np.zeros(len(script.time), np.bool_)
    for begin, end in intervals:
        kept |= (script.time >= begin * SECOND) & (script.time < end * SECOND)
    counts = np.diff(script.first)
    of_kept = np.repeat(kept, counts)
    first = np.concatenate([[0], np.cumsum(counts[kept])])
    return Script(
        script.time[kept],
        script.level[kept],
        script.deadline[kept],
        script.estimate[kept],
        script.work[kept],
        first,
        script.item[of_kept],
        script.mode[of_kept],
    )
