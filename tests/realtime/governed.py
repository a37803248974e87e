"""Live work by a clock that the test moves: pieces arrive at random, each takes as long as it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headgate.labels.levels import Level, LevelOrder
from headgate.realtime.governor import PIECE, Governor
from headgate.realtime.lattice import SECOND
from headgate.realtime.settings import STRICT, Approach

START = 1_700_000_000 * SECOND
CHAIN = LevelOrder.total("U", "C", "S")


@dataclass
class Run:
    """What happened, by level: (when, what, number of the piece, version)."""

    governor: Governor
    events: dict[str, list[tuple[int, str, int, int]]] = field(default_factory=dict)

    def of(self, level: str, what: str) -> int:
        return sum(event == what for _, event, _, _ in self.events.get(level, ()))

    def misses(self, level: str) -> float:
        """In percent of the admitted pieces that ended."""
        timely, late = self.of(level, "timely"), self.of(level, "missed")
        return 100 * late / max(1, timely + late)

    def utilisation(self, since: float = 0.0) -> float:
        """In percent of the processor, of all levels, after so many seconds."""
        return float(np.mean([sum(x.utilisation) for x in self.governor.samples if x.time > since]))

    def late_after(self, level: str, seconds: float) -> list[float]:
        """The miss ratios of the control periods after so many seconds."""
        k = self.governor.lattice.number(Level(level))
        return [x.miss_ratio(k) for x in self.governor.samples if x.time > seconds]


def arrivals(level: str, load: float, seconds: float) -> list[tuple[int, str]]:
    """Pieces at random times; `load` is in percent of the processor at full QoS. The generator is the level's own."""
    rng = np.random.default_rng([ord(c) for c in level])
    gap = PIECE / (load / 100)
    times = np.cumsum(rng.exponential(gap, round(1.2 * seconds * SECOND / gap) + 10)).astype(int)
    return [(START + int(x), level) for x in times if x < seconds * SECOND]


def run(
    loads: dict[str, float],
    seconds: float,
    *,
    order: LevelOrder = CHAIN,
    approach: Approach = STRICT,
    deadline: float = 2.0,
    shares: Sequence[float] = (0.5, 1.0),
    error: float = 1.0,
) -> Run:
    """`shares`: the work of each version. Work takes `error` times its estimate, more or less."""
    governor = Governor(order, START, approach)
    found = Run(governor)
    for level in loads:
        governor.declare(Level(level), [shares])
    coming = sorted((x for level, load in loads.items() if load for x in arrivals(level, load, seconds)), reverse=True)
    noise = {level: np.random.default_rng([1, *map(ord, level)]) for level in loads}
    counts = dict.fromkeys(loads, 0)
    pieces: dict[int, tuple[str, int, int]] = {}
    now = START
    while now < START + seconds * SECOND:
        if (start := governor.begins(now)) is not None:
            for t in governor.expired(start):
                level, number, version = pieces.pop(t)
                found.events[level].append((start, "missed", number, version))
            while coming and coming[-1][0] <= start:
                came, level = coming.pop()
                counts[level] += 1
                version = governor.version(Level(level), len(shares))
                work = round(PIECE * shares[version])
                admitted = governor.release(start, Level(level), came + round(deadline * SECOND), work, version)
                word = "rejected" if admitted is None else "admitted"
                found.events.setdefault(level, []).append((start, word, counts[level], version))
                if admitted is not None:
                    pieces[admitted] = level, counts[level], version
        running = governor.next(now)
        if running is None:
            now = governor.next_quantum(now)
            continue
        level, number, version = pieces.pop(running)
        spent = round(PIECE * shares[version] * error * noise[level].uniform(0.8, 1.0))
        now += spent
        timely = governor.done(now, running, spent)
        found.events[level].append((now, "timely" if timely else "missed", number, version))
    return found
