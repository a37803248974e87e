"""Stateless blocks that bound the same column are evaluated together: each emits what its own condition says."""

from __future__ import annotations

import operator
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.cql.queries import parse_query
from headgate.egress.filter import ResultFilter
from headgate.execution.executors import LocalExecutor
from headgate.execution.processor import Processor
from headgate.expressions.duck import evaluate
from headgate.expressions.sql.types import ARROW
from headgate.labels import LEAST, Clearance, Rules, parse_label
from headgate.model.query import ContinuousQuery
from headgate.model.tuples import TupleBatch
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
ROLES = ("doctor", "nurse")
LABELS = {0: parse_label("doctor"), 1: parse_label("nurse"), 2: parse_label("doctor | nurse")}
LIMITS: dict[Type, list[Any]] = {Type.INT: [3, 4, 5, 4], Type.DOUBLE: [3.5, 4.5, 5.5], Type.STRING: ["b", "c", "ca"]}
VALUES: dict[Type, list[Any]] = {
    Type.INT: [2, 3, 4, 5, 6, None],
    Type.DOUBLE: [3.5, 3.6, 4.5, 5.5, None],
    Type.STRING: ["a", "b", "c", "ca", "d", None],
}


@pytest.mark.parametrize("type_", LIMITS)
@pytest.mark.parametrize("size", [60, 2_000])
def test_each_stateless_block_emits_what_its_own_condition_says(type_: Type, size: int) -> None:
    rng = Random(size)
    stream = Stream("s", (("k", Type.INT), ("v", type_)))
    steps = [(sign, limit, extra) for sign in COMPARE for limit in LIMITS[type_] for extra in (False, True)]
    rng.shuffle(steps)
    running = {}
    for number, (sign, limit, extra) in enumerate(steps):
        more = " AND k > 50" if extra else ""
        text = f"SELECT k, v WHERE v {sign} {limit!r}{more} FROM s"
        running[f"q{number}"] = ContinuousQuery(f"q{number}", bind_query(parse_query(text), lambda _: stream), LEAST)
    processor = Processor(
        list(running.values()), Rules(), lambda program, schema: LocalExecutor(program, schema, evaluate), ResultFilter
    )
    processor.add_labels(LABELS)
    for name in running:
        for role in ROLES:
            processor.subscribe(name, {role: Clearance(frozenset({role}), LEAST)})
    labels = np.array([rng.randrange(3) for _ in range(size)])
    keys = [rng.randrange(100) for _ in range(size)]
    values = [rng.choice(VALUES[type_]) if rng.random() < 0.3 else VALUES[type_][0] for _ in range(size)]
    columns = {"k": pa.array(keys, pa.int32()), "v": pa.array(values, ARROW[type_])}
    result_batches = processor.batch([TupleBatch("s", np.arange(size), labels, columns)])
    found = {
        (result_batch.query, name): list(
            zip(result_batch.times.tolist(), *(x.to_pylist() for x in result_batch.values), strict=True)
        )
        for result_batch in result_batches
        for name in result_batch.subscribers
    }
    for name, (sign, limit, extra) in zip(running, steps, strict=True):
        for role in ROLES:
            expected = [
                (time, key, value)
                for time, (key, value, label) in enumerate(zip(keys, values, labels.tolist(), strict=True))
                if value is not None and COMPARE[sign](value, limit) and (not extra or key > 50)
                if label in (ROLES.index(role), 2)
            ]
            assert found.get((name, role), []) == expected, (name, sign, limit, extra)
