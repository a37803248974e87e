"""BINARY columns: base64 where texts are, bytes where bytes are, on the way in and on the way out."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.egress.sinks import Address, lines_of
from headgate.ingress.parquet_reader import Files, _fits
from headgate.ingress.published import MalformedRows, check_tuples, read_arrow, read_json
from headgate.ingress.text_files import as_lines, json_rows
from headgate.ingress.validation import TOO_LONG, Ingress
from headgate.labels import LEAST, PUBLIC, Rules
from headgate.model.limits import Limits
from headgate.model.results import ResultBatch
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type

COLUMNS = (("x", Type.BINARY),)
STREAM = StreamDescriptor("s", COLUMNS)
NOT_BASE64 = ("a", "ab=", "a===", "ab=c", "YQ", "YQ==\n", " YQ==", "Y Q=", "YQ==YQ==", "-_==", "é===")


def lines(values: Sequence[object]) -> pa.Array:
    return as_lines(pa.array([json.dumps({"x": x}).encode() for x in values], pa.binary()))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))))
def test_base64_in_json_is_bytes(values: list[bytes | None]) -> None:
    found = json_rows(COLUMNS, lines([None if x is None else base64.b64encode(x).decode() for x in values]))
    assert found.columns["x"].to_pylist() == values and not found.bad.any()
    assert found.columns["x"].type == pa.binary()


def test_what_is_not_base64_is_rejected() -> None:
    found = json_rows(COLUMNS, lines([*NOT_BASE64, 7, True, [1]]))
    assert found.bad.all()
    assert found.why(0) == 'x: `"a"` is not BINARY in base64'
    assert found.why(len(NOT_BASE64)) == "x: `7` is not BINARY in base64"


def test_senders_publish_bytes() -> None:
    assert read_json(STREAM, b'{"x": "AP8="}\n{}\n', 9).table.column("x").to_pylist() == [b"\x00\xff", None]
    with pytest.raises(MalformedRows):
        check_tuples(STREAM, Rules(), LEAST, read_json(STREAM, b'{"x": "AP8"}\n', 9), 0, Limits())
    for type_ in (pa.binary(), pa.large_binary()):
        sink = pa.BufferOutputStream()
        table = pa.table({"x": pa.array([b"\x00\xff", None], type_)})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        assert read_arrow(STREAM, bytes(sink.getvalue()), 9).table.column("x").to_pylist() == [b"\x00\xff", None]


def test_parquet_holds_bytes(tmp_path: Path) -> None:
    file = tmp_path / "1.parquet"
    pq.write_table(pa.table({"x": pa.array([b"\x00\xff", None], pa.binary())}), file)
    with pq.ParquetFile(file) as opened:
        assert Files(STREAM, [opened], [str(file)]).all_rows().table.column("x").to_pylist() == [b"\x00\xff", None]
        assert _fits(opened, STREAM)


def test_bytes_that_are_too_long_are_rejected() -> None:
    ingress = Ingress(STREAM, Rules(), lambda _: 0, Limits(text=3))
    batch, (rejected,) = ingress.take(pa.table({"x": pa.array([b"abc", b"abcd"], pa.binary())}), 0)
    assert batch.columns["x"].to_pylist() == [b"abc"]
    assert (rejected.reason, rejected.rows) == (TOO_LONG, [{"x": "YWJjZA=="}])


def test_results_in_json_are_base64() -> None:
    zeros = np.zeros(2, np.int64)
    values = (pa.array([b"\x00\xff", None], pa.binary()),)
    found = lines_of(ResultBatch(("ann",), "q", zeros, zeros, values, zeros, (PUBLIC,)), Address(("ann", "q"), ("x",)))
    assert [json.loads(line)["values"] for line in found] == [{"x": "AP8="}, {"x": None}]
