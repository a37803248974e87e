"""Attacks by queries that need too much: each ends for its own subscribers and for no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from worlds.attacked import COLUMNS, begin, bench, small
from worlds.harness import Bench, stream

from headgate.expressions import limits

ROWS = (
    "it has more than 1,000 rows at once; use smaller windows or stricter joins, or have the setting view_rows raised"
)
HELD = "its windows hold more than 100 tuples; use smaller windows, or have the setting view_tuples raised"
LONG = "a text of it may have more than 1,000 bytes; make shorter texts, or have the setting text_bytes raised"
WAIT = (
    "more than 100 tuples wait for their time; declare a DELAY for its streams, or have the setting view_tuples raised"
)
GREEDY = {
    "SELECT v.a FROM s [UNBOUNDED] v, s [UNBOUNDED] u": ROWS,
    "SELECT v.a FROM s [ROWS 90] v, s [RANGE 1 SECOND] u WHERE v.w = u.w": ROWS,
    "SELECT RSTREAM a FROM s [ROWS 90]": ROWS,
    "SELECT COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 1 MILLISECOND]": ROWS,
    "SELECT COUNT(*) AS n FROM s [UNBOUNDED]": HELD,
    f"SELECT CONCAT({', '.join(['w'] * 199)}, {', '.join(['w'] * 199)}) AS x FROM s": LONG,
    f"SELECT LENGTH(CONCAT({', '.join(['w'] * 350)})) AS x FROM s": LONG,
    f"SELECT a FROM s [ROWS 3] WHERE CONCAT({', '.join(['w'] * 350)}) = 'x'": LONG,
}


MODEST = {
    "SELECT RSTREAM DISTINCT w FROM s [ROWS 90]": 124,
    "SELECT RSTREAM COUNT(*) AS n FROM s [ROWS 90] GROUP BY w": 124,
    "SELECT COUNT(DISTINCT a) AS n FROM s [ROWS 90]": 124,
    "SELECT MAX(a) AS n FROM s [RANGE 80 MILLISECONDS]": 124,
}


@pytest.mark.parametrize("text", MODEST)
def test_windows_cost_what_enters_and_leaves_not_what_they_hold(text: str, tmp_path: Path) -> None:
    """Each looked at too many rows when every tuple was copied to each instant that sees it."""
    found = bench(tmp_path, modest=text)
    found.subscribed(eve=("modest", "nurse"))
    begin(found)
    for _ in range(4):
        found.take("s", *[("TRUE", n, "abc") for n in range(31)])
    found.end()
    batches = found.mailbox.fetch("eve", "modest", found.now)
    assert not any(x.ended for x in batches) and sum(map(len, batches)) == MODEST[text]


@pytest.mark.parametrize("text", GREEDY)
def test_a_query_that_exceeds_a_limit_ends_for_its_own_subscribers_alone(text: str, tmp_path: Path) -> None:
    found = bench(tmp_path, greedy=text, other="SELECT COUNT(*) AS n FROM s [ROWS 5]")
    found.subscribed(eve=("greedy", "nurse"), amy=("greedy", ""), dora=("other", "nurse"))
    begin(found)
    for _ in range(4):
        found.take("s", *small(30, "nurse"), ("TRUE", 7, "abc"))
    found.end()
    result_batches = found.mailbox.fetch("eve", "greedy", found.now)
    assert [result_batch.ended for result_batch in result_batches if result_batch.ended] == [GREEDY[text]]
    assert result_batches[-1].ended  # nothing comes afterwards
    ends = [json.loads(line).get("ended") for line in (tmp_path / "out/eve/greedy.jsonl").read_text().splitlines()]
    assert ends[-1] == GREEDY[text] and not any(ends[:-1])
    assert len(found.fetched("dora", "other")) == 124
    if "MILLISECOND" not in text and "CONCAT" not in text:  # amy sees four tuples, of which the same query is modest
        assert [
            result_batch.ended for result_batch in found.mailbox.fetch("amy", "greedy", found.now) if result_batch.ended
        ] == []


def test_without_limits_a_join_of_everything_has_all_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("few_rows",):
        for module in ("join", "block_rows", "grouping", "blocks"):
            monkeypatch.setattr(f"headgate.operators.{module}.{name}", lambda _: None)
    found = bench(tmp_path, greedy="SELECT v.a FROM s [ROWS 90] v, s [ROWS 90] u")
    found.subscribed(eve=("greedy", ""))
    begin(found)
    found.take("s", *small(90))
    found.end()
    assert len(found.fetched("eve", "greedy")) == 8100


@pytest.mark.parametrize("hidden", [0, 2000])
def test_hidden_tuples_bring_nobody_nearer_to_a_limit(hidden: int, tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT v.a FROM s [UNBOUNDED] v, s [UNBOUNDED] u", all="SELECT a FROM s")
    found.subscribed(eve=("q", "nurse"), dora=("all", "doctor"))
    begin(found)
    found.take("s", *small(30, "nurse"), *small(hidden, "doctor"))
    found.end()
    result_batches = found.mailbox.fetch("eve", "q", found.now)
    assert sum(map(len, result_batches)) == 900 and not any(x.ended for x in result_batches)


def test_tuples_that_wait_for_a_stream_that_never_comes_do_not_pile_up(tmp_path: Path) -> None:
    found = Bench(tmp_path, stream("s", COLUMNS), stream("t", COLUMNS))
    found.query("q", "SELECT s.a FROM s [NOW], t [NOW] WHERE s.a = t.a")
    found.subscribed(eve=("q", ""))
    begin(found)
    for _ in range(6):
        found.take("s", *small(30))
    assert [x.ended for x in found.mailbox.fetch("eve", "q", found.now)] == [WAIT]
    found.take("s", *small(1))
    assert found.pipeline._shared.graph.held == 0  # type: ignore[union-attr]


def test_texts_do_not_double_from_query_to_query(tmp_path: Path) -> None:
    """Each stage makes its texts some hundred times longer: a reader of the last is told, one of the first goes on."""
    found = bench(tmp_path, q0=f"SELECT CONCAT({', '.join(['w'] * 190)}) AS w FROM s")
    for number in (1, 2):
        found.query(f"q{number}", f"SELECT CONCAT({', '.join(['w'] * 190)}) AS w FROM out.q{number - 1}")
    found.subscribed(eve=("q2", ""), dora=("q0", ""))
    begin(found)
    for _ in range(2):
        found.take("s", ("TRUE", 1, "abc"))
    result_batches = found.mailbox.fetch("eve", "q2", found.now)
    assert [x.ended for x in result_batches] == [LONG]
    assert len(found.fetched("dora", "q0")) == 2


def test_a_query_that_ended_stays_ended_after_a_restart_and_can_be_subscribed_to_anew(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED]")
    found.subscribed(eve=("q", ""))
    begin(found)
    for _ in range(5):
        found.take("s", *small(30))
    assert found.mailbox.fetch("eve", "q", found.now)[-1].ended
    found.pipeline.close()  # type: ignore[union-attr]
    begin(found)
    found.take("s", *small(5))
    found.take("s", *small(5))
    assert found.mailbox.fetch("eve", "q", found.now) == []
    found.subscribed()
    found.take("s", *small(1))
    found.subscribed(eve=("q", ""))
    found.take("s", *small(5))
    found.take("s", *small(1))
    assert found.fetched("eve", "q") == [(n,) for n in range(1, 6)]


def test_an_error_of_duckdb_ends_one_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(_: object) -> None:
        raise MemoryError("secret")

    found = bench(tmp_path, q="SELECT RSTREAM a FROM s [ROWS 9]", other="SELECT a FROM s")
    found.subscribed(eve=("q", ""), dora=("other", ""))
    monkeypatch.setattr("headgate.operators.blocks.few_rows", no_memory)
    begin(found)
    found.take("s", *small(3))
    found.end()
    assert [x.ended for x in found.mailbox.fetch("eve", "q", found.now)] == [limits.CANNOT]
    assert len(found.fetched("dora", "other")) == 3
