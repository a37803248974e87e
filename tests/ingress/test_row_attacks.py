"""Attacks by malformed rows and by rows of streams without readers: they end no query."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from worlds.attacked import COLUMNS, begin, bench, small
from worlds.harness import NOW, RULES, Bench, Read, Row, malformed_rows, stream

from headgate.ingress.validation import NO_TIME, TOO_LONG, RawBatch
from headgate.model.snapshot import CatalogSnapshot

FAR = (400_000_000_000_000_000, -400_000_000_000_000_000, (1 << 63) - 1, -(1 << 63) + 1)


@pytest.mark.parametrize("number", FAR)
@pytest.mark.parametrize("column", ["at", "z"])
def test_a_time_outside_the_calendar_ends_no_query(number: int, column: str, tmp_path: Path) -> None:
    found = Bench(tmp_path, stream("s", "a INT, z TIMESTAMP"), skew=None)
    found.query("q", "SELECT a, z FROM s")
    found.subscribed(eve=("q", ""))
    found.begin(found.files())
    table = found.table("s", [("TRUE", 1, NOW), ("TRUE", 2, NOW)])
    far = pa.array([number, int(NOW.timestamp()) * 1_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = table.set_column(table.schema.get_field_index(column), column, far)
    found.pipeline.take("s", 0, table)  # type: ignore[union-attr]
    expected: list[Row] = [(2, NOW)] if column == "at" else [(1, None), (2, NOW)]
    assert found.fetched("eve", "q") == expected
    if column == "at":
        assert NO_TIME in (tmp_path / "out/owner/s.rejected.jsonl").read_text()


def test_numbers_that_are_not_finite_are_null_and_dead_letters_stay_json(tmp_path: Path) -> None:
    found = Bench(tmp_path, stream("s", "x DOUBLE"))
    found.query("q", "SELECT x, x IS NULL AS missing FROM s")
    found.subscribed(eve=("q", ""))
    found.begin(found.files())
    found.take("s", *((label, float(x)) for label in ("TRUE", "bad (") for x in ("nan", "inf", "-inf", "-0.0")))
    assert found.fetched("eve", "q") == [(None, True)] * 3 + [(0.0, False)]
    lines = (tmp_path / "out/owner/s.rejected.jsonl").read_text().splitlines()
    strict = [json.loads(line, parse_constant=lambda text: pytest.fail(text)) for line in lines]
    assert [x["values"]["x"] for x in strict] == ["nan", "inf", "-inf", -0.0]


def test_a_text_that_is_too_long_is_rejected_at_ingress(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT a FROM s")
    found.subscribed(eve=("q", ""))
    begin(found)
    found.take("s", ("TRUE", 1, "x" * 1001), ("TRUE", 2, "é" * 501), ("TRUE", 3, "x" * 1000))
    assert found.fetched("eve", "q") == [(3,)]
    assert (tmp_path / "out/owner/s.rejected.jsonl").read_text().count(TOO_LONG) == 2


def test_one_far_future_tuple_makes_nobody_late(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED]")
    found.subscribed(eve=("q", ""))
    future = NOW + dt.timedelta(days=3000)
    found.take("s", ("TRUE", 1, "x"), ("TRUE", 2, "x"), times=[NOW, future])
    found.take("s", ("TRUE", 3, "x"), times=[NOW + dt.timedelta(seconds=1)])
    found.end()
    assert found.fetched("eve", "q") == [(1,), (2,)]


def test_a_stream_without_readers_ends_no_query(tmp_path: Path) -> None:
    """Its last reader logs out while a batch of it is on its way."""
    found = Bench(tmp_path, stream("s", COLUMNS), stream("t", COLUMNS))
    found.query("q", "SELECT a FROM s")
    found.query("r", "SELECT a FROM t")
    found.subscribed(eve=("q", ""), dora=("r", ""))
    found.take("s", *small(1))
    found.now = CatalogSnapshot(RULES, {"t": found.descriptors["t"]}, (found.queries["r"],), found.now.subscribers[1:])
    found.take("s", *small(1))
    found.take("t", *small(1))
    assert found.fetched("dora", "r") == [(0,)]


def test_malformed_rows_of_any_kind_are_kept_for_the_owner(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT a FROM s")
    found.subscribed(eve=("q", ""))
    found.begin(found.files())
    bad = ["{" * 100_000, "\x00", "[" * 50_000 + "]" * 50_000, "\ud7ff", '{"a": 1e999}']
    whole = RawBatch(found.table("s", [("TRUE", 1, "x")]), [malformed_rows("s", *bad)])
    found.pipeline.take("s", 0, Read(whole))  # type: ignore[union-attr]
    assert found.fetched("eve", "q") == [(1,)]
    assert len((tmp_path / "out/owner/s.rejected.jsonl").read_text().splitlines()) == len(bad)
