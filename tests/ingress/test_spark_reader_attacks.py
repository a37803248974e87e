"""What senders and readers can make Spark do: conditions that never end, and tuples out of order."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from worlds.harness import NOW, Bench, ReadByDriver, Row, stream

from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.spark_reader import DecodedBatch, decoded, pushed
from headgate.ingress.time_budget import TimeBudget
from headgate.ingress.validation import AHEAD, NO_LABEL, NO_TIME, TOO_LONG, RawBatch
from headgate.model.limits import Limits
from headgate.model.stream import StreamDescriptor
from headgate.plan import expressions as e
from headgate.plan import normal
from headgate.plan.expressions import Expr, Type

TEXT = e.Column(0, "t", Type.STRING)
NUMBER = e.Compare(">", e.Column(0, "a", Type.INT), e.Literal(3, Type.INT))
HARD = e.Like(TEXT, "%a" * 12 + "%b")


@pytest.mark.parametrize("pattern", ["a", "a%", "%a", "%a%", "%", "", "%%a%%", r"\%a\_%", "a^%", "%é'\\\\"])
def test_spark_evaluates_searches_for_texts(pattern: str) -> None:
    condition = e.Like(TEXT, pattern)
    assert pushed(normal.conjunction([condition, NUMBER])) == normal.conjunction([condition, NUMBER])


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (HARD, normal.TRUE),
        (normal.conjunction([HARD, NUMBER]), NUMBER),
        (normal.conjunction([e.Not(HARD), NUMBER]), NUMBER),
        (e.Or(frozenset({HARD, NUMBER})), normal.TRUE),
        (e.Like(TEXT, "a_b"), normal.TRUE),
        (e.Like(TEXT, "a%b"), normal.TRUE),
        (e.Compare("=", e.Case(((HARD, NUMBER.right),), NUMBER.left, Type.INT), NUMBER.right), normal.TRUE),
    ],
)
def test_spark_does_not_evaluate_patterns(condition: Expr, left: Expr) -> None:
    assert pushed(condition) == left


@dataclass
class Frame(ReadByDriver):
    """A batch of Spark's that must not be fetched as a whole."""

    frame: DataFrame
    descriptor: StreamDescriptor
    patience: TimeBudget = field(default_factory=TimeBudget)

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> DecodedBatch | None:
        return decoded(self.frame, self.descriptor, pushdown, now, register, self.patience)

    def all_rows(self) -> RawBatch:
        raise AssertionError("all of it was fetched")


def framed(spark: SparkSession, bench: Bench, table: pa.Table) -> Frame:
    return Frame(spark.createDataFrame(table), bench.descriptors["s"])


def bench(tmp_path: Path, **queries: str) -> Bench:
    found = Bench(tmp_path, stream("s", "a INT, t STRING"))
    for name, text in queries.items():
        found.query(name, text)
    return found


def test_a_pattern_that_never_ends_holds_nobody_up(spark: SparkSession, tmp_path: Path) -> None:
    """The attack: ten tuples and a reader's LIKE, which Spark matches by backtracking."""
    found = bench(tmp_path, q=f"SELECT a FROM s WHERE t LIKE '{HARD.pattern}'", r="SELECT a FROM s WHERE t LIKE '%b'")
    found.subscribed(eve=("q", ""), dora=("r", ""))
    rows = [("TRUE", n, "a" * 30_000 + "c") for n in range(10)] + [("TRUE", 10, "a" * 30_000 + "b")]
    table = found.table("s", rows)
    found.begin().take("s", 0, framed(spark, found, table))
    assert found.fetched("eve", "q") == found.fetched("dora", "r") == [(10,)]


def test_a_read_that_takes_spark_too_long_is_ended(spark: SparkSession) -> None:
    assert TimeBudget(0.5).collected(spark.range(10**13).where(F.col("id") < 0)) is None
    assert TimeBudget(60).collected(spark.range(3)).num_rows == 3  # type: ignore[union-attr]
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        TimeBudget(60).collected(spark.range(3).select(F.expr("raise_error('DIVIDE_BY_ZERO')")))


def test_after_that_operators_evaluate_the_condition_and_spark_is_not_asked_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bench(tmp_path, q="SELECT a FROM s WHERE a > 3")
    found.subscribed(eve=("q", "r"))
    asked: list[str] = []
    monkeypatch.setattr(TimeBudget, "collected", lambda _, frame: asked.append(frame))  # too long, each time
    batch = framed(spark, found, found.table("s", [("r", 1, "x"), ("r", 5, "y"), ("FALSE", 6, "z")]))
    found.begin().take("s", 0, batch)
    batch.frame = spark.createDataFrame(found.table("s", [("r", 2, "x"), ("r", 7, "y")]))
    found.pipeline.take("s", 1, batch)  # type: ignore[union-attr]
    assert found.fetched("eve", "q") == [(5,), (7,)] and len(asked) == 1
    assert found.pipeline.counts.unseen["s"] == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("query", ["SELECT a FROM s WHERE a > 3", "SELECT COUNT(*) AS n FROM s [ROWS 2]"])
def test_tuples_that_are_not_in_order_are_fetched_apart(spark: SparkSession, tmp_path: Path, query: str) -> None:
    """One of them among millions made all be fetched; now they are counted, and some are shown to the owner."""
    found = bench(tmp_path, q=query)
    found.limits = Limits(text=20)
    found.subscribed(eve=("q", "r"))
    late = NOW + dt.timedelta(hours=2)
    rows: list[Row] = [
        ("r", 1, "x"),
        ("r &", 5, "x"),
        ("r", 6, "x" * 21),
        ("r", 7, "x"),
        ("r", 8, "x"),
        ("r &", 9, "x"),
    ]
    rows += [("FALSE", 10, "x"), ("FALSE", 11, "x"), ("r", 12, "x"), (None, 13, "x")]
    times = [NOW, NOW, NOW, None, late, late, late, NOW, NOW, NOW]
    table = found.table("s", rows, times)
    for number, batch in enumerate((framed(spark, found, table), table)):
        pipeline = found.begin(found.files())
        pipeline.take("s", number, batch)
        counts = pipeline.counts
        assert counts.rejected == {("s", NO_LABEL): 2, ("s", TOO_LONG): 1, ("s", NO_TIME): 1, ("s", AHEAD): 3}
        assert (counts.tuples["s"], counts.unseen["s"]) == (10, 1)
        assert "WHERE" not in query or found.fetched("eve", "q") == [(12,)]
        pipeline.close()
    lines = (tmp_path / "out/owner/s.rejected.jsonl").read_text().splitlines()
    assert sorted(lines[:7]) == sorted(lines[7:]) and len(lines) == 14
