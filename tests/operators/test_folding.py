"""UNBOUNDED windows keep what their groups need, not all that ever came: compared with DuckDB over the tuples that a
reader may see, and counted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from worlds.harness import NOW, Bench, stream

from headgate.labels import Label, parse_label
from headgate.operators import view_group
from headgate.operators.partition import Partition

LABELS = ("A", "B", "C")
QUERIES = {
    "sums": "SELECT k, COUNT(*) AS n, SUM(b) AS b, AVG(x) AS x, STDDEV(x) AS d FROM s [UNBOUNDED] GROUP BY k",
    "extremes": "SELECT k, MIN(x) AS least, MAX(w) AS most FROM s [UNBOUNDED] WHERE w <> 'w3' GROUP BY k",
    "values": "SELECT COUNT(DISTINCT w) AS n, SUM(DISTINCT k) AS k FROM s [UNBOUNDED]",
}
MEANINGS = {
    "sums": "SELECT k, count(*), sum(b)::BIGINT, avg(x), stddev_samp(x) FROM seen GROUP BY k",
    "extremes": "SELECT k, min(x), max(w) FROM seen WHERE w <> 'w3' GROUP BY k",
    "values": "SELECT count(DISTINCT w), sum(DISTINCT k)::BIGINT FROM seen",
}


class Flow(Bench):
    """Tuples a millisecond apart, with one of three labels."""

    def __init__(self, home: Path, queries: dict[str, str], labels: dict[str, Label] | None = None) -> None:
        super().__init__(home, stream("s", "k INT, b BIGINT, x DOUBLE, w STRING", labels))
        for name, text in queries.items():
            self.query(name, text)
        self.came = list[pa.Table]()
        self._random = np.random.default_rng(7)
        self._count = self._batches = 0

    def read(self, **readers: str) -> None:
        """These readers have these roles from now on."""
        self.subscribed(**{f"{x} {y}": (y, roles) for x, roles in readers.items() for y in self.queries})

    def arrive(self, count: int, groups: int = 10) -> None:
        numbers, random = np.arange(self._count, self._count + count), self._random
        start = int(NOW.timestamp() * 1000) - 100_000_000
        columns = {
            "k": pa.array(random.integers(0, groups, count).astype(np.int32)),
            "b": pa.array(random.integers(-(2**40), 2**40, count), mask=random.random(count) < 0.1),
            "x": pa.array(random.integers(-1000, 1000, count) / 8, mask=random.random(count) < 0.1),
            "w": pa.array([f"w{n}" for n in random.integers(0, 6, count)]),
            "at": pa.array(start + numbers, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
            "policy": pa.array([LABELS[n] for n in random.integers(0, len(LABELS), count)]),
        }
        (self.pipeline or self.begin()).take("s", self._batches, pa.table(columns))
        self._batches += 1
        self.came.append(pa.table(columns))
        self._count += count

    def restart(self) -> None:
        assert self.pipeline is not None
        self.pipeline.close()
        self.begin()

    def last(self, reader: str, query: str) -> list[tuple[object, ...]]:
        """The last result for each group."""
        rows = self.fetched(f"{reader} {query}", query)
        return rounded({None if query == "values" else row[0]: row for row in rows}.values())

    @property
    def kept(self) -> int:
        """How many tuples are in memory."""
        partition = self.pipeline._shared.graph._processors._processors[0]._executor._partition  # type: ignore[union-attr]
        assert isinstance(partition, Partition)
        return len(partition._store)


def rounded(rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """In one order; DuckDB rounds doubles more than once."""
    return sorted((tuple(float(f"{x:.12g}") if isinstance(x, float) else x for x in row) for row in rows), key=str)


def meaning(query: str, *parts: tuple[pa.Table, str]) -> list[tuple[object, ...]]:
    """What DuckDB says about tuples with these labels of these tables."""
    with duckdb.connect() as connection:
        seen = pa.concat_tables(
            x.filter(pa.array([y in labels for y in x["policy"].to_pylist()])) for x, labels in parts
        )
        connection.register("seen", seen)
        return rounded(connection.sql(MEANINGS[query]).fetchall())


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_group, "FEW_UNFOLDED", 50)


@pytest.mark.usefixtures("often", "no_waiting_for_disks")
@pytest.mark.parametrize("restarts", [False, True])
def test_readers_receive_what_duckdb_says_as_rights_come_and_go(tmp_path: Path, restarts: bool) -> None:
    flow = Flow(tmp_path, QUERIES)
    flow.read(ann="A,B", bob="A,B,C", eve="B")
    for _ in range(6):
        flow.arrive(100)
    flow.read(ann="A", bob="A,B,C", eve="B,C")  # ann loses a right, eve gains one
    for number in range(6):
        if restarts and number % 2:
            flow.restart()
        flow.arrive(100)
    flow.end()
    early, late = pa.concat_tables(flow.came[:6]), pa.concat_tables(flow.came[6:])
    for query in QUERIES:
        assert flow.last("ann", query) == meaning(query, (early, "A"), (late, "A"))
        assert flow.last("bob", query) == meaning(query, (early, "ABC"), (late, "ABC"))
        assert flow.last("eve", query) == meaning(query, (early, "B"), (late, "BC"))


@pytest.mark.usefixtures("often", "no_waiting_for_disks")
def test_what_is_kept_follows_the_groups(tmp_path: Path) -> None:
    flow = Flow(tmp_path, QUERIES)
    flow.read(ann="A,B,C")
    for _ in range(10):
        flow.arrive(200)
    few = flow.kept
    for _ in range(30):
        flow.arrive(200)
    assert flow.kept < 2 * few < 3000
    assert flow.pipeline is not None and flow.pipeline.held >= 8000 - few, "held are all that count"


@pytest.mark.usefixtures("often", "no_waiting_for_disks")
@pytest.mark.parametrize(
    "query",
    {
        "rows": "SELECT RSTREAM k FROM s [UNBOUNDED]",
        "join": "SELECT s.k FROM s [UNBOUNDED] s, s [ROWS 1] t WHERE s.k = t.k",
        "beside a join": "SELECT COUNT(*) AS n FROM s [UNBOUNDED] s, s [ROWS 1] t WHERE s.k = t.k",
    }.values(),
)
def test_tuples_are_kept_where_each_may_be_needed(tmp_path: Path, query: str) -> None:
    flow = Flow(tmp_path, {"q": query})
    flow.read(ann="A,B,C")
    for _ in range(5):
        flow.arrive(100)
    assert flow.kept >= 499


@pytest.mark.usefixtures("often", "no_waiting_for_disks")
def test_tuples_are_kept_where_a_column_may_become_hidden(tmp_path: Path) -> None:
    flow = Flow(tmp_path, {"q": "SELECT SUM(b) AS b FROM s [UNBOUNDED]"}, {"b": parse_label("A")})
    flow.read(ann="A,B,C")
    for _ in range(5):
        flow.arrive(100)
    assert flow.kept >= 499
    other = Flow(tmp_path / "other", {"q": "SELECT SUM(k) AS k FROM s [UNBOUNDED]"}, {"b": parse_label("A")})
    other.read(ann="A,B,C")
    for _ in range(5):
        other.arrive(100)
    assert other.kept < 250


@pytest.mark.long
def test_a_million_tuples_take_what_a_hundred_thousand_take(tmp_path: Path) -> None:
    def memory() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def state() -> int:
        return sum(file.stat().st_size for file in (tmp_path / "state").rglob("*") if file.is_file())

    flow = Flow(tmp_path, QUERIES)
    flow.read(ann="A,B,C")
    found = []
    for batches in (10, 90):
        for _ in range(batches):
            flow.arrive(10_000, groups=1000)
            for name in QUERIES:
                flow.fetched(f"ann {name}", name)
            flow.came.clear()
        found.append((memory(), state(), flow.kept))
    print(found)
    (memory_before, state_before, _), (memory_after, state_after, kept) = found
    assert memory_after - memory_before < 32 << 20 and state_after < 2 * state_before and kept < 120_000
