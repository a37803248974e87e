"""Attacks by users whose roles limit state and results (MAX STATE, MAX RESULTS). A limit ends the query at one certain
tuple, for all subscribers of its view and nobody else, however tuples are split into batches.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from worlds.harness import NOW, Bench, Row, stream

from headgate.model.limits import Limits
from headgate.plan.secure import Mode
from headgate.visibility.role_limits import HOLDS, WAITS, YIELDS

FEW = Limits(rows=10_000_000)
OTHER = "SELECT COUNT(*) AS n FROM s [ROWS 5]"
GREEDY = {
    "SELECT v.a FROM s [UNBOUNDED] v, s [UNBOUNDED] u": HOLDS,
    "SELECT v.a, u.a AS b FROM s [ROWS 90] v, s [RANGE 1 HOUR] u WHERE v.a <> u.a": HOLDS,
    "SELECT COUNT(*) AS n FROM s [UNBOUNDED]": HOLDS,
    "SELECT COUNT(*) AS n FROM s [PARTITIONED BY a ROWS 20]": HOLDS,
    "SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 MINUTE]": HOLDS,
    "SELECT RSTREAM a FROM s [ROWS 20]": YIELDS,
    "SELECT a FROM s": YIELDS,
    "SELECT a FROM s UNION ALL SELECT a FROM s [ROWS 20]": YIELDS,
}


def bench(home: Path, *, state: int | None = None, results: int | None = None, **queries: str) -> Bench:
    """The query `q` is limited, others are not."""
    found = Bench(home, stream("s", "a INT"), stream("t", "a INT"))
    for name, text in queries.items():
        found.query(name, text)
    limit(found, state, results)
    return found


def limited(home: Path, text: str, reason: str) -> Bench:
    return bench(
        home, state=40 if reason == HOLDS else None, results=30 if reason == YIELDS else None, q=text, other=OTHER
    )


def limit(found: Bench, state: int | None = None, results: int | None = None) -> None:
    found.queries["q"] = replace(found.queries["q"], most_state=state, most_results=results)
    found.now = replace(found.now, queries=tuple(found.queries.values()))


def rows(count: int, label: str = "TRUE") -> list[Row]:
    return [(label, n % 7) for n in range(count)]


def told(found: Bench, who: str, query: str = "q") -> tuple[list[Row], str]:
    """All results, and why they ended."""
    result_batches = found.mailbox.fetch(who, query, found.now)
    assert not any(x.ended for x in result_batches[:-1])
    values = [row for x in result_batches for row in zip(*(column.to_pylist() for column in x.values), strict=True)]
    return values, result_batches[-1].ended if result_batches else ""


def split(found: Bench, sizes: list[int]) -> None:
    """The same hundred tuples, a hundredth of a second apart, in batches of these sizes."""
    first = 0
    found.clock.advance(60)
    for size in sizes:
        moments = [NOW + dt.timedelta(milliseconds=10 * n) for n in range(first, first + size)]
        found.take("s", *[("nurse" if n % 2 else "TRUE", n % 7) for n in range(first, first + size)], times=moments)
        first += size
    found.end()


@pytest.mark.parametrize("text", GREEDY)
def test_a_greedy_query_ends_at_the_same_tuple_however_tuples_are_split_and_others_go_on(
    text: str, tmp_path: Path
) -> None:
    seen = []
    for number, sizes in enumerate(([100], [1] * 100, [7, 30, 50, 13])):
        found = limited(tmp_path / str(number), text, GREEDY[text])
        found.subscribed(eve=("q", "nurse"), dora=("other", "nurse"), amy=("other", ""))
        split(found, sizes)
        values, ended = told(found, "eve")
        seen.append((sorted(values) if "UNION" in text else values, ended))  # of blocks of both kinds there is no order
        assert told(found, "dora", "other") == ([(min(n + 1, 5),) for n in range(100)], "")
        assert len(told(found, "amy", "other")[0]) == 50
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][1] == GREEDY[text]


@pytest.mark.parametrize("text", GREEDY)
def test_without_limits_the_same_query_emits_more(text: str, tmp_path: Path) -> None:
    yielded = []
    for reason in (GREEDY[text], ""):
        found = limited(tmp_path / str(len(reason)), text, reason)
        found.subscribed(eve=("q", "nurse"))
        split(found, [100])
        yielded.append(told(found, "eve"))
    assert len(yielded[0][0]) < len(yielded[1][0]) and yielded[1][1] == ""


@pytest.mark.parametrize("state", [None, 100])
def test_a_limit_is_checked_before_the_join(state: int | None, tmp_path: Path) -> None:
    """Of 5,000 tuples in one batch, with which the limit of all views would be exceeded."""
    found = bench(tmp_path, state=state, q="SELECT v.a FROM s [UNBOUNDED] v, s [UNBOUNDED] u", other=OTHER)
    found.limits = FEW
    found.subscribed(eve=("q", ""), dora=("other", ""))
    found.take("s", *rows(5000))
    found.end()
    values, ended = told(found, "eve")
    assert (len(values), ended) == ((2500, HOLDS) if state else (0, FEW.exceeded("rows")))
    assert len(told(found, "dora", "other")[0]) == 5000


@pytest.mark.parametrize("hidden", [0, 500])
def test_hidden_tuples_count_for_no_limit(hidden: int, tmp_path: Path) -> None:
    found = bench(tmp_path, state=30, results=30, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED]")
    found.subscribed(eve=("q", "nurse"), dora=("q", "nurse,doctor"))
    found.take("s", *rows(10, "nurse"), *rows(hidden, "doctor"), *rows(20, "nurse"))
    found.end()
    assert told(found, "eve") == ([(n + 1,) for n in range(30)], "")
    assert told(found, "dora")[1] == (HOLDS if hidden else "")


def test_tuples_that_wait_for_different_blocks_are_state_together(tmp_path: Path) -> None:
    text = "SELECT s.a FROM s [NOW], t [NOW] UNION ALL SELECT u.a FROM u [NOW], t [NOW]"
    found = Bench(tmp_path, stream("s", "a INT"), stream("t", "a INT"), stream("u", "a INT"))
    found.query("q", text)
    limit(found, state=8)
    found.subscribed(eve=("q", ""))
    found.take("s", *rows(4))
    found.take("u", *rows(4))
    assert told(found, "eve") == ([], "")
    found.take("u", *rows(1))
    assert told(found, "eve") == ([], WAITS)


def test_tuples_that_wait_for_a_stream_that_never_comes_are_state(tmp_path: Path) -> None:
    found = bench(tmp_path, state=50, q="SELECT s.a FROM s [NOW], t [NOW]", other="SELECT a FROM s")
    found.subscribed(eve=("q", ""), dora=("other", ""))
    found.take("s", *rows(50))
    assert told(found, "eve") == ([], "")
    found.take("s", *rows(30))
    assert told(found, "eve") == ([], WAITS)
    found.take("s", *rows(1))
    assert found.pipeline._shared.graph.held == 0  # type: ignore[union-attr]
    assert len(told(found, "dora", "other")[0]) == 81


def test_a_limit_that_is_lowered_counts_from_the_next_tuple_on(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED]")
    found.subscribed(eve=("q", ""))
    found.take("s", *rows(20))
    found.take("s", *rows(1))
    assert len(told(found, "eve")[0]) == 20
    limit(found, state=10)
    found.take("t", *rows(5))
    found.take("s", ("doctor", 1))
    assert told(found, "eve") == ([], "")  # nothing came that it sees
    found.take("s", *rows(2))
    assert told(found, "eve") == ([], HOLDS)
    limit(found, state=1000)
    found.take("s", *rows(2))
    assert told(found, "eve") == ([], "")  # it has ended: subscribing again begins anew


def test_a_new_subscription_begins_anew_even_if_others_share_the_query_that_ended(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT a FROM s")
    found.query("q", "SELECT COUNT(*) AS n FROM s [UNBOUNDED]", mode=Mode.CUMULATIVE)
    limit(found, state=10)
    found.subscribed(eve=("q", ""), amy=("q", ""))
    found.take("s", *rows(20))
    found.take("s", *rows(1))
    assert told(found, "eve")[1] == told(found, "amy")[1] == HOLDS
    found.subscribed(amy=("q", ""))
    found.take("s", *rows(1))
    found.subscribed(eve=("q", ""), amy=("q", ""))
    found.take("s", *rows(3))
    found.end()
    assert told(found, "eve") == ([(1,), (2,), (3,)], "")
    assert told(found, "amy") == ([], "")


def test_a_reader_of_results_gets_a_notice_when_their_producer_ends_and_keeps_earlier_results(tmp_path: Path) -> None:
    found = bench(tmp_path, results=15, q="SELECT a FROM s", over="SELECT a FROM out.q", free="SELECT a FROM s")
    found.subscribed(eve=("over", ""), dora=("free", ""))
    found.take("s", *rows(20))
    assert told(found, "eve", "over") == ([(n % 7,) for n in range(15)], YIELDS)
    assert len(told(found, "dora", "free")[0]) == 20


def test_a_second_of_a_limit_is_event_time_and_never_goes_back(tmp_path: Path) -> None:
    """A late tuple counts with those among which it comes: old times are no way around the limit."""
    found = bench(tmp_path, results=3, q="SELECT a FROM s")
    found.subscribed(eve=("q", ""))
    for seconds in range(5):
        found.take("s", *rows(3), times=[NOW + dt.timedelta(seconds=seconds)] * 3)
    assert len(told(found, "eve")[0]) == 15
    found.take("s", *rows(3), times=[NOW + dt.timedelta(seconds=x) for x in (5, 1, 2)])
    found.take("s", *rows(1), times=[NOW])
    assert told(found, "eve") == ([(0,), (1,), (2,)], YIELDS)


def test_counts_outlive_a_restart(tmp_path: Path) -> None:
    found = bench(tmp_path, results=5, q="SELECT a FROM s")
    found.subscribed(eve=("q", ""))
    found.take("s", *rows(4), times=[NOW] * 4)
    assert len(told(found, "eve")[0]) == 4
    found.pipeline.close()  # type: ignore[union-attr]
    found.begin()
    found.take("s", *rows(4), times=[NOW] * 4)
    assert told(found, "eve") == ([(0,)], YIELDS)
