"""Recursion over much data, on Spark: a million routes, and reachability over a million links.

Beside scipy's compiled shortest paths and a recursive query in DuckDB, each with one thread on the same links; the
answers are compared. Souffle is not among the packages of Debian 12; DuckDB's recursion is semi-naive as well.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.bench.harness import Progress, Report, environment
from headgate.bench.harness import Row as BenchRow
from headgate.ingress.spark import spark_session
from headgate.ingress.spark_settings import SparkSettings
from headgate.sendlog.data import SparkData
from headgate.sendlog.values import Row

BEST = """
best(X,Y,min<C,H>) :- dest(Y), w(X,Y,C), H = Y.
best(X,Y,min<C,H>) :- best(Z,Y,B,_), w(X,Z,A), X != Y, C = A + B, H = Z.
"""
REACH = """
reach(X,Y) :- src(X), link(X,Y).
reach(X,Y) :- reach(X,Z), link(Z,Y).
"""
QUICK = ([(100, 100), (1000, 10)], (2000, 20_000, 10))
FULL = ([(1000, 1000), (10_000, 100)], (20_000, 1_000_000, 100))
Links = list[tuple[int, int, int]]


@dataclass(frozen=True)
class Scaled:
    """Seconds of wall time; `rows` are the routes, or the pairs that are reachable."""

    what: str
    rows: int
    seconds: float
    beside: str
    beside_seconds: float


def run(quick: bool, progress: Progress) -> Report:
    progress.expect(1)
    progress.step("on Spark")
    rows: list[BenchRow] = [
        {
            "experiment": one.what,
            "rows": one.rows,
            "Spark s": one.seconds,
            "rows per s": one.rows / one.seconds,
            "beside": one.beside,
            "beside s": one.beside_seconds,
            "ratio": one.seconds / one.beside_seconds,
        }
        for one in measure(*(QUICK if quick else FULL))
    ]
    notes = [
        "Wall time, from facts in the driver to counts from the tasks. Spark: two tasks; the others: one thread.",
        "Routes and the sum of their costs are scipy's; pairs and the sum of their nodes are DuckDB's.",
    ]
    return Report("SeNDlog: recursion on Spark", rows, (), notes, environment("pyspark", "scipy", "duckdb"))


def links(nodes: int, count: int, seed: int = 5) -> Links:
    """A ring, for connection, and random links; no link twice."""
    random = Random(seed)
    found = {(i, (i + 1) % nodes) for i in range(nodes)}
    while len(found) < count:
        i, j = random.randrange(nodes), random.randrange(nodes)
        if i != j:
            found.add((i, j))
    return [(i, j, random.randint(1, 9)) for i, j in sorted(found)]


def measure(best: list[tuple[int, int]], reach: tuple[int, int, int], *, master: str = "local[2]") -> list[Scaled]:
    """Best paths for (nodes, destinations) each, and reachability for (nodes, links, sources)."""
    with tempfile.TemporaryDirectory() as folder:
        spark = spark_session(Path(folder), master=master, settings=SparkSettings({"spark.driver.memory": "4g"}))
        try:
            SparkData(spark, REACH).insert([("link", (1, 2)), ("src", (1,))])  # the workers are started
            found = [_best(spark, nodes, destinations) for nodes, destinations in best]
            return [*found, _reach(spark, *reach)]
        finally:
            spark.stop()


def _best(spark: SparkSession, nodes: int, destinations: int) -> Scaled:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    made = links(nodes, 3 * nodes)
    facts: list[tuple[str, Row]] = [("w", row) for row in made] + [("dest", (y,)) for y in range(destinations)]
    start = time.perf_counter()
    data = SparkData(spark, BEST, watch=(("best", 2),))
    data.insert(facts)
    rows, total = data.summary("best")
    taken = time.perf_counter() - start
    i, j, cost = zip(*made, strict=True)
    matrix = csr_array((cost, (j, i)), shape=(nodes, nodes))  # backwards: from the destinations
    start = time.perf_counter()
    distance = dijkstra(matrix, indices=range(destinations))
    beside = time.perf_counter() - start
    if (rows, total) != (nodes * destinations - destinations, float(distance.sum())):
        raise RuntimeError("scipy has other paths")
    return Scaled(f"best paths, {nodes:,} nodes, {destinations:,} destinations", rows, taken, "scipy dijkstra", beside)


def _reach(spark: SparkSession, nodes: int, count: int, sources: int) -> Scaled:
    made = links(nodes, count)
    facts: list[tuple[str, Row]] = [("link", (i, j)) for i, j, _ in made] + [("src", (x,)) for x in range(sources)]
    start = time.perf_counter()
    data = SparkData(spark, REACH, watch=(("reach", 1),))
    data.insert(facts)
    rows, total = data.summary("reach")
    taken = time.perf_counter() - start
    connection = duckdb.connect(config={"threads": 1})
    connection.register("link", pa.table({"x": [i for i, _, _ in made], "y": [j for _, j, _ in made]}))
    start = time.perf_counter()
    query = f"""WITH RECURSIVE reach(x, y) AS (
        SELECT x, y FROM link WHERE x < {int(sources)}
        UNION SELECT reach.x, link.y FROM reach JOIN link ON reach.y = link.x
    ) SELECT count(*), sum(y) FROM reach"""  # noqa: S608 - a number
    found = connection.execute(query).fetchone()
    beside = time.perf_counter() - start
    if found is None or (rows, total) != (found[0], float(found[1])):
        raise RuntimeError("DuckDB reaches other nodes")
    return Scaled(f"reachability, {count:,} links, {sources:,} sources", rows, taken, "DuckDB recursion", beside)
