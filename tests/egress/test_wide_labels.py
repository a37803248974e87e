"""Results that combine many policies. Every reader receives what the plain query gives over the tuples they may see.

What they are to receive is computed by DuckDB over a filter in plain Python; nothing of our label code is used for it.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from worlds.harness import NOW, RULES, Bench, Row, stream

from headgate.labels import Clearance, Level, Rules, Semantics
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.plan.secure import Mode

Permits = Callable[[int], bool]


class Hospital:
    """Vital signs of so many wards, each ward with a policy of its own: its staff, its owner, or any doctor."""

    def __init__(self, wards: int, tuples: int, seed: int) -> None:
        rng = random.Random(seed)
        self.rows = [(n, rng.randrange(wards), rng.randrange(40, 180)) for n in range(tuples)]
        self.readers: dict[str, tuple[str, Permits]] = {
            "doctor": ("doctor", lambda _: True),
            "staff": ("ward3", lambda ward: ward == 3),
            "owner": (",".join(f"owner{x}" for x in range(wards)), lambda _: True),
            "some": (",".join(f"ward{x}" for x in range(0, wards, 2)), lambda ward: ward % 2 == 0),
            "nobody": ("", lambda _: False),
        }

    def arrive(self, bench: Bench, name: str = "hr", *, files: int) -> None:
        size = -(-len(self.rows) // files)
        for begin in range(0, len(self.rows), size):
            part = self.rows[begin : begin + size]
            rows: list[Row] = [
                (f"doctor | ward{ward} | (owner{ward} & owner{ward})", ward, rate) for _, ward, rate in part
            ]
            bench.take(name, *rows, times=[NOW + dt.timedelta(seconds=n) for n, _, _ in part])

    def expected(self, sql: str, permits: Permits) -> list[Row]:
        """`sql` over the tuples that the reader may see, as the table `hr`."""
        seen = [(n, ward, rate) for n, ward, rate in self.rows if permits(ward)]
        columns = list(zip(*seen, strict=True)) or [(), (), ()]
        hr = pa.table({x: pa.array(y, pa.int64()) for x, y in zip(("n", "ward", "rate"), columns, strict=True)})
        with duckdb.connect() as connection:
            connection.register("hr", hr)
            return connection.execute(sql).fetchall()


INSTANTS = "range(0, 99000, 600)"
QUERIES = {
    "range": (
        "SELECT AVG(rate) AS mean FROM hr [RANGE 1 MINUTE]",
        "SELECT avg(rate) OVER (ORDER BY n RANGE BETWEEN 60 PRECEDING AND CURRENT ROW) FROM hr ORDER BY n",
    ),
    "rows": (
        "SELECT COUNT(*) AS k, MAX(rate) AS top FROM hr [ROWS 200]",
        "SELECT count(*) OVER w, max(rate) OVER w FROM hr WINDOW w AS (ORDER BY n ROWS 199 PRECEDING) ORDER BY n",
    ),
    "unbounded": (
        "SELECT SUM(rate) AS total FROM hr [UNBOUNDED]",
        "SELECT sum(rate) OVER (ORDER BY n) FROM hr ORDER BY n",
    ),
    "slide": (
        "SELECT COUNT(*) AS k, SUM(rate) AS total FROM hr [RANGE 200 MINUTES SLIDE 10 MINUTES]",
        f"SELECT count(*), sum(rate) FROM hr, {INSTANTS} t(x) WHERE n <= x AND n > x - 12000 GROUP BY x ORDER BY x",
    ),
    "distinct": (
        "SELECT DISTINCT rate FROM hr [UNBOUNDED]",
        "SELECT rate FROM hr GROUP BY rate ORDER BY min(n)",
    ),
}


def hospital(home: Path, wards: int, tuples: int, *names: str) -> tuple[Bench, Hospital]:
    bench, made = Bench(home, stream("hr", "ward INT, rate INT"), skew=None), Hospital(wards, tuples, wards)
    for name in names:
        bench.query(name, QUERIES[name][0])
    bench.subscribed(**{f"{who}_{name}": (name, roles) for who, (roles, _) in made.readers.items() for name in names})
    return bench, made


@pytest.mark.parametrize("files", [1, 7])
@pytest.mark.parametrize("wards", [10, 100, 1_000])
def test_everyone_receives_what_the_query_gives_over_the_tuples_they_may_see(
    tmp_path: Path, wards: int, files: int
) -> None:
    names = ("range", "rows", "unbounded", "distinct")
    bench, made = hospital(tmp_path, wards, 300, *names)
    made.arrive(bench, files=files)
    bench.end()
    for who, (_, permits) in made.readers.items():
        for name in names:
            found = bench.fetched(f"{who}_{name}", name)
            assert found == made.expected(QUERIES[name][1], permits), (who, name)


@pytest.mark.parametrize("wards", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_policies_in_one_window(tmp_path: Path, wards: int) -> None:
    bench, made = hospital(tmp_path, wards, wards * 6 // 5, "slide")
    made.arrive(bench, files=20)
    bench.end()
    for who, (_, permits) in made.readers.items():
        assert bench.fetched(f"{who}_slide", "slide") == made.expected(QUERIES["slide"][1], permits), who


@pytest.mark.parametrize("mode", Mode)
def test_a_query_over_the_average_of_many_wards_reaches_every_receiver_of_the_average(
    tmp_path: Path, mode: Mode
) -> None:
    bench, made = Bench(tmp_path, stream("hr", "ward INT, rate INT"), skew=None), Hospital(100, 300, 1)
    bench.query("mean", "SELECT AVG(rate) AS mean FROM hr [ROWS 50]", mode=mode)
    bench.query("high", "SELECT mean FROM out.mean WHERE mean > 100", mode=mode)
    bench.query("top", "SELECT MAX(mean) AS top FROM out.high [UNBOUNDED]", mode=mode)
    bench.subscribed(dora=("high", "doctor"), tom=("top", "doctor"), eve=("high", "ward3"))
    made.arrive(bench, files=9)
    bench.end()
    mean = "SELECT avg(rate) OVER (ORDER BY n ROWS 49 PRECEDING) AS mean, n FROM hr"
    high = made.expected(f"SELECT mean FROM ({mean}) WHERE mean > 100 ORDER BY n", lambda _: True)
    assert high and bench.fetched("dora", "high") == high
    assert len(bench.fetched("tom", "top")) == len(high)
    if mode == Mode.CUMULATIVE:
        assert bench.fetched("eve", "high") == []  # each of these averages holds tuples of other wards


def test_a_join_of_many_wards_reaches_every_reader_of_both_sides(tmp_path: Path) -> None:
    bench = Bench(tmp_path, stream("hr", "ward INT, rate INT"), stream("bp", "ward INT, rate INT"), skew=None)
    made = Hospital(50, 200, 2)
    bench.query("both", "SELECT COUNT(*) AS k FROM hr [ROWS 30] a, bp [ROWS 30] b WHERE a.ward = b.ward")
    bench.subscribed(dora=("both", "doctor"), eve=("both", "ward3"))
    made.arrive(bench, "hr", files=1)
    made.arrive(bench, "bp", files=1)
    bench.end()
    seen = bench.fetched("dora", "both")
    assert len(seen) > 200 and max(seen) > (20,)
    own = [ward for _, ward, _ in made.rows].count(3)
    assert bench.fetched("eve", "both")[-1] == (own**2,)


def test_results_of_many_policies_survive_a_crash_and_go_to_files_in_both_formats(tmp_path: Path) -> None:
    bench, made = hospital(tmp_path, 100, 100, "range")
    bench.begin(bench.files())
    made.arrive(bench, files=1)
    pipeline = bench.pipeline
    assert pipeline is not None
    pipeline.close()
    bench.pipeline = None
    bench.begin(bench.files())
    bench.end()
    lines = (tmp_path / "out" / "doctor_range" / "range.jsonl").read_text().splitlines()
    assert len(lines) == 100
    assert "policies)" in lines[-1]  # the label is shortened for people


# What may be received of a query may be filtered, joined and projected ----------------------------------------------


def aggregates_only(home: Path) -> Bench:
    bench = Bench(home, stream("s", "k INT, v INT"), skew=None)
    bench.query("sums", "SELECT k, SUM(v) AS s FROM s [UNBOUNDED] GROUP BY k")
    bench.query("high", "SELECT k, s FROM out.sums WHERE s > 5")
    bench.query("kinds", "SELECT DISTINCT k FROM out.sums [ROWS 3]")
    bench.query("top", "SELECT MAX(s) AS top FROM out.sums [ROWS 3]")
    bench.query("raw", "SELECT k, v FROM s")
    bench.query("pairs", "SELECT o.s AS s, r.v AS v FROM out.sums [ROWS 3] o, s [ROWS 3] r WHERE o.k = r.k")
    reads = Clearance(frozenset(), Level("U"), frozenset({"out.sums"}), frozenset({"s"}))
    rules = Rules(RULES.order, {"s": Semantics.AGGREGATE})
    everyone = tuple(Subscriber(f"amy_{name}", name, reads) for name in bench.queries)
    bench.now = CatalogSnapshot(rules, bench.descriptors, tuple(bench.queries.values()), everyone)
    return bench


def test_a_filter_over_an_aggregate_reaches_every_reader_of_the_aggregate(tmp_path: Path) -> None:
    bench = aggregates_only(tmp_path)
    bench.take("s", *(("TRUE", n % 2, n) for n in range(8)))
    bench.end()
    sums = bench.fetched("amy_sums", "sums")
    assert len(sums) == 8
    assert bench.fetched("amy_high", "high") == [row for row in sums if row[1] > 5]  # type: ignore[operator]
    assert set(bench.fetched("amy_kinds", "kinds")) == {(0,), (1,)}
    assert len(bench.fetched("amy_top", "top")) == 8
    assert bench.fetched("amy_raw", "raw") == []  # the tuples themselves stay hidden, also beside their aggregates
    assert bench.fetched("amy_pairs", "pairs") == []


def test_losing_aggregate_read_loses_what_was_filtered_from_the_aggregate(tmp_path: Path) -> None:
    bench = aggregates_only(tmp_path)
    bench.take("s", *(("TRUE", n % 2, n) for n in range(8)))
    bench.end()
    lost = Clearance(frozenset(), Level("U"), frozenset({"out.sums"}))
    subscribers = tuple(Subscriber(x.name, x.query, lost) for x in bench.now.subscribers)
    bench.now = CatalogSnapshot(bench.now.rules, bench.descriptors, tuple(bench.queries.values()), subscribers)
    assert bench.fetched("amy_high", "high") == bench.fetched("amy_kinds", "kinds") == []


def weak(home: Path, readable: str, mode: Mode) -> Bench:
    bench = Bench(home, stream("m", "k INT"), stream("w", "k INT"), skew=None)
    bench.query("joined", "SELECT m.k AS k FROM m [ROWS 5], w [ROWS 5] WHERE m.k = w.k", mode=mode)
    bench.query("alone", "SELECT k FROM w", mode=mode)
    reads = Clearance(frozenset(), Level("U"), frozenset({readable}))
    rules = Rules(RULES.order, {"w": Semantics.WEAK})
    subscribers = (Subscriber("amy", "joined", reads), Subscriber("eve", "alone", reads))
    bench.now = CatalogSnapshot(rules, bench.descriptors, tuple(bench.queries.values()), subscribers)
    bench.take("m", ("TRUE", 1), ("TRUE", 2))
    bench.take("w", ("TRUE", 2), ("TRUE", 3))
    bench.end()
    return bench


@pytest.mark.parametrize("mode", Mode)
def test_a_join_with_a_weak_stream_reaches_every_reader_of_the_other_stream(tmp_path: Path, mode: Mode) -> None:
    """Paper 000, 3.2: the OR of its table."""
    bench = weak(tmp_path, "m", mode)
    assert bench.fetched("amy", "joined") == [(2,)]
    assert bench.fetched("eve", "alone") == []


@pytest.mark.parametrize("mode", Mode)
def test_a_weak_stream_opens_no_strong_one(tmp_path: Path, mode: Mode) -> None:
    assert weak(tmp_path, "w", mode).fetched("amy", "joined") == []


# Labels of any form -------------------------------------------------------------------------------------------------

ROLES = [f"r{n}" for n in range(12)]


def _expression(rng: random.Random) -> list[set[str]]:
    return [set(rng.sample(ROLES, rng.randint(1, 3))) for _ in range(rng.randint(1, 4))]


@pytest.mark.parametrize("seed", range(4))
def test_windows_of_random_labels_give_each_reader_the_query_over_what_they_may_see(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(tmp_path, stream("hr", "ward INT, rate INT"), skew=None)
    readers = {f"p{n}": set(rng.sample(ROLES, rng.randint(2, 12))) for n in range(5)}
    for name in ("range", "rows", "distinct"):
        bench.query(name, QUERIES[name][0])
    bench.subscribed(
        **{f"{who}_{name}": (name, ",".join(roles)) for who, roles in readers.items() for name in bench.queries}
    )
    made, labels = Hospital(1_000, 400, seed), [_expression(rng) for _ in range(1_000)]
    for begin in range(0, 400, 57):
        part = made.rows[begin : begin + 57]
        rows: list[Row] = [
            (" | ".join(f"({' & '.join(term)})" for term in labels[ward]), ward, rate) for _, ward, rate in part
        ]
        bench.take("hr", *rows, times=[NOW + dt.timedelta(seconds=n) for n, _, _ in part])
    bench.end()
    for who, roles in readers.items():
        for name in bench.queries:
            expected = made.expected(QUERIES[name][1], lambda ward: any(term <= roles for term in labels[ward]))  # noqa: B023
            assert bench.fetched(f"{who}_{name}", name) == expected, (who, name)
