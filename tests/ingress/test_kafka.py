"""Messages of Kafka as Spark hands them over: what they hold is decided by our own readers, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.egress.sinks import rejected_lines
from headgate.errors import SourceError
from headgate.ingress import kafka_jars, kafka_messages, validation
from headgate.ingress.json_lines import NO_OBJECT, TWICE
from headgate.ingress.kafka_messages import NO_VALUE, OFFSET, PARTITION, read_messages
from headgate.ingress.kafka_options import MOST_MESSAGES, Topic, topic_of
from headgate.ingress.sources import StreamSource, read_stream
from headgate.ingress.text_files import as_lines, json_rows
from headgate.ingress.validation import NO_LABEL, Ingress, RawBatch
from headgate.labels import Rules
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type

COLUMNS = (
    *(("a", Type.INT), ("k", Type.BINARY), ("sent", Type.TIMESTAMP), ("policy", Type.STRING)),
    *(("part", Type.INT), ("at", Type.BIGINT)),
)
PARTS = {"key": "k", "timestamp": "sent", "header.policy": "POLICY", "partition": "part", "offset": "at"}
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
WHERE = {"servers": "h:9092", "topic": "t"}
SPARK = pa.schema(
    {
        "value": pa.binary(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "key": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)


def topic(columns: Sequence[tuple[str, Type]] = COLUMNS, options: Mapping[str, str] = PARTS, labels: str = "") -> Topic:
    descriptor = StreamDescriptor("s", tuple(columns), None, {"ROLES": labels} if labels else {})
    return topic_of(descriptor, {**WHERE, **options})


def message(
    value: bytes | None,
    offset: int = 0,
    partition: int = 0,
    timestamp: int = 0,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] | None = (),
) -> dict[str, Any]:
    found = None if headers is None else [{"key": name, "value": data} for name, data in headers]
    return {"value": value, "partition": partition, "offset": offset, "timestamp": timestamp, "key": key} | {
        "headers": found
    }


def read(given_: Topic, *messages: dict[str, Any]) -> RawBatch:
    return read_messages(given_, pa.Table.from_pylist(list(messages), SPARK))


def whys(whole: RawBatch) -> list[str]:
    return [why for part in whole.rejected for why in part.details]


# Values ---------------------------------------------------------------------------------------------------------------


def test_keys_headers_and_places_are_columns() -> None:
    whole = read(topic(), message(b'{"a": 7}', 5, 1, 2_000_000, b"\xff", [("x", b"1"), ("policy", b"R1")]))
    (row,) = whole.table.to_pylist()
    assert row.pop("sent").timestamp() == 2
    assert row == {"a": 7, "k": b"\xff", "policy": "R1", "part": 1, "at": 5, PARTITION: 1, OFFSET: 5}
    assert not whole.rejected


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(st.binary(max_size=12), st.from_regex(rb'\{"a": ?-?[0-9]{1,11}\}', fullmatch=True))))
def test_a_message_means_what_the_same_line_of_a_file_means(values: list[bytes]) -> None:
    columns = (("a", Type.INT),)
    whole = read(topic(columns, {}), *(message(value, n) for n, value in enumerate(values)))
    found = json_rows(columns, as_lines(pa.array(values, pa.binary())))
    assert whole.table.column("a").to_pylist() == found.columns["a"].filter(pa.array(~found.bad)).to_pylist()
    assert len(whole) == len(values)
    assert whys(whole) == [found.why(n) for n in range(len(values)) if found.bad[n]]


def test_malformed_messages_are_rejected_with_their_place() -> None:
    bad = [None, b"", b"{broken", b'{"a": 1} {"a": 2}', b'{"a": 1, "a": 2}', b'{"a": "x"}', b"\xff"]
    whole = read(topic((("a", Type.INT),), {}), *(message(x, 10 + n, n % 2) for n, x in enumerate(bad)))
    assert whole.table.num_rows == 0
    lines = sorted(
        (json.loads(x) for part in whole.rejected for x in rejected_lines(part)), key=lambda x: int(x[OFFSET])
    )
    assert [(x[PARTITION], x[OFFSET]) for x in lines] == [(n % 2, 10 + n) for n in range(len(bad))]
    why = [NO_VALUE, NO_OBJECT, NO_OBJECT, NO_OBJECT, TWICE, 'a: `"x"` is not INT', NO_OBJECT]
    assert [x["reason"].partition(": ")[2] for x in lines] == why
    assert [x["row"] for x in lines][-2:] == ['{"a": "x"}', "/w=="]


def test_a_row_that_validation_rejects_has_its_place_too() -> None:
    columns = (("a", Type.INT), ("policy", Type.STRING))
    asked = topic(columns, {"header.policy": "policy"}, labels="policy")
    whole = read(
        asked,
        message(b'{"a": 1}', 1, 0, headers=[("policy", b"R1 &")]),
        message(b'{"a": 2}', 2, 1, headers=None),
        message(b'{"a": 3}', 3, 1, headers=[("policy", b"R1")]),
    )
    ingress = Ingress(asked.descriptor, Rules(), lambda _: 0)
    batch, (rejected,) = ingress.take(whole.table, 0)
    assert batch.columns["a"].to_pylist() == [3] and rejected.reason == NO_LABEL
    assert [(x[PARTITION], x[OFFSET], x["a"]) for x in rejected.rows] == [(0, 1, 1), (1, 2, 2)]


def test_a_header_that_comes_twice_cannot_choose_the_label() -> None:
    """The attack: one reader takes the first label, another the last."""
    both = [("policy", b"TRUE"), ("policy", b"boss")]
    asked = topic((("a", Type.INT), ("policy", Type.STRING)), {"header.policy": "policy"})
    whole = read(asked, message(b'{"a": 1}', headers=both), message(b'{"a": 2}', 1, headers=[("policy", None)]))
    assert whole.table.column("a").to_pylist() == [2]
    assert whys(whole) == ["it has header policy twice"]


def test_the_value_cannot_set_a_column_of_the_message() -> None:
    """The attack: a sender who may not choose headers writes the label into the value."""
    asked = topic((("a", Type.INT), ("policy", Type.STRING)), {"header.policy": "policy"})
    whole = read(asked, message(b'{"a": 1, "policy": "TRUE"}', headers=[("policy", b"boss")]))
    assert whole.table.column("policy").to_pylist() == ["boss"]


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_a_message_of_arrow_is_taken_whole_or_not_at_all() -> None:
    columns = (("a", Type.INT), ("b", Type.BINARY), ("k", Type.STRING))
    asked = topic(columns, {"format": "arrow", "key": "k"})
    good = stream(pa.table({"a": pa.array([1, 2]), "b": pa.array([b"\x00", None], pa.binary())}))
    large = stream(pa.table({"a": pa.array([1, 2**40])}))
    whole = read(
        asked,
        message(good, 0, key=b"x"),
        message(large, 1),
        message(b"nonsense", 2),
        message(None, 3),
        message(stream(pa.table({"a": pa.array([3])})), 4, key=b"\xff"),
    )
    rows = [(x["a"], x["b"], x["k"], x[OFFSET]) for x in whole.table.to_pylist()]
    assert rows == [(1, b"\x00", "x", 0), (2, None, "x", 0), (3, None, "\ufffd", 4)]
    assert whys(whole) == ["row 2: a: it is not INT", "it is not an Arrow stream", NO_VALUE]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=30), st.randoms())
def test_partitions_are_merged_by_time_and_each_keeps_its_order(given_: list[tuple[int, int]], rng: Any) -> None:
    asked = topic((("a", Type.INT),), {})
    sent = [message(json.dumps({"a": n}).encode(), n, p, t) for n, (p, t) in enumerate(given_)]
    shuffled = sorted(sent, key=lambda _: rng.random())
    found = read(asked, *shuffled).table.column("a").to_pylist()
    assert sorted(found) == list(range(len(sent)))
    for partition in range(3):
        own = [n for n in found if given_[n][0] == partition]
        assert own == sorted(own)
    if all(a[1] <= b[1] for a, b in pairwise(given_)):
        assert [given_[n][1] for n in found] == [t for _, t in given_]


def test_pieces_of_a_batch_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [message(b'{"a": %d}' % n if n % 3 else b"{broken", n, n % 2, 9 - n) for n in range(10)]
    asked = topic((("a", Type.INT),), {})
    whole = read(asked, *sent)
    monkeypatch.setattr(kafka_messages, "_PIECE", 20)
    pieces = read(asked, *sent)
    assert pieces.table.equals(whole.table) and list(pieces.rejected) == list(whole.rejected)
    monkeypatch.setattr(kafka_messages, "MOST_KEPT", 2)
    monkeypatch.setattr(validation, "MOST_KEPT", 2)
    (few,) = read(asked, *sent).rejected
    assert (len(few.rows), len(few.details), few.more, len(few)) == (2, 2, 2, 4)


# Options --------------------------------------------------------------------------------------------------------------


def test_spark_gets_its_own_options_and_a_batch_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# login\n\nsecurity.protocol=SASL_SSL\nsasl.jaas.config={LOGIN} required password=a=b;\n")
    found = topic(COLUMNS, PARTS | {"properties": str(file), "kafka.ssl.truststore.password": "hush"})
    assert found.spark_options() == {
        "kafka.bootstrap.servers": "h:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": f"{LOGIN} required password=a=b;",
        "kafka.ssl.truststore.password": "hush",
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": "20",
        "kafka.request.timeout.ms": "10000",
        "kafka.default.api.timeout.ms": "15000",
        "maxOffsetsPerTrigger": str(MOST_MESSAGES),
        "startingOffsets": "earliest",
        "subscribe": "t",
        "includeHeaders": "true",
    }
    assert "hush" not in repr(found) and "a=b" not in repr(found)
    assert found.headers and found.value_columns == (("a", Type.INT),)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic": ""}, "the option `topic` is missing"),
        ({"format": "avro"}, "the option `format` is none of the formats of values"),
        ({"starting": "5"}, "the option `starting` is neither earliest nor latest"),
        ({"nonsense": "hush"}, "`kafka` has no option `nonsense` here"),
        ({"kafka.key.deserializer": "hush"}, "`kafka` has no option `kafka.key.deserializer` here"),
        ({"kafka.sasl.login.class": "hush"}, "`kafka` has no option `kafka.sasl.login.class` here"),
        ({"kafka.bootstrap.servers": "h"}, "`kafka` has no option `kafka.bootstrap.servers` here"),
        ({"key": "b"}, "the option `key` names `b`, which is no column of the stream"),
        ({"key": "a"}, "the option `key` names `a`, which is INT, not BINARY or STRING"),
        ({"header.a": "k", "key": "k"}, "the column `k` is named by two options, `header.a` and `key`"),
        ({"properties": "/no/such"}, "cannot read the properties `/no/such`: FileNotFoundError"),
        ({"properties": "/dev/zero"}, "cannot read the properties `/dev/zero`: it is not a file"),
        (
            {"kafka.sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required hush;"},
            "the setting `sasl.jaas.config` does not begin with one of Kafka's own login modules",
        ),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(options: dict[str, str], error: str) -> None:
    with pytest.raises(SourceError) as caught:
        topic(COLUMNS, options).spark_options()
    assert caught.value.message == error and "hush" not in str(caught.value)


def test_a_file_of_the_engine_that_is_no_file_of_properties_is_not_told_to_whoever_names_it(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("security.protocol=SSL\nhush-hush:x:0:0=root\n")
    with pytest.raises(SourceError) as caught:
        topic(COLUMNS, {"properties": str(file)}).spark_options()
    assert caught.value.message == f"cannot use the properties `{file}`: line 2 is no setting that a source has"


def test_without_the_connector_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_KAFKA", str(tmp_path))
    source = StreamSource(StreamDescriptor("joe.vitals", (("a", Type.INT),)), "kafka", WHERE)
    with pytest.raises(SourceError) as caught:
        read_stream(None, source)  # type: ignore[arg-type]
    assert caught.value.message == (
        "cannot read stream joe.vitals as `kafka`: Spark's connector to Kafka is not installed"
    )
    assert caught.value.hint == "run `scripts/ensure-kafka.sh`, then start again"
    assert kafka_jars.connector_settings(local=True) == {}
    (tmp_path / "connector").mkdir()
    for name in "xy":
        (tmp_path / f"connector/{name}.jar").touch()
    x, y = (f"{tmp_path}/connector/{name}.jar" for name in "xy")
    assert kafka_jars.connector_settings(local=True) == {"spark.driver.extraClassPath": f"{x}:{y}"}
    assert kafka_jars.connector_settings(local=False) == {"spark.jars": f"{x},{y}"}
