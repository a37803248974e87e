"""Spark carries a pipeline: files of every format, in the order of their arrival, once, however Spark packs them."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headgate.clock import SystemClock
from headgate.cql.queries import parse_query
from headgate.egress.mailbox import Mailbox
from headgate.errors import SourceError
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.ingress.sources import StreamSource
from headgate.ingress.validation import NO_FORM, NO_LABEL, NO_TIME
from headgate.labels import LEAST, Clearance, parse_label
from headgate.model.query import ContinuousQuery
from headgate.model.rejected import RejectedRows
from headgate.model.results import DeliveredResult, delivered_results
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.recovery.pipeline import Pipeline
from headgate.service.streams import Runner, SparkBatch
from headgate.testing.oracle import OracleResult, Tuple, exact

COLUMNS = (("at", Type.TIMESTAMP), ("a", Type.INT), ("x", Type.DOUBLE), ("policy", Type.STRING))
DESCRIPTOR = StreamDescriptor("s", COLUMNS, "at", {"ROLES": "policy"})
QUERIES = {
    "passing": "SELECT a, x WHERE a > 2 FROM s",
    "last": "SELECT a, COUNT(*) AS n, AVG(x) AS mean FROM s [ROWS 5] GROUP BY a",
    "near": "SELECT l.a, r.x FROM s [RANGE 6 SECONDS] l, s [RANGE 6 SECONDS] r WHERE l.a = r.a AND l.x < r.x",
}
PEOPLE = {"ann": frozenset({"R1"}), "bob": frozenset({"R2"})}


def clearance(roles: frozenset[str]) -> Clearance:
    return Clearance(roles, LEAST, frozenset({"s"}), frozenset())


@dataclass
class Snapshots:
    """What is wanted, until the test wants something else."""

    now: CatalogSnapshot
    refused: list[RejectedRows] = field(default_factory=list)

    def snapshot(self) -> CatalogSnapshot:
        return self.now

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        yield self.now

    def verify(self) -> None:
        pass


def snapshot(queries: Mapping[str, str]) -> CatalogSnapshot:
    stream = Stream("s", COLUMNS)
    running = [
        ContinuousQuery(name, bind_query(parse_query(text), lambda _: stream), LEAST) for name, text in queries.items()
    ]
    subscribers = [Subscriber(who, query, clearance(roles)) for who, roles in PEOPLE.items() for query in queries]
    return CatalogSnapshot(descriptors={"s": DESCRIPTOR}, queries=tuple(running), subscribers=tuple(subscribers))


class Kept(Mailbox):
    """A mailbox that remembers what was refused."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[RejectedRows] = []

    def prepare(self, results, refused, *, as_staged) -> None:  # type: ignore[no-untyped-def]
        self.refused += refused
        super().prepare(results, refused, as_staged=as_staged)


def run(
    spark: SparkSession, home: Path, source: StreamSource, asked: CatalogSnapshot, *, last: bool = True
) -> tuple[list[DeliveredResult], Kept]:
    box = Kept()
    snapshots = Snapshots(replace(asked, descriptors={"s": source.descriptor}))
    pipeline = Pipeline(
        home,
        snapshots,
        lambda _, program, schema: LocalExecutor(program, schema, evaluate),
        [box],
        SystemClock(),
    )
    try:
        runner = Runner(lambda: spark, home, pipeline)
        runner.read({"s": source}, finite=True)
        runner.wait()
        runner.stop()
        for error in runner.failed.values():
            raise error
        if last:
            pipeline.end()
        found = [delivered_results(box.fetch(x.name, x.query, snapshots.now)) for x in snapshots.now.subscribers]
        return [x for result_batches in found for x in result_batches], box
    finally:
        pipeline.close()


ROWS: list[dict[str, Any]] = [
    {
        "at": f"2024-01-01T10:00:{i // 2:02}.{i % 2 * 500:03}Z",
        "a": i * 7 % 5,
        "x": i / 4,
        "policy": ("R1", "R1 | R2", "R2")[i % 3],
    }
    for i in range(60)
]
ARROW = pa.schema({"at": pa.timestamp("us", "UTC"), "a": pa.int32(), "x": pa.float64(), "policy": pa.string()})


def write(folder: Path, number: int, rows: list[dict[str, Any]], kind: str) -> None:
    """One file; earlier ones are larger than later ones, so that Spark would take them in another order."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{9 - number}.{kind}"
    if kind == "parquet":
        moments = [dt.datetime.fromisoformat(str(x["at"])) for x in rows]
        table = pa.Table.from_pylist([x | {"at": at} for x, at in zip(rows, moments, strict=True)])
        pq.write_table(table.cast(ARROW), file)
    elif kind == "csv":
        file.write_text("".join(f"{x['at']},{x['a']},{x['x']},{x['policy']}\n" for x in rows))
    else:
        file.write_text("".join(json.dumps(x) + "\n" for x in rows))
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def expected(asked: CatalogSnapshot) -> dict[tuple[str, str], list[OracleResult]]:
    tuples = [
        Tuple("s", int(at.timestamp() * 1000), {**row, "at": at}, parse_label(f"{row['policy']} FROM s"))
        for row in ROWS
        for at in [dt.datetime.fromisoformat(str(row["at"]))]
    ]
    return {
        (who, query.name): exact(query.query, tuples, {who: clearance(roles)})[who]
        for who, roles in PEOPLE.items()
        for query in asked.queries
    }


def by_reader(found: list[DeliveredResult]) -> dict[tuple[str, str], list[OracleResult]]:
    got: dict[tuple[str, str], list[OracleResult]] = {}
    for x in found:
        got.setdefault((x.subscriber, x.query), []).append(OracleResult(x.time, x.values, x.label, x.block))  # type: ignore[arg-type]
    return got


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
@pytest.mark.parametrize("files", ["1", "1000"])
def test_files_of_every_format_give_what_the_oracle_says(
    spark: SparkSession, tmp_path: Path, kind: str, files: str
) -> None:
    for number, size in enumerate((30, 20, 10)):
        begin = (0, 30, 50)[number]
        write(tmp_path / "in", number, ROWS[begin : begin + size], kind)
    asked = snapshot(QUERIES)
    source = StreamSource(DESCRIPTOR, kind, {"path": str(tmp_path / "in"), "maxFilesPerTrigger": files})
    found, box = run(spark, tmp_path / "home", source, asked)
    assert by_reader(found) == expected(asked)
    assert box.refused == []


@pytest.mark.parametrize("queries", [QUERIES, {"passing": QUERIES["passing"]}], ids=["windows", "passing only"])
def test_a_batch_read_as_a_whole_gives_the_same(
    spark: SparkSession, tmp_path: Path, queries: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", 0, ROWS, "json")
    asked = snapshot(queries)
    source = StreamSource(DESCRIPTOR, "json", {"path": str(tmp_path / "in")})
    decoded, _ = run(spark, tmp_path / "compact", source, asked)
    monkeypatch.setattr(SparkBatch, "decoded", lambda *_: None)
    whole, _ = run(spark, tmp_path / "whole", source, asked)
    assert decoded == whole
    assert by_reader(whole) == expected(asked)


def test_a_second_run_reads_only_new_files(spark: SparkSession, tmp_path: Path) -> None:
    source = StreamSource(DESCRIPTOR, "json", {"path": str(tmp_path / "in")})
    asked = snapshot(QUERIES)
    write(tmp_path / "in", 0, ROWS[:40], "json")
    first, _ = run(spark, tmp_path / "home", source, asked, last=False)
    again, _ = run(spark, tmp_path / "home", source, asked, last=False)
    write(tmp_path / "in", 1, ROWS[40:], "json")
    last, _ = run(spark, tmp_path / "home", source, asked)
    assert again == []
    got, more = by_reader(first), by_reader(last)
    assert {key: got.get(key, []) + more.get(key, []) for key in expected(asked)} == expected(asked)


def test_malformed_rows_are_kept_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, ROWS, "json")
    with (tmp_path / "in" / "9.json").open("a") as file:
        file.write('{"at": "2024-01-01T10:00:29Z", "a": "no number", "x": 1, "policy": "R1"}\n{broken\n')
        file.write(
            '{"a": 1, "x": 1, "policy": "R1"}\n{"at": "2024-01-01T10:00:29Z", "a": 1, "x": 1, "policy": "R1 &"}\n'
        )
    asked = snapshot(QUERIES)
    source = StreamSource(DESCRIPTOR, "json", {"path": str(tmp_path / "in")})
    found, box = run(spark, tmp_path / "home", source, asked)
    assert by_reader(found) == expected(asked)
    assert {x.reason: len(x.rows) for x in box.refused} == {NO_FORM: 2, NO_TIME: 1, NO_LABEL: 1}


@pytest.mark.parametrize("format_", ["json", "no such format"])
def test_a_source_that_cannot_be_read_is_named_in_one_line(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    source = StreamSource(DESCRIPTOR, format_, {"path": str(tmp_path / "missing")})
    with pytest.raises(SourceError, match="cannot read stream s as") as caught:
        run(spark, tmp_path / "home", source, snapshot(QUERIES))
    assert "\n" not in caught.value.message
