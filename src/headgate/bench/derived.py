"""What it saves to compute a selection from a weaker one: the measurement behind the planner's rule to do so always.

Two stateless queries run beside each other over a batch in memory. The second one is stricter. Computed from the first,
it looks at the tuples that the first one left; alone, at all of them. The part that the first one leaves decides which
is faster: gathering columns costs, looking at fewer tuples saves. Many bounds of one column are measured too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields

import numpy as np
import pyarrow as pa

from headgate.bench.harness import Goal, Progress, Row
from headgate.cql.queries import parse_query
from headgate.execution.compile import compile_program
from headgate.expressions.duck import evaluate
from headgate.labels import LEAST
from headgate.model.query import ContinuousQuery
from headgate.model.visibility import Visibility
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY, Program
from headgate.operators.stateless import Stateless
from headgate.plan.expressions import Type
from headgate.plan.nodes import Select
from headgate.plan.queries import Stream, bind_query

MOST = 1.1
"""The most that sharing may cost, as a ratio; the clock of a busy machine is not more exact."""
_STREAM = Stream("s", (("k", Type.INT), ("v", Type.INT), ("d", Type.DOUBLE), ("w", Type.STRING)))
_QUERY = "SELECT k WHERE {} FROM s"
_PARTS = (1, 10, 50, 90)
_KINDS = {
    "whole numbers": ("v > {n}", "v > {m}"),
    "doubles": ("d > {n}.5", "d > {m}.5"),
    "texts": ("w > 'x{n}'", "w > 'x{m}' AND w LIKE '%5%'"),
    "arithmetic": ("v > {n}", "v > {m} AND (v * 3) % 7 > 2"),
}


class _Alone(Program):
    """The same program without derivations."""

    def bases(self, query: str, selections: Collection[Select]) -> list[tuple[Select, Select | None]]:  # noqa: ARG002
        return [(select, None) for select in selections]


def rows(quick: bool, progress: Progress) -> Iterator[tuple[Row, Goal]]:
    size, rounds = (20_000, 11) if quick else (250_000, 31)
    cases = {
        f"{kind}, {part} % left": [text.format(n=999 - 10 * part, m=1001 - 10 * part) for text in texts]
        for part in _PARTS
        for kind, texts in _KINDS.items()
    }
    cases |= {f"{count} bounds of a column": [f"v > {1000 * x // count}" for x in range(count)] for count in (10, 100)}
    progress.expect(len(cases))
    for name, conditions in cases.items():
        progress.step(f"from a weaker selection: {name}")
        alone, shared, ratio = measure(conditions, size, rounds)
        told = f"from a weaker selection: {name}"
        row: Row = {"workload": told, "ms alone": alone, "ms shared": shared, "ratio": round(ratio, 2)}
        yield row, Goal(told, ratio, MOST, "times")


def measure(conditions: Sequence[str], size: int, rounds: int) -> tuple[float, float, float]:
    """Milliseconds of processor time for a batch, each selection alone and computed from weaker ones, and the ratio:
    the best of rounds in which both take turns."""
    program, schema = compile_program(
        ContinuousQuery(f"q{number}", bind_query(parse_query(_QUERY.format(x)), lambda _: _STREAM), LEAST)
        for number, x in enumerate(conditions)
    )
    table, visibility = _batch(program, schema, size), _everything(program)
    ways = [
        Stateless(_Alone(*(getattr(program, x.name) for x in fields(program))), evaluate),
        Stateless(program, evaluate),
    ]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for way, found in zip(ways, times, strict=True):
            begin = time.process_time()
            way.results(table, visibility)
            found.append(1000 * (time.process_time() - begin))
    alone, shared = (min(found) for found in times)
    return alone, shared, shared / alone


def _batch(program: Program, schema: pa.Schema, size: int) -> pa.Table:
    values = np.random.default_rng(7).integers(0, 1000, size)
    known = {TIME: np.arange(size), ARRIVAL: np.arange(size), LABEL: np.ones(size)} | dict.fromkeys(
        (STREAM, VISIBILITY), np.zeros(size)
    )
    columns = {"k": pa.array(values[::-1]), "v": pa.array(values), "d": pa.array(values.astype(np.float64))}
    columns["w"] = pa.array([f"x{value}" for value in values.tolist()])
    read = {field: columns[name] for (_, name), field in program.columns.items()}
    return pa.table(
        [read[x.name].cast(x.type) if x.name in read else pa.array(known[x.name]).cast(x.type) for x in schema],
        schema=schema,
    )


def _everything(program: Program) -> Visibility:
    """One reader of each query, who sees all tuples."""
    targets = tuple(block.target for block in program.stateless)
    never = np.zeros(len(targets), np.int64)
    return Visibility(targets, np.ones((1, len(targets)), np.int32), (frozenset(),), never, never, {1: "U"})
