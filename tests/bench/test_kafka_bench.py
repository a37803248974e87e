"""What `bench kafka` sends and expects, without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.bench import kafka
from headgate.bench.harness import Silent
from headgate.ingress.kafka_messages import read_messages
from headgate.ingress.kafka_options import topic_of
from headgate.labels import parse_label


def test_every_message_is_a_tuple_and_the_results_are_counted_right(spark: SparkSession, tmp_path: Path) -> None:
    sent = spark.range(500).selectExpr(*kafka._MESSAGES).toArrow()
    headgate = kafka.prepared(tmp_path, "h:9092")
    try:
        (query,) = headgate.snapshot().queries
        descriptor = headgate.snapshot().descriptors["joe.s"]
        options = dict(headgate.snapshots.inputs()["joe.s"].options)
        clearances, rules = headgate.snapshot().clearances, headgate.snapshot().rules
    finally:
        headgate.close()
    places = {"partition": [0] * 500, "offset": range(500), "timestamp": [0] * 500}
    types = {"partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    columns = {name: sent.column(name).cast(pa.binary()) for name in ("key", "value")}
    columns |= {name: pa.array(values, types[name]) for name, values in places.items()}
    whole = read_messages(topic_of(descriptor, options), pa.table(columns | {"headers": sent.column("headers")}))
    assert not whole.rejected and whole.table.num_rows == 500
    assert json.loads(sent.column("value")[0].as_py()).keys() == {"at", "k", "v"}
    seen = sum(
        rules.permits(parse_label(f'{row["roles"]} FROM "joe.s"'), clearance)
        for row in whole.table.to_pylist()
        if row["v"] > 100
        for (_, name), clearance in clearances.items()
        if name == query.name and clearance is not None
    )
    assert seen == kafka.expected_results(500) > 200


@pytest.mark.long
def test_the_bench_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "QUICK_TUPLES", 5_000)
    report = kafka.run(True, Silent())
    assert [row["tuples"] for row in report.rows] == [5_000] * 3
