"""The driver by the real clock: it tells which transaction may run now, where work cannot be taken off the processor.

The compiled scheduler preempts; the work of a query on some tuples runs to its end once it has begun. So that a level
still feels nothing of levels it does not dominate, slots are cut into quanta. Transactions are released only where a
quantum begins. Within it the lowest level goes on as long as its next transaction fits, then the next level; nobody
begins what does not fit. What happens to a level then depends on the clock and on levels it dominates, as long as no
work outlasts its quantum; what does is counted as an overrun. Admission, QoS and control are those of `Handler`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.labels.levels import LEAST, Level, LevelOrder
from headgate.realtime.admission import admit
from headgate.realtime.handler import Handler, Sample
from headgate.realtime.lattice import MILLISECOND, SECOND, Lattice
from headgate.realtime.scheduler import begin, charge, commit, expire, miss, slot_at
from headgate.realtime.settings import STRICT, Approach, Settings
from headgate.realtime.state import NOBODY, READ

CYCLE_MS = 1000.0
"""After how long the table of slots repeats. Every level has a turn in it, so deadlines are longer than this."""
QUANTUM = 350 * MILLISECOND
"""How often transactions are released; none should run beyond the end of its quantum."""
PIECE = 20 * MILLISECOND
"""How long one transaction should take at most: what is left of a quantum when the next does not fit is lost."""
LONGEST = 90 * MILLISECOND
"""The longest estimate that is believed: more would never fit, and its measurement may have been a hiccup."""
MOST_RESERVED = 0.5
"""The levels above others have this share of the time for themselves at most, however many they are."""
START = 15.0
"""The limit on the sum of estimates that controllers start with, in percent: estimates are measured, so it may be more
than one transaction."""
LEAST_SUM = -10.0
"""The least sum of errors of a controller. While nobody misses, a sum grows by 1 in each control period; a disturbance
of the machine makes half of a period's work late, and would hold a level back for minutes after it has passed."""
KEPT_SAMPLES = 720
"""An hour of control periods."""

_UNENDING = 1 << 60


@dataclass(frozen=True)
class Overrun:
    """Work that outlasted its quantum: how often, and for how many nanoseconds at most."""

    count: int = 0
    longest: int = 0


def lattice_of(order: LevelOrder) -> Lattice:
    """All levels that are declared, whether anything runs at them or not: their shares of time are constants."""
    return Lattice.of(order, [Level(name) for name in sorted({LEAST.name, *order.above})])


def live_settings(lattice: Lattice) -> Settings:
    """Those of the experiments, with longer slots; every transaction may be of the lowest version, and many levels
    divide `MOST_RESERVED` between them."""
    upper = sum(int(row.sum()) > 1 for row in lattice.dominates)
    settings = Settings()
    reserve = min(settings.strict.reserve, MOST_RESERVED / max(1, upper))
    return replace(
        settings,
        control=replace(settings.control, quality_floor=0.0, start=START, least_sum=LEAST_SUM),
        strict=replace(settings.strict, reserve=reserve, cycle_ms=CYCLE_MS),
    )


class Governor:
    """Decides for all levels of an order. Times are whole nanoseconds of one clock, which never goes back."""

    def __init__(self, order: LevelOrder, now: int, approach: Approach = STRICT, *, capacity: int = 1024) -> None:
        self.lattice = lattice_of(order)
        self.settings = live_settings(self.lattice)
        items = np.arange(len(self.lattice.levels), dtype=np.int64)
        self.handler = Handler(self.lattice, items, approach, self.settings, capacity=capacity)
        self.samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self.periods = 0
        """How many control periods have ended."""
        self.overruns = Overrun()
        self._period = round(self.settings.control.period_s * SECOND)
        self._cycle = round(CYCLE_MS * MILLISECOND)
        self._origin = now // self._cycle * self._cycle
        self._sampled = 0
        self._quantum = -1
        """When the quantum began that was begun last, since the origin."""
        self._bounds: dict[int, int] = {}
        self._begun: set[int] = set()
        """Transactions that run. INVARIANT: they are done before the next quantum begins."""

    def declare(self, level: Level, shares: Sequence[Sequence[float]]) -> None:
        """The versions of all queries at a level: for each query the share of the full work that each version takes,
        the least first."""
        if not self.handler.actuators:
            return
        most = max((len(x) for x in shares), default=1)
        places = [i / max(1, most - 1) for i in range(most)]
        means = [float(np.mean([x[int(place * (len(x) - 1) + 1e-9)] for x in shares] or [1.0])) for place in places]
        group = int(self.handler.state.levels[self.lattice.number(level)]["group"])
        self.handler.actuators[group].milestones = tuple(means)

    @property
    def begun(self) -> float:
        """When it began, by the clock, in seconds; samples count from here."""
        return self._origin / SECOND

    # Quanta -----------------------------------------------------------------------------------------------------------

    def _span(self, now: int) -> tuple[int, int, int]:
        """The slot of this moment, and when the quantum of this moment begins and ends."""
        begun = now // self._cycle * self._cycle
        slot, end = slot_at(self.handler.state, now - begun)
        slot_begin = begun + (int(self.handler.state.ends[slot - 1]) if slot else 0)
        start = slot_begin + (now - slot_begin) // QUANTUM * QUANTUM
        return slot, start, min(start + QUANTUM, begun + min(end, self._cycle))

    def next_quantum(self, now: int) -> int:
        """When the next quantum begins."""
        return self._origin + self._span(now - self._origin)[2]

    def begins(self, now: int) -> int | None:
        """The start of the quantum of this moment, if it has not begun here yet: then what came before it is to be
        released, at this time, and `begin` called. Ends control periods."""
        _, start, _ = self._span(now - self._origin)
        if start <= self._quantum:
            return None
        self._quantum = start
        while start - self._sampled >= self._period:
            self._sampled += self._period
            self.samples.append(self.handler.sample(self._sampled))
            self.periods += 1
        return self._origin + start

    def version(self, level: Level, versions: int) -> int:
        """Which of so many versions a query has now, 0 is the least. It is the same for a whole control period: a
        reader is told of each change."""
        state = self.handler.state
        quality = state.groups[int(state.levels[self.lattice.number(level)]["group"])]["quality"]
        return min(int(float(quality) * (versions - 1) + 1e-9), versions - 1)

    def release(
        self, now: int, level: Level, deadline: int, estimate: int, version: int = 0, bound: int = 0
    ) -> int | None:
        """A transaction arrives: its number if it is admitted. One whose deadline has passed is not. It begins only
        where its `bound` (or its estimate, if that is more) fits."""
        k, began = self.lattice.number(level), now - self._origin
        if deadline <= now:
            self.handler.state.levels[k]["submitted"] += 1
            return None
        estimate = min(max(1, estimate), LONGEST)
        bound = min(max(estimate, bound), LONGEST)
        t = admit(self.handler.state, began, k, deadline - self._origin, float(estimate), version, int(NOBODY))
        if t == NOBODY:
            return None
        self._bounds[t] = bound
        begin(self.handler.state, began, t, -1, READ, _UNENDING)
        return int(t)

    def expired(self, now: int) -> list[int]:
        """The transactions whose deadline has passed; they are over."""
        expire(self.handler.state, now - self._origin)
        over = [t for t in self._bounds if not self.handler.state.transactions[t]["state"]]
        for t in over:
            del self._bounds[t]
        return over

    def next(self, now: int, level: Level | None = None) -> int | None:
        """The transaction that runs from this moment, of this `level` if one is given; None: nobody until the next
        quantum. Several may run before the first of them is done."""
        state = self.handler.state
        slot, start, end = self._span(now - self._origin)
        if start != self._quantum:
            return None  # it is over: begin the next first
        left, only = end - (now - self._origin), None if level is None else self.lattice.number(level)
        for queue in (int(k) for k in state.chains[slot] if k >= 0 and only in (None, int(k))):
            waiting = (int(t) for t in state.queue[queue, : state.queue_count[queue]] if int(t) not in self._begun)
            t = next(waiting, None)
            if t is not None and self._bounds[t] <= left:
                self._begun.add(t)
                return t
        return None

    def put_back(self, t: int) -> None:
        """The transaction that `next` has returned does not run now."""
        self._begun.discard(t)

    def done(self, now: int, t: int, spent: int) -> bool:
        """The transaction has run for so long and is done; returns whether it is in time."""
        state, began = self.handler.state, now - self._origin
        slot, _, end = self._span(self._quantum)
        charge(state, began, t, slot, max(0, spent))
        if began > end:
            self.overruns = Overrun(self.overruns.count + 1, max(self.overruns.longest, began - end))
        timely = bool(began <= state.transactions[t]["deadline"])
        (commit if timely else miss)(state, began, t)
        del self._bounds[t]
        self._begun.discard(t)
        return timely


def warm() -> None:
    """Compiles all that a governor calls, before anybody waits for it: transactions in time, too late, and expired."""
    low, now, governor = Level(LEAST.name), 0, Governor(LevelOrder(), 0)
    for spent in (MILLISECOND, 3 * SECOND):
        governor.begins(now)
        governor.release(now, low, now + 2 * SECOND, MILLISECOND)
        governor.release(now, low, now + 2 * SECOND, MILLISECOND)
        number = governor.next(now)
        assert number is not None  # noqa: S101
        governor.done(now + spent, number, spent)
        now += 10 * SECOND
        governor.expired(now)
