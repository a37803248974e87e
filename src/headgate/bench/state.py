"""`headgate bench state`: small batches while much is held, from 10,000 to 10,000,000 tuples.

Windows are filled with large batches, then batches of 1,000 tuples come, one after the other: what one costs and what
it writes is to follow these tuples, not those that are held. Then the engine starts again from its state, and a reader
loses a right to some of what is held. Each case runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median

from headgate.bench.harness import Goal, Plot, Progress, Report, Row, Value
from headgate.bench.pipelines import Measured, reader, running
from headgate.bench.vitals import LABELS, ROLES, STREAMS, Vitals, snapshot
from headgate.execution.memory import keep_freed
from headgate.model.limits import Limits
from headgate.model.snapshot import CatalogSnapshot
from headgate.storage import Content, LocalStorage

KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "RANGE": ("SELECT patient, AVG(hr), COUNT(*) FROM hr [RANGE {n} MILLISECONDS] GROUP BY patient", ("hr",)),
    "ROWS": ("SELECT patient, AVG(hr), COUNT(*) FROM hr [ROWS {rows}] GROUP BY patient", ("hr",)),
    "join": (
        (
            "SELECT h.patient, h.hr, b.bp FROM hr [RANGE {half} MILLISECONDS] h, bp [RANGE {half} MILLISECONDS] b "
            "WHERE h.patient = b.patient"
        ),
        ("hr", "bp"),
    ),
    "DISTINCT": ("SELECT DISTINCT patient, ward FROM hr [RANGE {n} MILLISECONDS]", ("hr",)),
    "UNBOUNDED": ("SELECT patient, AVG(hr), COUNT(*) FROM hr [UNBOUNDED] GROUP BY patient", ("hr",)),
}
"""Queries whose windows hold {n} tuples together, and the streams that they read; one tuple comes each millisecond. An
UNBOUNDED window holds all that came, and keeps sums of most of them."""

BATCH = 1_000
SLOWER, TIMES, BESIDES, RESTART, REVOCATION, BYTES = 1.5, 3, 64 * 1024, 5.0, 2.0, 150.0


@dataclass(frozen=True)
class Sizes:
    held: tuple[int, ...]
    batches: int
    kinds: tuple[str, ...] = tuple(KINDS)
    views: tuple[int, ...] = (1, 4)
    filling: int = 250_000


QUICK = Sizes((2_000, 20_000), 16)
FULL = Sizes((10_000, 100_000, 1_000_000, 10_000_000), 192)


@dataclass(frozen=True)
class Case:
    """A query of one kind, whose windows hold so many tuples, for so many views that see different ones."""

    kind: str
    views: int
    held: int

    @property
    def streams(self) -> tuple[str, ...]:
        return KINDS[self.kind][1]

    def snapshot(self, first: Sequence[str] = ROLES[:2]) -> CatalogSnapshot:
        """The first reader has these roles."""
        seen = self.held if self.views == 1 else self.held * 8 // 15
        text = KINDS[self.kind][0].format(n=self.held, rows=seen, half=self.held // 2)
        query = running("q", text, STREAMS)
        roles = [first, *((role,) for role in ROLES[1 : self.views])]
        readers = [reader(f"reader{number}", query, own) for number, own in enumerate(roles)]
        return snapshot([query], readers)

    def vitals(self) -> Vitals:
        """With as many patients as tuples are held a join has few partners, however much is held."""
        patients = self.held if self.kind == "join" else min(self.held, 100_000)
        return Vitals(patients=patients, labels=ROLES[:2] if self.views == 1 else LABELS)


class Counting(LocalStorage):
    """A folder that counts what is written to it."""

    written = 0

    def write(self, name: str, content: Content, *, durable: bool = True) -> None:
        self.written += len(content)
        super().write(name, content, durable=durable)

    def commit(self, name: str, content: Content) -> bool:
        self.written += len(content)
        return super().commit(name, content)


def run(quick: bool, progress: Progress) -> Report:
    return measure(QUICK if quick else FULL, progress)


def measure(sizes: Sizes, progress: Progress) -> Report:
    cases = [Case(kind, views, held) for kind in sizes.kinds for views in sizes.views for held in sizes.held]
    progress.expect(len(cases))
    rows = list[Row]()
    for case in cases:
        progress.step(f"{case.kind}, {case.views} views, {case.held:,} tuples held")
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            rows.append(alone.submit(measured_case, case, sizes).result())
    return report(rows, sizes)


def report(rows: Sequence[Row], sizes: Sizes) -> Report:
    return Report(
        "State: what batches of 1,000 tuples cost while much is held",
        rows,
        list(_goals(rows, max(sizes.held), min(sizes.held))),
        _NOTES,
        plots=[_plot(rows)],
    )


def measured_case(case: Case, sizes: Sizes) -> dict[str, Value]:
    keep_freed()
    with tempfile.TemporaryDirectory() as folder:
        return measured_in(Path(folder), case, sizes)


def measured_in(home: Path, case: Case, sizes: Sizes) -> dict[str, Value]:
    whole, vitals, before = case.snapshot(), case.vitals(), None
    storage = Counting(home / "state")
    limits = replace(Limits(), tuples=1 << 40, rows=1 << 40)
    measured = Measured(whole, home, storage, limits)
    left = case.held
    while left > 0:
        size = min(left, sizes.filling)
        measured.take(vitals.batch(max(size // len(case.streams), 1), case.streams))
        before = _memory() if before is None else before
        left -= size
    batches = [vitals.batch(BATCH // len(case.streams), case.streams) for _ in range(sizes.batches)]
    for batch in batches[:8]:  # what only the first small batch does is not what one costs
        measured.take(batch)
    written = storage.written
    times = [measured.take(batch) for batch in batches[8:]]
    held, memory = measured.pipeline.held, _memory()
    written = (storage.written - written) // len(times)
    given = sum(table.nbytes for table in batches[-1].values())
    measured.pipeline.close()
    del measured
    clock = Clock()
    measured = Measured(whole, home, storage, limits)
    measured.take(vitals.batch(BATCH // len(case.streams), case.streams))
    restart = clock.taken()
    measured.change(case.snapshot(ROLES[:1]))
    clock = Clock()
    measured.take(vitals.batch(BATCH // len(case.streams), case.streams))
    revocation = clock.taken()
    measured.pipeline.close()
    return {
        "kind": case.kind,
        "views": case.views,
        "held": held,
        "size": case.held,
        "ms per batch": round(1000 * median(times), 2),
        "ms on average": round(1000 * mean(times), 2),
        "kB written": round(written / 1024, 1),
        "kB of a batch": round(given / 1024, 1),
        "restart s": round(restart[0], 2),
        "restart cpu s": round(restart[1], 2),
        "revocation s": round(revocation[0], 2),
        "revocation cpu s": round(revocation[1], 2),
        "bytes per tuple": round((memory - (before or 0)) / held, 1) if held else 0,
    }


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def taken(self) -> tuple[float, float]:
        """By the clock, and of processor time: beside other work the clock shows that work too."""
        return time.perf_counter() - self._start[0], time.process_time() - self._start[1]


def _memory() -> int:
    """The resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _goals(rows: Sequence[Row], most: int, least: int) -> Iterable[Goal]:
    large = [row for row in rows if row["size"] == most]
    small = {(row["kind"], row["views"]): row for row in rows if row["size"] == least}
    slower = [_of(row, "ms per batch") / _of(small[row["kind"], row["views"]], "ms per batch") for row in large]
    beyond = [_of(row, "kB written") / (TIMES * _of(row, "kB of a batch") + BESIDES / 1024) for row in rows]
    yield Goal(f"a batch with {most:,} held, beside {least:,}", max(slower), SLOWER, "times")
    yield Goal("written, beside 3 times the batch and 64 kB", max(beyond), 1.0, "times")
    yield Goal(f"restart with {most:,} held", max(_of(row, "restart s") for row in large), RESTART, "s")
    yield Goal(f"a revocation with {most:,} held", max(_of(row, "revocation s") for row in large), REVOCATION, "s")
    yield Goal("memory", max(_of(row, "bytes per tuple") for row in large), BYTES, "bytes a held tuple")


def _of(row: Row, column: str) -> float:
    return float(str(row[column]))


def _plot(rows: Sequence[Row]) -> Plot:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = f"{row['kind']}, {row['views']} view" + ("" if row["views"] == 1 else "s")
        series.setdefault(name, []).append((_of(row, "size"), _of(row, "ms per batch")))
    return Plot("Batches of 1,000 tuples", "tuples held", "ms of processor time", series, log_x=True)


_NOTES = (
    "Processor time of a batch of 1,000 tuples, the median and the mean; one core, without Spark.",
    "The whole path: labels as texts, state written down, results in mailboxes.",
    "Written: all files of the state, over all batches, so merged segments are in it. A batch: its columns in memory.",
    "Restart and revocation: until the next batch is done, by the clock (the goal) and in processor time, which other",
    "work on the machine does not lengthen as much. The first reader loses one of two roles.",
    "Memory: what the process has more than after the first large batch, for each tuple that is held.",
)
