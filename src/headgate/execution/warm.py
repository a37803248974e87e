"""Compile the loops of the operators before anybody waits for them: numba keeps the machine code on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.cql.queries import parse_query
from headgate.execution.executors import LocalExecutor
from headgate.execution.processor import Processor
from headgate.expressions.duck import evaluate
from headgate.expressions.sql.types import ARROW
from headgate.labels import LEAST, PUBLIC, Clearance, Rules
from headgate.loops.windows import steps_after
from headgate.model.query import ContinuousQuery
from headgate.model.results import BlockResults, ResultBatch
from headgate.model.tuples import TupleBatch
from headgate.model.view import View
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query

_COLUMNS = (("i", Type.INT), ("l", Type.BIGINT), ("d", Type.DOUBLE), ("s", Type.STRING), ("t", Type.TIMESTAMP))
_STREAM = Stream("warm", _COLUMNS)
_EVERY = "COUNT(*) AS a, COUNT(i) AS b, SUM(i) AS c, AVG(l) AS e, AVG(d) AS f, STDDEV(d) AS g, COUNT(DISTINCT s) AS h"
_ENDS = ", ".join(f"{end}({name}) AS {end[:2]}{name}" for end in ("MIN", "MAX") for name, _ in _COLUMNS)
_QUERIES = (
    f"SELECT i, {_EVERY} FROM warm [ROWS 3] GROUP BY i",  # noqa: S608
    f"SELECT s, {_ENDS} FROM warm [RANGE 2 SECONDS] GROUP BY s",  # noqa: S608
    f"SELECT i, s, {_EVERY} FROM warm [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY i, s",  # noqa: S608
    "SELECT RSTREAM AVG(d) AS x FROM warm [PARTITIONED BY s ROWS 2]",
    "SELECT DISTINCT s FROM warm [ROWS 3]",
    "SELECT DSTREAM DISTINCT i FROM warm [RANGE 2 SECONDS]",
    "SELECT RSTREAM l FROM warm [ROWS 2]",
    "SELECT a.i, b.d FROM warm [RANGE 2 SECONDS] a, warm [ROWS 3] b WHERE a.s = b.s",
    "SELECT a.i, COUNT(*) AS n FROM warm [NOW] a, warm [PARTITIONED BY i ROWS 2] b WHERE a.l = b.l GROUP BY a.i",
)


class _Nobody:
    """A filter that lets nothing out."""

    def result_batches(self, views: Sequence[View], results: Sequence[BlockResults]) -> list[ResultBatch]:  # noqa: ARG002
        return []


def is_compiled() -> bool:
    """Whether machine code is on disk: then `warm` only loads it. It is not where the package was just unpacked, as on
    the workers of a cluster."""
    loop: Any = steps_after
    return any(Path(loop.stats.cache_path or "/dev/null").glob("*.nbi"))


def warm() -> None:
    """Run small batches through every kind of operator."""
    queries = [
        ContinuousQuery(f"q{number}", bind_query(parse_query(text), lambda *_: _STREAM), LEAST)
        for number, text in enumerate(_QUERIES)
    ]
    processor = Processor(
        queries, Rules(), lambda program, schema: LocalExecutor(program, schema, evaluate), lambda *_: _Nobody()
    )
    processor.add_labels({1: PUBLIC})
    for query in queries:
        processor.subscribe(query.name, {"nobody": Clearance()})
    for first in (0, 6):
        processor.batch([_batch(first)])
    processor.batch([], last=True)


def _batch(first: int) -> TupleBatch:
    times = np.arange(first, first + 6) * 1000
    values = {"i": times % 2, "l": times, "d": times / 3, "s": [f"{x}" for x in times % 3000], "t": times}
    columns = {name: pa.array(values[name]).cast(ARROW[type_]) for name, type_ in _COLUMNS}
    return TupleBatch("warm", times, np.ones(len(times), np.int64), columns)
