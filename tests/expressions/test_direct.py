"""Expressions computed without DuckDB have the values that DuckDB and the oracle give."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from expressions.engines import Row, bound, by_the_oracle, differences, given, on_duckdb
from expressions.values import random_conditions, random_exprs, random_rows
from headgate.expressions import direct, duck
from headgate.plan.expressions import Expr

PLAIN = (
    *("i", "l", "d", "s", "t", "7", "'a'", "1.5", "TRUE", "i > 5", "5 >= l", "i = l", "i <> 3000000000"),
    *("d > i", "d <= 0.1", "d = -0.0", "s = ''", "s < 'b'", "s >= s2", "i IN (0, 1, -1)", "i IN (1, 3000000000)"),
    *(
        "l NOT IN (0, 2147483648)",
        "s IN ('', 'é', 'a')",
        "i > 0 AND s = 'a' OR b",
        "NOT (i > 0 AND d < 1)",
        "i IS NULL",
    ),
    *("d IS NOT NULL AND NOT b", "i + i2", "i - i2", "i * i2", "-i", "i * 3 + 1", "(i + 1) * -2 > 5"),
    *("d + d2", "d - d2", "d * d2", "d / d2", "i / i2", "i / 0", "d * d * d - d2", "1.0 / (d * d * d)", "-d"),
    *("d / d2 > 0.5", "(d * d2 - i) IS NULL", "i BETWEEN 0 AND 10", "i BETWEEN i2 AND l", "s BETWEEN 'a' AND 'b'"),
)


def check(exprs: Sequence[Expr], rows: Sequence[Row]) -> int:
    """Returns how many were computed without DuckDB."""
    values = given(rows)
    answers = {expr: direct.answered(expr, values, len(rows)) for expr in exprs}
    arrays = {expr: answer for expr, answer in answers.items() if answer is not None}
    plain, found = list(arrays), [array.to_pylist() for array in arrays.values()]
    if plain:
        assert differences(plain, rows, found, by_the_oracle(plain, rows)) == []
        assert differences(plain, rows, found, on_duckdb(plain, rows)) == []
        assert [array.type for array in arrays.values()] == [
            array.type for array in duck.asked(plain, values, len(rows))
        ]
    return len(plain)


def test_plain_expressions_are_what_duckdb_says() -> None:
    exprs = [bound(text) for text in PLAIN]
    assert check(exprs, random_rows(Random(1), 300)) == len(exprs)


def test_expressions_that_might_overflow_or_differ_are_left_to_duckdb() -> None:
    texts = (
        "l + 1",
        "i * i2 + 1 > 0",
        "i * i2 * i",
        "l > d",
        "f > 1.5",
        "d IN (0.0, 1.5)",
        "i IN (1, NULL)",
        "UPPER(s) = 'A'",
        "d % 2",
    )
    assert check([bound(text) for text in texts], random_rows(Random(2), 20)) == 0


def test_random_expressions_are_what_duckdb_says() -> None:
    rng = Random(3)
    exprs = list(dict.fromkeys(random_exprs(rng, 300) + random_conditions(rng, 300)))
    assert check(exprs, random_rows(rng, 100)) > 30


@pytest.mark.long
def test_many_random_expressions_are_what_duckdb_says() -> None:
    for seed in range(40):
        rng = Random(seed)
        exprs = list(dict.fromkeys(random_exprs(rng, 300) + random_conditions(rng, 300)))
        check(exprs, random_rows(rng, 100))
