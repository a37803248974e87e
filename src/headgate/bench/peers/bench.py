"""`headgate bench peers`: Headgate beside Structured Streaming, bytewax and Flink on the same work.

Every run is a process of its own, on the same files, with checkpoints, on two cores, to the same kind of files. The
clock runs from before the first query is defined until the last result file has its name. Engines that compile code and
fill caches while they run (Spark, Flink and Headgate) have done the same work in the same process before, once with few
tuples and once with as many: Spark keeps the state of earlier work, and may be slower for it. The faster run counts.
bytewax does neither. A run whose results are not exactly the expected ones has no time. Of several ways to write a
workload in one engine the fastest counts: all are tried with few tuples, the best one is measured with many, unless
this would take more than some minutes: then its rate with few tuples counts.

The join is also measured as Structured Streaming's guide writes it, with a condition on both times; an expert adds time
as a further key by hand, which is several times as fast.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.peers import data
from headgate.bench.peers.every import run_one
from headgate.bench.peers.subprocesses import NotInstalled, peer
from headgate.bench.peers.workloads import WORKLOADS

FEW, MANY = 200_000, 2_000_000
LIMIT, QUICK_LIMIT = 300, 120
AGAIN = ((40.0, 1), (3.0, 3))
"""A run that took less than so many seconds is repeated so many times, and the fastest one counts."""

HEADGATE, SPARK = "headgate", "structured"
NAMES = {SPARK: "structured streaming"}
_AS_WRITTEN = "as written"


@dataclass(frozen=True)
class Way:
    """One way to write a workload in an engine."""

    engine: str
    variant: str | None = None
    options: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return " ".join([self.variant or "", *(f"{name}={value}" for name, value in self.options.items())]).strip()


AS_WRITTEN = {"W3r": Way(SPARK, "range", {"files": 1})}
"""The workloads as a user writes them who follows an engine's guide literally."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `seconds` is a lower bound where it did not finish in time."""

    way: Way
    workload: str
    tuples: int
    seconds: float = float("nan")
    agrees: bool | None = None
    done: bool = True
    failed: str = ""

    @property
    def rate(self) -> float:
        """Tuples per second; an upper bound where the run did not finish in time, NaN where it failed or results are
        wrong."""
        return float("nan") if self.failed or self.agrees is False else self.tuples / self.seconds

    def row(self) -> Row:
        return {
            "workload": self.workload,
            "engine": NAMES.get(self.way.engine, self.way.engine),
            "way": self.way.name,
            "tuples": self.tuples,
            "seconds": None if self.failed else round(self.seconds, 2),
            "tuples/s": None if self.rate != self.rate else round(self.rate),
            "agrees": self.failed
            or ("yes" if self.agrees else "no" if self.done else f"more than {self.seconds:.0f} s"),
        }


def ways(workload: str) -> dict[str, list[Way]]:
    """The ways that are tried, by engine. `files=0` reads all files at once, otherwise so many in a micro-batch."""
    kind = workload[:2]
    spark = {"W1": ["filter"], "W2": ["explode", "loop"], "W3": ["bucket"], "W4": ["carried", "state"]}[kind]
    flink = ["separate", "together"] if workload in ("W2", "W3r") else ["separate"]
    return {
        HEADGATE: [Way(HEADGATE, options={"files": 0})],
        SPARK: [
            Way(SPARK, variant, {"files": files})
            for variant in spark
            for files in ((0, 1) if kind in ("W3", "W4") else (0,))
        ],
        "bytewax": [Way("bytewax", "arrow" if kind in ("W1", "W2") else "tuples")],
        "flink": [Way("flink", variant) for variant in flink],
    }


@dataclass(frozen=True)
class Place:
    """Where streams are and where engines work."""

    folder: Path
    limit: int

    def streams(self, tuples: int) -> Path:
        made = self.folder / str(tuples)
        if not (made / "tuples.json").exists():
            data.make(made, tuples)
        return made

    def run(self, way: Way, workload: str, tuples: int, *, before: int = 0) -> Outcome:
        """Runs a workload; `before` it, in the same process, the same with so many tuples."""
        given, warm = self.streams(tuples), self.streams(before) if before else None
        found = run_one(
            way.engine, workload, way.variant, given, self.folder / "work", self.limit, way.options, warm=warm
        )
        return judged(way, workload, data.tuples_in(given, data_streams(workload)), found)


def data_streams(workload: str) -> Sequence[str]:
    return ("hr", "bp") if workload.startswith("W3") else ("hr",)


def judged(way: Way, workload: str, tuples: int, found: Mapping[str, Any]) -> Outcome:
    if "limit" in found:
        return Outcome(way, workload, tuples, float(found["limit"]), done=False)
    if "failed" in found:
        return Outcome(way, workload, tuples, failed=str(found["failed"])[:60])
    return Outcome(way, workload, tuples, float(found["seconds"]), bool(found["agrees"]))


def best(found: Iterable[Outcome]) -> Outcome | None:
    """The fastest of the correct runs; if none finished in time, one that did not."""
    right = [x for x in found if x.rate == x.rate]
    return min(right, key=lambda x: (not x.done, x.seconds), default=None)


def measured(place: Place, workload: str, engine: str, sizes: Sequence[int], progress: Progress) -> list[Outcome]:
    """If there are several ways, tries all with few tuples, on engines that have just been started; then the best
    one."""
    every, (few, *_), many = ways(workload)[engine], sizes, sizes[-1]
    tried = []
    for way in every if len(every) > 1 else ():
        progress.step(f"{workload} {engine} {way.name}, {few:,} tuples, to see how fast it is")
        tried.append(place.run(way, workload, few))
    chosen = best(tried)
    way = chosen.way if chosen else every[0]
    tuples = few if chosen and not chosen.seconds * many / few <= place.limit else many
    progress.step(f"{workload} {engine} {way.name}, {tuples:,} tuples")
    before = [0] if engine == "bytewax" else sorted({few, tuples})
    runs = [place.run(way, workload, tuples, before=x) for x in before]
    fastest = best(runs)
    again = max((times for limit, times in AGAIN if fastest and fastest.done and fastest.seconds < limit), default=0)
    runs += [place.run(way, workload, tuples, before=before[x % len(before)]) for x in range(again)]
    return [best(runs) or runs[0]]


def goals(found: Sequence[Outcome]) -> list[Goal]:
    """By the largest number of tuples that each engine was given."""

    def rate(workload: str, *engines: str) -> float:
        largest = sorted((x for x in found if x.workload == workload), key=lambda x: x.tuples)
        own = {_AS_WRITTEN if x.way == AS_WRITTEN.get(workload) else x.way.engine: x.rate for x in largest}
        return max((own[x] for x in engines if x in own and own[x] == own[x]), default=float("nan"))

    def goal(workload: str, least: float, name: str, *engines: str) -> Goal:
        measured_ = rate(workload, HEADGATE) / rate(workload, *engines)
        return Goal(f"{workload}: as fast as {name}", measured_, least, "times", "at least")

    peers = ("bytewax", "flink")
    return [
        goal("W1", 0.95, "Structured Streaming", SPARK),
        goal("W2", 15, "Structured Streaming", SPARK),
        goal("W3r", 60, "Structured Streaming as its guide writes it", _AS_WRITTEN),
        goal("W3r", 60, "Structured Streaming with time as a key", SPARK),
        goal("W3r", 5, "the best other peer", *peers),
        goal("W4r", 3, "Structured Streaming", SPARK),
        goal("W4r", 2, "the best other peer", *peers),
    ]


def installed() -> tuple[list[str], list[str]]:
    """The installed engines, and notes about the others."""
    here, notes = [HEADGATE, SPARK], []
    for name in ("bytewax", "flink"):
        try:
            peer(name)
            here.append(name)
        except NotInstalled as missing:
            notes.append(str(missing))
    return here, notes


def run(quick: bool, progress: Progress) -> Report:
    engines, notes = installed()
    sizes = (FEW,) if quick else (FEW, MANY)
    tries = sum(len(x) for w in WORKLOADS for e in engines if len(x := ways(w)[e]) > 1)
    progress.expect(tries + len(WORKLOADS) * len(engines) + len(AS_WRITTEN))
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), QUICK_LIMIT if quick else LIMIT)
        for workload in WORKLOADS:
            for engine in engines:
                found += measured(place, workload, engine, sizes, progress)
            if workload in AS_WRITTEN:
                progress.step(f"{workload} {SPARK} {AS_WRITTEN[workload].name}, as its guide writes it")
                found.append(place.run(AS_WRITTEN[workload], workload, sizes[-1]))
    notes += [
        f"A run is ended after {place.limit} s: its rate is an upper bound, the ratio to it a lower one.",
        "What would take longer than that with many tuples is measured with few.",
        "W3r, W4r: Headgate's windows hold what each reader may see, as those of the others do.",
    ]
    return Report(
        "Headgate beside other engines, tuples of all streams per second",
        [x.row() for x in found],
        goals(found),
        notes,
        environment("pyspark", "pyarrow", "numpy"),
        [plot(found)],
    )


def plot(found: Sequence[Outcome]) -> Plot:
    """The rates of runs that were correct and in time."""
    series: dict[str, list[tuple[float, float]]] = {}
    for x in found:
        if x.done and x.rate == x.rate and x.way != AS_WRITTEN.get(x.workload):
            name = NAMES.get(x.way.engine, x.way.engine)
            series.setdefault(name, []).append((WORKLOADS.index(x.workload), x.rate))
    return Plot("The same work by other engines", "", "tuples per second", series, log_y=True, names=WORKLOADS)
