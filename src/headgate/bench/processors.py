"""How much processor time a process and those that it started have taken, by what they are: the wall clock says little
on a machine that does other work, and what the driver does itself is what keeps a cluster from growing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spent:
    """Seconds of processor time: of this Python process (the driver), of Spark's Java process, of Python workers."""

    driver: float = 0.0
    spark: float = 0.0
    workers: float = 0.0

    @property
    def whole(self) -> float:
        return self.driver + self.spark + self.workers

    def since(self, before: Spent) -> Spent:
        return Spent(self.driver - before.driver, self.spark - before.spark, self.workers - before.workers)


@dataclass(frozen=True)
class _Process:
    parent: int
    name: str
    own: float
    ended: float
    """Of children that ended and were waited for."""


def spent() -> Spent:
    """Up to now, as far as `/proc` shows it."""
    known = dict(_processes())
    own = known.get(os.getpid())
    if own is None:
        return Spent()
    spark = workers = 0.0
    for process in _below(os.getpid(), known):
        if process.name == "java":
            spark += process.own
        else:
            workers += process.own + process.ended
    return Spent(own.own, spark, workers)


def _below(root: int, known: dict[int, _Process]) -> Iterator[_Process]:
    for number, process in known.items():
        if process.parent == root:
            yield process
            yield from _below(number, known)


def _processes() -> Iterator[tuple[int, _Process]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            begin, _, rest = (folder / "stat").read_text().rpartition(")")
            fields = rest.split()
            own, ended = (sum(map(int, fields[x : x + 2])) / _TICKS for x in (11, 13))
            yield int(folder.name), _Process(int(fields[1]), begin.partition("(")[2], own, ended)
