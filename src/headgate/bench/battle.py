"""The battlefield of paper 002, to be watched (`headgate demo battlefield`): soldiers' vital signs and positions at
several levels, the queries Q1 to Q8 at each of them, in any architecture. A processor is killed in the middle of it."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from headgate.bench.architectures import ApartEngine, TrustedEngine, engine_of
from headgate.bench.battlefield import QUERIES, Soldiers, level_names, snapshot
from headgate.labels import Level
from headgate.levels.child import ProcessChild
from headgate.plain import counted, format_table

ARCHITECTURES = {
    "trusted": "one process computes for all levels",
    "replicated": "a process for each level; the shepherd copies each tuple to every level that dominates it",
    "kernelized": "a process for each level; each tuple is stored once, and the file system says who may read it",
}
BATCH = 500
Results = Mapping[tuple[str, str], int]


def tell(architecture: str, levels: int = 8, batches: int = 12, doing: Callable[[str], None] = print) -> Iterator[str]:
    """The story, line by line; `doing` says what happens meanwhile."""
    names, catalog = level_names(levels), snapshot(levels, levels * len(QUERIES))
    yield f"A battlefield with {levels} levels, {' < '.join(names)}."
    yield "Each soldier sends vital signs and positions, each tuple at one of the levels. Every level runs Q1 to Q8 of"
    yield f"paper 002 ({counted(len(catalog.queries), 'query', 'queries')}) over what it may see.\n"
    yield f"{architecture}: {ARCHITECTURES[architecture]}.\n"
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = engine_of(architecture, home, catalog)
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
        found = engine.results()
    yield f"{counted(tuples, 'tuple')} in {took:.1f} s. Results of each level, by query:\n"
    yield f"{format_table(('level', *QUERIES), _rows(found, names))}\n"
    if architecture != "trusted":
        doing("the same with one trusted processor, to compare")
        same = found == _trusted(levels, batches)
        yield f"One trusted processor computes {'the same results' if same else 'OTHER RESULTS: this is a fault'}."


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
    totals = {int(query): count for (query, _), count in found.items()}
    return [
        [name, *(f"{totals.get(turn * len(names) + place, 0):,}" for turn in range(len(QUERIES)))]
        for place, name in enumerate(names)
    ]


def _trusted(levels: int, batches: int) -> Results:
    with tempfile.TemporaryDirectory() as home:
        engine = TrustedEngine(Path(home), snapshot(levels, levels * len(QUERIES)))
        try:
            soldiers = Soldiers(levels)
            for _ in range(batches):
                engine.take(soldiers.batch(BATCH))
            return engine.results()
        finally:
            engine.close()
