"""The golden cases of `values.json` on the oracle (SPEC.md, section 4.1)."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from headgate.cql.queries import parse_query
from headgate.plan.expressions import Type, Value
from headgate.plan.queries import QueryBlock, Stream, bind_query
from headgate.testing.oracle import Tuple, meaning, value_of

TABLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "plan" / "values.json").read_text(encoding="utf-8"))
STREAM = Stream("V", tuple((name, Type(type_)) for name, type_ in TABLE["columns"].items()))
CASES = [case for group in TABLE["values"] for case in group["cases"]]
KINDS = {
    Type.BOOLEAN: bool,
    Type.INT: int,
    Type.BIGINT: int,
    Type.FLOAT: float,
    Type.DOUBLE: float,
    Type.STRING: str,
    Type.TIMESTAMP: dt.datetime,
    Type.DATE: dt.date,
    Type.BINARY: bytes,
}


def read(written: Any, type_: Type) -> Value:
    """A value as JSON has it."""
    if written is None:
        return None
    if type_ == Type.BINARY:
        return bytes.fromhex(written)
    if type_ == Type.TIMESTAMP:
        return dt.datetime.fromisoformat(written)
    value: Value = dt.date.fromisoformat(written) if type_ == Type.DATE else written
    assert type(value) is KINDS[type_]
    return value


def block_of(expression: str) -> QueryBlock:
    return bind_query(parse_query(f"SELECT {expression} AS result FROM V"), lambda _: STREAM).blocks[0]


@pytest.mark.parametrize(("expression", "columns", "type_", "value"), CASES, ids=lambda x: str(x) or "empty")
def test_an_expression_has_the_value_of_the_table(
    expression: str, columns: dict[str, Any], type_: str, value: Any
) -> None:
    ((_, expr),) = block_of(expression).items
    given = {name: read(written, Type(TABLE["columns"][name])) for name, written in columns.items()}
    found = value_of(expr, lambda column: given.get(column.name))  # type: ignore[union-attr]
    assert expr.type == Type(type_)
    assert found == read(value, expr.type)
    assert found is None or type(found) is KINDS[expr.type]


@pytest.mark.parametrize(("expression", "column", "values", "type_", "value"), TABLE["aggregates"], ids=str)
def test_an_aggregate_has_the_value_of_the_table(
    expression: str, column: str, values: list[Any], type_: str, value: Any
) -> None:
    query = bind_query(parse_query(f"SELECT {expression} AS result FROM V"), lambda _: STREAM)
    rows = [Tuple("V", n, {column: read(x, Type(TABLE["columns"][column]))}) for n, x in enumerate(values)]
    found = meaning(query, rows)[-1].values[0]
    assert query.columns == (("result", Type(type_)),)
    assert found == read(value, Type(type_))
    assert found is None or type(found) is KINDS[Type(type_)]


def test_the_table_has_every_case_once() -> None:
    written = [json.dumps(case[:2]) for case in CASES]
    assert len(written) == len(set(written))
    assert len(written) >= 250
