"""`headgate bench scale`: operators in Spark's tasks as tuples, partitions and cores grow, and the driver's part of it.

The join and the window of `bench peers` (W3r, W4r) for three readers, from Parquet files to Parquet files, on Spark in
one machine (`local[n]`). Each run is a process of its own, which has done the same work before with few tuples. Beside
it: the same beside the driver, and Structured Streaming, which is not run with more than it does in some minutes. A run
whose results are not exactly the expected ones has no time.

The driver's share is the processor time of the driver's Python process, in which tuples would be if they passed it, of
all that the run took. In `local[n]` one Java process is both driver and executors of Spark, so its time is counted
among the others; it is a column of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.peers import data
from headgate.bench.peers.every import run_one
from headgate.bench.peers.workloads import streams_of

SIZES, QUICK_SIZES = (500_000, 2_000_000, 20_000_000, 50_000_000), (100_000, 500_000)
"""Tuples of each stream; the join has two."""
PARTITIONS, CORES, USUAL = (1, 2, 4, 8, 16), (1, 2), 8
WORKLOADS = ("W3r", "W4r")
FEW = 100_000
LIMIT, QUICK_LIMIT = 600, 120
SLOW = 40_000
"""Structured Streaming is given so many tuples of a stream at most for each second of the limit: it does fewer."""
TASKS, DRIVER, SPARK = "tasks", "beside the driver", "structured streaming"


@dataclass(frozen=True)
class Case:
    """A workload with so many tuples in each stream, in so many partitions (0: beside the driver)."""

    workload: str
    tuples: int
    partitions: int = USUAL
    cores: int = 2
    engine: str = "headgate"

    @property
    def name(self) -> str:
        if self.engine != "headgate":
            return SPARK
        return TASKS if self.partitions else DRIVER

    @property
    def options(self) -> Mapping[str, int]:
        if self.engine != "headgate":
            return {"files": 0}
        return {"cores": self.cores, "partitions": self.partitions}


@dataclass(frozen=True)
class Measured:
    case: Case
    found: Mapping[str, Any]

    @property
    def rate(self) -> float:
        """Tuples of all streams per second; NaN if the run failed or its results are wrong."""
        right = "failed" not in self.found and self.found.get("agrees")
        return float(self.found["tuples"]) / float(self.found["seconds"]) if right else float("nan")

    @property
    def driver_fraction(self) -> float:
        """The driver's part of the processor time, in percent."""
        spent = self.found.get("detail", {})
        whole = sum(float(spent.get(x, 0)) for x in ("driver", "spark", "workers"))
        return 100 * float(spent["driver"]) / whole if whole else float("nan")

    def row(self) -> Row:
        case, spent = self.case, self.found.get("detail", {})
        ours = case.engine == "headgate"
        return {
            "workload": case.workload,
            "where": case.name,
            "tuples": case.tuples * len(streams_of(case.workload)),
            "partitions": case.partitions if ours and case.partitions else None,
            "cores": case.cores,
            "seconds": round(float(self.found["seconds"]), 2) if "seconds" in self.found else None,
            "tuples/s": round(self.rate) if self.rate == self.rate else None,
            "driver s": round(float(spent["driver"]), 2) if ours and spent else None,
            "Spark's Java s": round(float(spent["spark"]), 2) if ours and spent else None,
            "workers s": round(float(spent["workers"]), 2) if ours and spent else None,
            "driver %": round(self.driver_fraction, 1) if ours and spent else None,
            "agrees": str(self.found.get("failed", "") or ("yes" if self.found.get("agrees") else "no"))[:60],
        }


def cases(sizes: Sequence[int], limit: int) -> list[Case]:
    """Tuples grow with the usual partitions; then partitions and cores, with as many tuples as two cores have work
    for."""
    found: list[Case] = []
    for workload in WORKLOADS:
        found += [Case(workload, size, partitions) for size in sizes for partitions in (USUAL, 0)]
        found += [Case(workload, size, 0, engine="structured") for size in sizes if size <= SLOW * limit // 10]
    middle = sizes[-2]
    found += [Case("W3r", middle, partitions) for partitions in PARTITIONS if partitions != USUAL]
    found += [Case(workload, middle, cores=cores) for workload in WORKLOADS for cores in CORES if cores != 2]
    return found


def goals(found: Sequence[Measured], sizes: Sequence[int]) -> list[Goal]:
    def rate(case: Case) -> float:
        return next((x.rate for x in found if x.case == case), float("nan"))

    made = []
    for workload in WORKLOADS:
        middle, one = Case(workload, sizes[-2]), Case(workload, sizes[-2], cores=1)
        share = next((x.driver_fraction for x in found if x.case == middle), float("nan"))
        beside = Case(workload, sizes[-2], 0)
        made += [
            Goal(f"{workload}: the driver's processor time", share, 5, "%"),
            Goal(f"{workload}: two cores as fast as one", rate(middle) / rate(one), 1.6, "times", "at least"),
            Goal(f"{workload}: tasks as fast as the driver", rate(middle) / rate(beside), 1, "times", "at least"),
        ]
    return made


def plots(found: Sequence[Measured], sizes: Sequence[int]) -> list[Plot]:
    right = [x for x in found if x.rate == x.rate]
    by_size: dict[str, list[tuple[float, float]]] = {}
    shares: dict[str, list[tuple[float, float]]] = {}
    for x in right:
        if x.case.cores == 2 and (x.case.partitions in (0, USUAL)):
            by_size.setdefault(f"{x.case.workload}, {x.case.name}", []).append((float(x.found["tuples"]), x.rate))
            if x.case.name == TASKS:
                shares.setdefault(x.case.workload, []).append((float(x.found["tuples"]), x.driver_fraction))
    middle = [x for x in right if x.case.tuples == sizes[-2] and x.case.workload == "W3r" and x.case.name == TASKS]
    partitions = sorted((float(x.case.partitions), x.rate) for x in middle if x.case.cores == 2)
    drawn = [
        Plot("As tuples grow, on two cores", "tuples", "tuples per second", by_size, log_x=True, log_y=True),
        Plot("The driver's part of the processor time", "tuples", "percent", shares, {"goal": 5.0}, log_x=True),
        Plot("As partitions grow (W3r)", "partitions", "tuples per second", {TASKS: partitions}, log_x=True),
    ]
    return [x for x in drawn if all(x.series.values()) and x.series]


def run(quick: bool, progress: Progress) -> Report:
    sizes, limit = (QUICK_SIZES, QUICK_LIMIT) if quick else (SIZES, LIMIT)
    wanted = cases(sizes, limit)
    progress.expect(len(wanted))
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warm = _streams(folder, FEW)
        for case in wanted:
            progress.step(f"{case.workload} {case.name}, {case.tuples:,} tuples a stream, {case.partitions} partitions")
            variant = {"W3r": "bucket", "W4r": "carried"}[case.workload] if case.engine == "structured" else None
            given = _streams(folder, case.tuples)
            done = run_one(case.engine, case.workload, variant, given, folder / "work", limit, case.options, warm)
            found.append(Measured(case, done))
    return Report(
        "Operators in Spark's tasks as tuples, partitions and cores grow",
        [x.row() for x in found],
        goals(found, sizes),
        [
            "Processor seconds are those of the run that counts; the run before it in the same process is not counted.",
            "The driver's share is that of its Python process; Spark's Java process is driver and executor in one.",
            f"Structured Streaming is not given more than {SLOW * limit // 10:,} tuples a stream.",
        ],
        environment("pyspark", "pyarrow", "numpy"),
        plots(found, sizes),
    )


def _streams(folder: Path, tuples: int) -> Path:
    made = folder / str(tuples)
    if not (made / "tuples.json").exists():
        data.make(made, tuples)
    return made
