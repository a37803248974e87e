"""Attacks that try to learn the results of others: through an expression that fails on hidden tuples, through results
of another reader, through a query above the reader's level.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds.attacked import COLUMNS, bench
from worlds.harness import Bench, stream

from headgate.model.view import View
from headgate.plan.secure import Mode
from headgate.visibility.index import VisibilityIndex

FAILING = [
    "SELECT CAST(w AS INT) AS x FROM s",
    "SELECT CAST(w AS TIMESTAMP) AS x FROM s",
    "SELECT 1 / (a - 3) AS x FROM s",
    "SELECT a % (a - 3) AS x FROM s",
    "SELECT 999999999999999999 * (a * 99) AS x FROM s",
    "SELECT SUM(999999999999999999 * a) * 9 AS x FROM s [UNBOUNDED]",
    "SELECT SQRT(0 - a) AS x FROM s",
    "SELECT SUBSTRING(w, a, 0 - a) AS x FROM s",
    "SELECT a FROM s WHERE CAST(w AS INT) / (a - 3) > 1",
    "SELECT COUNT(*) AS n FROM s [ROWS 3] GROUP BY w HAVING CAST(MIN(w) AS INT) / (MIN(a) - 3) > 0",
    f"SELECT {'(' * 30}a{')' * 30} + 1 AS x FROM s",
    f"SELECT {'+'.join(['a'] * 30)} AS x FROM s",
    "SELECT a FROM s WHERE w LIKE '" + "%a_" * 200 + "%b'",
]


@pytest.mark.parametrize("text", FAILING)
def test_no_expression_fails_on_somebody_elses_tuple(text: str, tmp_path: Path) -> None:
    """Neither with a secret that would make it fail, nor on one's own tuples: what has no value is NULL."""
    told = []
    for number, secret in enumerate(("4711", "no number", "a" * 5000)):
        found = bench(tmp_path / str(number), q=text, other="SELECT a FROM s")
        found.subscribed(spy=("q", "nurse"), dora=("other", "doctor"))
        found.take("s", ("nurse", 3, "x"), ("doctor", 3, secret), ("nurse", 1, "12"), ("doctor", -3, secret))
        found.end()
        told.append(found.fetched("spy", "q"))
        assert found.fetched("dora", "other") == [(3,), (-3,)]
    assert told[0] == told[1] == told[2]


def test_results_reach_only_the_reader_they_were_computed_for_at_every_stage(tmp_path: Path) -> None:
    """Two queries at different stages read the same results: what was meant for a reader of one was taken for that of
    whoever stood in the same place of the other, or broke it for everyone."""
    found = bench(tmp_path, q="SELECT a FROM s")
    found.query("one", "SELECT a FROM out.q")
    found.query("two", "SELECT x.a FROM out.q [ROWS 1] x, out.one [ROWS 1] y")
    found.subscribed(amy=("one", "nurse"), ben=("one", "nurse"), dora=("two", "nurse"), eve=("one", ""))
    for _ in range(3):
        found.take("s", ("nurse", 1, "x"), ("TRUE", 2, "x"))
    found.end()
    assert found.fetched("amy", "one") == found.fetched("ben", "one") == [(1,), (2,)] * 3
    assert found.fetched("eve", "one") == [(2,)] * 3
    assert len(found.fetched("dora", "two")) > 3


def test_without_that_check_results_reach_other_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def for_some(self: VisibilityIndex, number: int, views: tuple[View, ...]) -> int:
        row, columns = self._rows[number] * 0, [column for view in views for column in view.columns]
        row[columns] = self._rows[number][columns]
        return self._visibility(self._label_of[number], row)

    monkeypatch.setattr(VisibilityIndex, "_for_some", for_some)
    with pytest.raises((AssertionError, IndexError)):
        test_results_reach_only_the_reader_they_were_computed_for_at_every_stage(tmp_path)


def test_a_reader_whose_level_does_not_dominate_the_querys_receives_nothing(tmp_path: Path) -> None:
    for mode in Mode:
        found = Bench(tmp_path / mode, stream("s", COLUMNS))
        found.query("q", "SELECT COUNT(*) AS n FROM s [UNBOUNDED]", level="S", mode=mode)
        found.subscribed(eve=("q", "doctor", "C"), dora=("q", "doctor", "TS"))
        found.take("s", ("TRUE", 1, "x"), ("TRUE AT TS", 2, "x"), ("TRUE AT S", 3, "x"))
        found.end()
        assert found.fetched("eve", "q") == []
        assert found.fetched("dora", "q") == [(1,), (2,)]  # as at the query's level, not at its own
