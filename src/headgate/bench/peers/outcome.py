"""The outcome of a run: how long it took, and for each reader the number of results and a checksum of them.

A checksum is the sum of a hash of every row, so it ignores order and detects every row that is lost, doubled or
changed. It is computed from the written files, after the clock has stopped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headgate.bench.peers.workloads import WORKLOADS, columns_of, readers_of

Column = NDArray[np.integer] | NDArray[np.floating]
BEGUN = "begun"
"""A file in the folder of a run; its modification time is when the run that counts began."""

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True)
class Outcome:
    """One reader's results."""

    rows: int
    checksum: str

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Outcome:
        return cls(len(columns[0]), f"{_sum(columns):016x}")


@dataclass(frozen=True)
class Run:
    """One workload on one engine. `tuples` counts the input of all its streams; `detail` is the engine's own."""

    engine: str
    workload: str
    variant: str
    seconds: float
    tuples: int
    readers: Mapping[str, Outcome]
    detail: Mapping[str, str | float] = field(default_factory=dict)

    @property
    def tuples_per_second(self) -> float:
        return self.tuples / self.seconds

    def to_json(self, expected: Mapping[str, Outcome] | None) -> str:
        """`agrees` is null where no expected results are known."""
        more = {
            "tuples_per_second": round(self.tuples_per_second),
            "agrees": None if expected is None else expected == self.readers,
        }
        return json.dumps(asdict(self) | more)


def results_folder(work: Path, reader: str) -> Path:
    """Where an engine writes the results of one reader; the form is also that of a partitioned table."""
    return work / "out" / f"reader={reader}"


def read_outcomes(workload: str, work: Path) -> dict[str, Outcome]:
    """The outcome in the files, for every reader: a reader without a file has no results."""
    return {
        reader.name: _outcome(results_folder(work, reader.name), columns_of(workload))
        for reader in readers_of(workload)
    }


def expected_of(data: Path, workload: str) -> dict[str, Outcome] | None:
    """As written beside the streams when they were generated."""
    file = data / "expected.json"
    if not file.exists():
        return None
    return {reader: Outcome(**found) for reader, found in json.loads(file.read_text())[workload].items()}


def main(run: Callable[..., Run], variants: Sequence[str] = (), run_warm: Callable[..., Run] | None = None) -> None:
    """The command line that all engines share; options of an engine are given as NAME=VALUE. An engine that runs in
    another process of its own has `run_warm`, which does both runs there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("data", type=Path, help="the folder that `headgate.bench.peers.data` made")
    parser.add_argument("work", type=Path, help="its `out` gets results, its `state` checkpoints; emptied first")
    parser.add_argument(
        "--variant", choices=variants or None, help="a way to write it; each engine has one it takes if none is named"
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="numbers an engine can be given")
    parser.add_argument("--warm", type=Path, metavar="DATA", help="run on these streams first; only the second counts")
    args = parser.parse_args()
    options = {name: int(value) for name, _, value in (pair.partition("=") for pair in args.set)}
    if args.variant:
        options["variant"] = args.variant
    if args.warm and run_warm:
        run = partial(run_warm, warm=args.warm)
    elif args.warm:
        run(args.workload, args.warm, args.work / "warm", **options)
    (args.work / BEGUN).parent.mkdir(parents=True, exist_ok=True)
    (args.work / BEGUN).touch()
    found = run(args.workload, args.data, args.work, **options)
    sys.stdout.write(found.to_json(expected_of(args.data, args.workload)) + "\n")


def empty(work: Path) -> Path:
    """The folder as an absolute path, with empty `out` and `state` in it."""
    for name in ("out", "state"):
        shutil.rmtree(work / name, ignore_errors=True)
        (work / name).mkdir(parents=True)
    return work.resolve()


def _outcome(folder: Path, columns: Sequence[str]) -> Outcome:
    rows, total = 0, 0
    for file in sorted(folder.rglob("*")):
        if file.is_dir() or any(part.startswith((".", "_")) for part in file.relative_to(folder).parts):
            continue  # other files that engines keep beside the results
        table = pq.ParquetFile(file).read(columns=list(columns))
        rows += table.num_rows
        total += _sum([table.column(name).to_numpy() for name in columns])
    return Outcome(rows, f"{total % 2**64:016x}")


def _sum(columns: Sequence[Column]) -> int:
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        # Six digits determine an average of at most 20 integers, and none lies halfway between two such numbers.
        whole = np.rint(column * 1e6) if column.dtype.kind == "f" else column
        hashes = _mixed(hashes + whole.astype(np.int64).astype(np.uint64) + _STEP)
    return int(hashes.sum(dtype=np.uint64))


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finisher of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    return x ^ (x >> np.uint64(31))
