"""The labels of delivered results name only streams that their reader may view."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import System

from headgate.clock import SystemClock
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import FileSink
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.recovery.pipeline import Pipeline
from headgate.service.folders import Folders
from headgate.service.run_client import RunClient

SETUP = """
CREATE STREAM m (at TIMESTAMP, k INT) EVENT TIME at SOURCE json (path = '/nowhere');
CREATE STREAM hidden (at TIMESTAMP, k INT) EVENT TIME at SEMANTICS WEAK SOURCE json (path = '/nowhere');
CREATE QUERY both AS SELECT a.k AS k FROM m [ROWS 5] a, hidden [ROWS 5] b WHERE a.k = b.k;
START QUERY both;
CREATE ROLE nurse;
GRANT VIEW OBJECT, READ TUPLE ON STREAM m TO nurse;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM both TO nurse;
"""


def tuples(*keys: int) -> pa.Table:
    at = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
    times = [at + dt.timedelta(seconds=n) for n in range(len(keys))]
    return pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "k": pa.array(keys, pa.int32())})


@pytest.mark.parametrize("kind", [FileSink, ParquetSink])
def test_a_reader_of_a_join_does_not_learn_the_name_of_a_weak_stream_it_may_not_view(
    sqlite_system: System, tmp_path: Path, kind: type[FileSink] | type[ParquetSink]
) -> None:
    """Both readers receive the same result; only the owner, who may view it, is told of the hidden stream."""
    sqlite_system.run(SETUP)
    sqlite_system.new_user("ned", "nurse")
    for token in (sqlite_system.login("ned"), sqlite_system.root):
        sqlite_system.run("SUBSCRIBE TO root.both", token)
    client = RunClient(sqlite_system.headgate, sqlite_system.root, everyone=True)
    sink = kind(tmp_path / "out", Folders(sqlite_system.headgate))
    pipeline = Pipeline(
        tmp_path / "home",
        client,
        lambda _, program, schema: LocalExecutor(program, schema, evaluate),
        [sink],
        SystemClock(),
    )
    pipeline.take("root.m", 0, tuples(1, 2))
    pipeline.take("root.hidden", 0, tuples(2, 3))
    pipeline.end()
    pipeline.close()
    labels = {}
    for who in ("ned", "root"):
        if kind is FileSink:
            (line,) = (tmp_path / "out" / who / "root.both.jsonl").read_text().splitlines()
            labels[who] = json.loads(line)["label"]
        else:
            (file,) = (tmp_path / "out" / who / "root.both").glob("*.parquet")
            (labels[who],) = pq.read_table(file).column("headgate_label").to_pylist()
    assert labels == {"ned": 'TRUE FROM "root.m"', "root": 'TRUE FROM "root.hidden", "root.m"'}
    found = [x for x in (tmp_path / "out" / "ned").rglob("*") if x.is_file()]
    assert found and not any(b"hidden" in x.read_bytes() for x in found)
