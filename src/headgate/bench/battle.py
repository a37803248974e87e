"""The battlefield of paper 002, to be watched (`headgate demo battlefield`): soldiers' vital signs and positions at
several levels, the queries Q1 to Q8 at each of them, in any architecture. A processor is killed in the middle of it."""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headgate.bench.architectures import ApartEngine, TrustedEngine, engine_of
from headgate.bench.battlefield import QUERIES, Soldiers, level_names, snapshot
from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import Verify
from headgate.labels import Level
from headgate.levels.child import ProcessChild
from headgate.model.results import ResultBatch, delivered_results
from headgate.plain import counted, format_table

ARCHITECTURES = {
    "trusted": "one process computes for all levels",
    "replicated": "a process for each level; the shepherd copies each tuple to every level that dominates it",
    "kernelized": "a process for each level; each tuple is stored once, and the file system says who may read it",
}
BATCH = 500
Results = Mapping[tuple[str, str], tuple[int, str]]
"""By query and subscriber: how many results, and a digest of all of them in order."""


class Digests:
    """What all processors delivered: values, times and labels."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[int, Any]] = {}

    def sink(self) -> Mailbox:
        return _Digested(self)

    def add(self, batches: Sequence[ResultBatch]) -> None:
        for x in delivered_results(batch for batch in batches if not batch.word):
            count, digest = self._found.get((x.query, x.subscriber), (0, hashlib.sha256()))
            digest.update(repr((x.block, x.time, x.values, x.label)).encode())
            self._found[x.query, x.subscriber] = count + 1, digest

    def results(self) -> Results:
        return {key: (count, digest.hexdigest()) for key, (count, digest) in self._found.items()}


class _Digested(Mailbox):
    def __init__(self, digests: Digests) -> None:
        super().__init__(10)
        self._digests = digests

    def publish(self, verify: Verify) -> None:
        ready = self._ready
        super().publish(verify)
        self._digests.add(ready)


def tell(architecture: str, levels: int = 8, batches: int = 12, doing: Callable[[str], None] = print) -> Iterator[str]:
    """The story, line by line; `doing` says what happens meanwhile."""
    names, catalog = level_names(levels), snapshot(levels, levels * len(QUERIES))
    yield f"A battlefield with {levels} levels, {' < '.join(names)}."
    yield "Each soldier sends vital signs and positions, each tuple at one of the levels. Every level runs Q1 to Q8 of"
    yield f"paper 002 ({counted(len(catalog.queries), 'query', 'queries')}) over what it may see.\n"
    yield f"{architecture}: {ARCHITECTURES[architecture]}.\n"
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        digests = Digests()
        engine = engine_of(architecture, home, catalog, digests.sink)
        stack.callback(engine.close)
        soldiers = Soldiers(levels)
        doing("processors start")
        engine.take(soldiers.batch(BATCH))
        engine.wait()
        if isinstance(engine, ApartEngine):
            yield f"{format_table(('level', 'process', 'user'), _processes(engine))}\n"
        begun = time.perf_counter()
        for number in range(1, batches):
            doing(f"batch {number + 1} of {batches}")
            engine.take(soldiers.batch(BATCH))
            if number == batches // 2 and isinstance(engine, ApartEngine):
                yield _killed(engine, Level(names[-1]))
        engine.wait()
        tuples = 2 * BATCH * (batches - 1)
        took = time.perf_counter() - begun
        found = digests.results()
    yield f"{counted(tuples, 'tuple')} in {took:.1f} s. Results of each level, by query:\n"
    yield f"{format_table(('level', *QUERIES), _rows(found, names))}\n"
    if architecture != "trusted":
        doing("the same with one trusted processor, to compare")
        same = found == _trusted(levels, batches)
        words = "the same results, value by value" if same else "OTHER RESULTS: this is a fault"
        yield f"One trusted processor computes {words}."


def _processes(engine: ApartEngine) -> list[tuple[str, str, str]]:
    found = []
    for level, lane in engine.lanes.items():
        assert isinstance(lane.child, ProcessChild)  # noqa: S101
        user = str(os.stat(f"/proc/{lane.child.pid}").st_uid)
        found.append((str(level), str(lane.child.pid), user if not lane.missing else f"{user} (not apart)"))
    return found


def _killed(engine: ApartEngine, level: Level) -> str:
    """Kills the processor of a level, whatever it is doing; its lane starts another."""
    child = engine.lanes[level].child
    if isinstance(child, ProcessChild):
        os.kill(child.pid, signal.SIGKILL)
    return f"The processor of {level} is killed (SIGKILL) and started again: nothing is lost, nobody else notices.\n"


def _rows(found: Results, names: list[str]) -> list[list[str]]:
    """Query number n is the (n // levels)-th of the paper at level n mod levels."""
    totals = {int(query): count for (query, _), (count, _) in found.items()}
    return [
        [name, *(f"{totals.get(turn * len(names) + place, 0):,}" for turn in range(len(QUERIES)))]
        for place, name in enumerate(names)
    ]


def _trusted(levels: int, batches: int) -> Results:
    with tempfile.TemporaryDirectory() as home:
        digests = Digests()
        engine = TrustedEngine(Path(home), snapshot(levels, levels * len(QUERIES)), digests.sink)
        try:
            soldiers = Soldiers(levels)
            for _ in range(batches):
                engine.take(soldiers.batch(BATCH))
            return digests.results()
        finally:
            engine.close()
