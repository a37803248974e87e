"""The streams of `bench shared`: two of the same form; each tuple is for one of some roles, evenly and at random."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NAMES = ("hr", "bp")
KEYS = 1_000
EACH = 250_000
"""Tuples in a file; a tuple comes every millisecond."""

_START = 1_767_225_600_000_000  # 2026-01-01, UTC, in microseconds


def make(folder: Path, tuples: int, roles: int) -> Path:
    """The folder of the streams, which are generated at the first call."""
    made = folder / f"{tuples}-{roles}"
    for seed, name in enumerate(NAMES):
        if (made / name).exists():
            continue
        (made / name).mkdir(parents=True)
        table = _table(np.random.default_rng((seed, roles)), tuples, roles)
        for number, begin in enumerate(range(0, tuples, EACH)):
            file = made / name / f"{number:05}.parquet"
            pq.write_table(table.slice(begin, EACH), file, row_group_size=EACH // 4)
            os.utime(file, (_START // 1_000_000 + number,) * 2)
    return made


def _table(rng: np.random.Generator, tuples: int, roles: int) -> pa.Table:
    texts = pa.array([f"R{number + 1}" for number in range(roles)])
    codes = pa.array(rng.integers(0, roles, tuples, dtype=np.int32))
    return pa.table(
        {
            "at": pa.array(_START + 1_000 * np.arange(tuples), pa.timestamp("us", "UTC")),
            "k": rng.integers(0, KEYS, tuples, dtype=np.int32),
            "x": rng.integers(40, 200, tuples, dtype=np.int32),
            "roles": pa.DictionaryArray.from_arrays(codes, texts).cast(pa.string()),
        }
    )
