"""Lanes: which worker process advances which partition. They do all other work of tasks, too.

Spark gives a task to any idle worker, so a partition would rarely meet the worker that has it in memory. Workers that
are started with different environments are never exchanged for each other. So there is a lane for each core: one task
of a step, in a worker of its own environment, advances the partitions of the lane one after the other. A worker that
died is replaced by one that loads what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.execution.partitions import PartitionName

UNEVEN = 1.25
"""Partitions move to another lane if the busiest takes so many times the average."""
WORTH_MOVING = 0.5
"""In seconds of a step: a partition that moves is loaded again."""


class Lanes:
    """The lanes of the partitions of one plan."""

    def __init__(self) -> None:
        self._of: dict[PartitionName, int] = {}
        self._count = 0

    def assigned(self, names: Sequence[PartitionName], count: int) -> list[list[PartitionName]]:
        """The partitions of each of at most `count` lanes. At first they are neighbours: these have equally many of
        consecutive keys (`partition_of`)."""
        count = max(1, min(count, len(names)))
        if count != self._count or self._of.keys() != set(names):
            self._count = count
            self._of = {name: place * count // len(names) for place, name in enumerate(names)}
        return [[name for name in names if self._of[name] == lane] for lane in range(count)]

    def note(self, seconds: Mapping[PartitionName, float]) -> None:
        """Take note of how long partitions took in the last step, and move some if lanes are uneven."""
        loads = [0.0] * self._count
        for name, lane in self._of.items():
            loads[lane] += seconds.get(name, 0.0)
        while max(loads) > max(UNEVEN * sum(loads) / len(loads), WORTH_MOVING):
            busiest, idlest = loads.index(max(loads)), loads.index(min(loads))
            gap = loads[busiest] - loads[idlest]
            own = {name: seconds.get(name, 0.0) for name, lane in self._of.items() if lane == busiest}
            fitting = [name for name, taken in own.items() if 0 < taken < gap]
            if not fitting:
                return
            moved = min(fitting, key=lambda name: abs(own[name] - gap / 2))
            self._of[moved] = idlest
            loads[busiest] -= own[moved]
            loads[idlest] += own[moved]
