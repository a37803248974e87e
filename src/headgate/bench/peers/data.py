"""The streams hr and bp, the same for the same size on every machine, and what each reader's results must be.

    python -m headgate.bench.peers.data DATA [--tuples N]

A tuple comes every millisecond. Both streams start together, so many pairs lie exactly a second apart: an engine that
gets the edge of the window wrong is detected. A stream is a folder of Parquet files, in time order by name and by time
of modification, so that an engine that reads file by file reads in order. Each file has several row groups, so that
engines can split files among cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.bench.peers.expected import Stream, expected
from headgate.bench.peers.workloads import LEVELS, POLICIES, WORKLOADS

TUPLES = 2_000_000
FILES = 10
GROUPS = 4
PATIENTS = 1_000
START_MICROS = 1_767_225_600_000_000  # 2026-01-01, UTC
_SEEDS = {"hr": 1, "bp": 2}
_USUAL = {"hr": (75, 20, 35, 200), "bp": (120, 20, 60, 220)}  # mean, deviation, least, most


def generate(name: str, tuples: int) -> Stream:
    """One stream: patients, levels and policies are uniform and independent, measurements normal."""
    rng = np.random.default_rng(_SEEDS[name])
    mean, deviation, least, most = _USUAL[name]
    measured = np.clip(np.rint(rng.normal(mean, deviation, tuples)), least, most)
    return Stream(
        at=START_MICROS + 1000 * np.arange(tuples, dtype=np.int64),
        patient=rng.integers(0, PATIENTS, tuples, dtype=np.int32),
        measured=measured.astype(np.int32),
        lvl=rng.integers(0, LEVELS, tuples, dtype=np.int32),
        policy=rng.integers(0, len(POLICIES), tuples, dtype=np.int32),
    )


def write(name: str, stream: Stream, folder: Path, files: int = FILES) -> None:
    """Writes the stream as files of equal size; the last may be smaller."""
    folder.mkdir(parents=True)
    policies = pa.DictionaryArray.from_arrays(pa.array(stream.policy), pa.array(list(POLICIES))).cast(pa.string())
    table = pa.table(
        {
            "at": pa.array(stream.at, pa.timestamp("us", tz="UTC")),
            "patient": stream.patient,
            name: stream.measured,
            "lvl": stream.lvl,
            "policy": policies,
        }
    )
    each = -(-len(table) // files)
    for number in range(files):
        file = folder / f"{name}-{number:03}.parquet"
        pq.write_table(table.slice(number * each, each), file, row_group_size=-(-each // GROUPS))
        modified = START_MICROS // 1_000_000 + number
        os.utime(file, (modified, modified))


def make(data: Path, tuples: int = TUPLES) -> None:
    """Writes both streams and `expected.json`, in place of older ones; `tuples.json` last, as a sign that all are
    complete."""
    for name in _SEEDS:
        shutil.rmtree(data / name, ignore_errors=True)
    (data / "tuples.json").unlink(missing_ok=True)
    streams: Mapping[str, Stream] = {name: generate(name, tuples) for name in _SEEDS}
    for name, stream in streams.items():
        write(name, stream, data / name)
    found = {
        workload: {reader: asdict(outcome) for reader, outcome in expected(workload, streams).items()}
        for workload in WORKLOADS
    }
    (data / "expected.json").write_text(json.dumps(found, indent=1) + "\n")
    (data / "tuples.json").write_text(json.dumps({name: len(stream.at) for name, stream in streams.items()}) + "\n")


def tuples_in(data: Path, names: Iterable[str]) -> int:
    """How many tuples these streams have together."""
    counts = json.loads((data / "tuples.json").read_text())
    return sum(counts[name] for name in names)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--tuples", type=int, default=TUPLES, help="in each stream")
    args = parser.parse_args()
    make(args.data, args.tuples)
