"""Attacks on work that queries of several people share: threads, limits, sizes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from worlds import harness
from worlds.harness import NOW, Bench, Row, stream

from headgate.egress.parquet import ParquetSink
from headgate.expressions import limits
from headgate.expressions.duck import evaluate
from headgate.expressions.limits import Limited, few_rows
from headgate.model.budget import LimitExceeded, Meter
from headgate.model.limits import Limits
from headgate.operators import threads
from headgate.operators.block_rows import LAST
from headgate.operators.threads import in_threads
from headgate.plan.expressions import Expr
from headgate.testing.oracle import windows


def bench(home: Path, **queries: str) -> Bench:
    found = Bench(home, stream("s", "a INT, w STRING"))
    for name, text in queries.items():
        found.query(name, text)
    return found


def rows(count: int, label: str = "TRUE") -> list[Row]:
    return [(label, number % 5, "abc") for number in range(count)]


def ended(found: Bench, who: str, query: str) -> list[str]:
    return [result_batch.ended for result_batch in found.mailbox.fetch(who, query, found.now) if result_batch.ended]


@pytest.mark.parametrize("count", [(1 << 64) // 4096, (1 << 63) // 4096, 8_640_000_000_000_000])
def test_a_count_beyond_64_bits_exceeds_the_limit(count: int) -> None:
    """With 64 bits these were none at all, or less than none; what was made of them ended the process."""
    with pytest.raises(LimitExceeded, match=r"it has more than [0-9,]+ rows at once"):
        few_rows(np.full(4096, count))


def test_very_many_instants_end_the_view_that_has_them(tmp_path: Path) -> None:
    found = bench(
        tmp_path,
        greedy="SELECT COUNT(*) AS n FROM s [RANGE 100000000 DAYS SLIDE 1 MILLISECOND]",
        other="SELECT a FROM s",
    )
    found.subscribed(eve=("greedy", ""), dora=("other", ""))
    found.take("s", *rows(1100), times=[NOW] * 1100)
    found.end()
    assert ended(found, "eve", "greedy") == [Limits().exceeded("rows")]
    assert len(found.fetched("dora", "other")) == 1100


@pytest.mark.parametrize(("slide", "instants"), [(100_000_000, 1), (1_000_000, 3), (100_000, 30)])
def test_there_is_no_result_whose_time_nobody_can_write(slide: int, instants: int, tmp_path: Path) -> None:
    """One of the year 275760 ended everybody's work, and again with each new try, as it was staged."""
    far = f"SELECT RSTREAM a FROM s [RANGE 100000000 DAYS SLIDE {slide} DAYS]"
    found = bench(tmp_path, far=far, other="SELECT a FROM s")
    found.subscribed(eve=("far", ""), dora=("other", ""))
    found.begin(found.files(), ParquetSink(tmp_path / "parquet", found))
    found.take("s", *rows(3), times=[dt.datetime(1900, 1, 1, tzinfo=dt.UTC)] * 3)
    found.end()
    times = [int(x) for result_batch in found.mailbox.fetch("eve", "far", found.now) for x in result_batch.times]
    assert times == [number * slide * 86_400_000 for number in range(instants) for _ in range(3)]
    assert max(times) <= LAST == windows.LAST
    assert len(found.fetched("dora", "other")) == 3


@pytest.fixture(params=[False, True], ids=["alone", "in threads"])
def everywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few tuples there are, they are worth threads, or not."""
    monkeypatch.setattr(threads, "WORTH_IT", 1 if request.param else 1 << 62)


HARM: dict[type[BaseException], str] = {
    MemoryError: "it needs more memory than there is; use smaller windows, or give the engine more memory",
    RecursionError: "it cannot be computed (RecursionError)",
    ValueError: "it cannot be computed (ValueError)",
    duckdb.InternalException: "it cannot be computed (InternalException)",
}


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("text", ["SELECT LENGTH(w) AS x FROM s", "SELECT SUM(LENGTH(w)) AS x FROM s [ROWS 3]"])
def test_a_query_that_fails_unexpectedly_ends_alone(
    text: str, harm: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For those who see what makes it fail: whoever looks at the same query and does not goes on, and all others."""

    def failing(exprs: Sequence[Expr], values: Mapping[Any, pa.Array], size: int) -> list[pa.Array]:
        if any("LENGTH" in str(expr) for expr in exprs) and any("bad" in x.to_pylist() for x in values.values()):
            raise harm("a secret of the tuple: 4711")
        return evaluate(exprs, values, size)

    monkeypatch.setattr(harness, "evaluate", failing)
    found = bench(tmp_path, q=text, other="SELECT a FROM s", counting="SELECT COUNT(*) AS n FROM s [ROWS 3]")
    found.subscribed(
        eve=("q", "nurse"), amy=("q", ""), dora=("other", "nurse"), carl=("counting", "nurse"), zoe=("counting", "")
    )
    for _ in range(2):
        found.take("s", *rows(4), ("nurse", 1, "bad"), *rows(3, "nurse"))
    found.end()
    assert ended(found, "eve", "q") == [HARM[harm]]
    assert len(found.fetched("amy", "q")) == 8
    assert len(found.fetched("dora", "other")) == len(found.fetched("carl", "counting")) == 16
    assert len(found.fetched("zoe", "counting")) == 8


def test_a_thread_keeps_no_limits_of_earlier_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORTH_IT", 1)

    def greedy(most: int) -> None:
        with suppress(LimitExceeded), Limited(Limits(rows=most), Meter({})):
            few_rows(np.array([most + 1]))

    in_threads(greedy, range(50), [1] * 50)
    assert set(in_threads(lambda _: limits._LIMITS.get(), range(50), [1] * 50)) == {Limits()}


@pytest.mark.usefixtures("everywhere")
def test_the_size_of_other_queries_changes_no_results(tmp_path: Path) -> None:
    """Neither results nor their order nor bytes of files, although the largest views are computed first."""
    texts = {
        "q": "SELECT v.a, u.w FROM s [ROWS 3] v, s [ROWS 2] u WHERE v.a = u.a",
        "p": "SELECT a FROM s WHERE a > 1",
        "r": "SELECT a, COUNT(*) AS n FROM s [ROWS 9] GROUP BY a",
    }
    seen = []
    for hidden in (0, 1, 200):
        home = tmp_path / str(hidden)
        found = bench(home, **texts)
        others = {f"dora{name}": (name, "doctor") for name in texts} if hidden else {}
        found.subscribed(**others, **{f"eve{name}": (name, "nurse") for name in texts}, amy=("r", ""))
        found.begin(found.files())
        for _ in range(2):
            found.take("s", *rows(hidden, "doctor"), *rows(9, "nurse"), *rows(3), times=[NOW] * (hidden + 12))
        found.end()
        fetched = [found.fetched(f"eve{name}", name) for name in texts] + [found.fetched("amy", "r")]
        assert all(fetched)
        seen.append((fetched, [(home / f"out/eve{name}/{name}.jsonl").read_bytes() for name in texts]))
    assert seen[0] == seen[1] == seen[2]


def test_many_sessions_at_different_moments_do_not_multiply_what_is_kept(tmp_path: Path) -> None:
    """Each has a view of its own, of which each may keep 40 (MAX STATE): but what they see is the same, and is kept
    once, with those that wait for their time."""
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED]")
    found.queries["q"] = replace(found.queries["q"], most_state=40)
    sessions = [f"eve{number}" for number in range(10)]
    for number in range(10):
        found.subscribed(**dict.fromkeys(sessions[: number + 1], ("q", "nurse")))
        found.take("s", *rows(10))
        assert found.pipeline is not None
        assert found.pipeline._shared.graph.held <= 40 + 10
    assert [bool(ended(found, name, "q")) for name in sessions] == [True] * 6 + [False] * 4
