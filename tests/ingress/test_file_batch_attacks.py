"""Attacks on batches of files, by writers of the files and by subscribers who arrive while a batch is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from worlds.harness import Bench, ReadByDriver, Row, stream

from headgate.egress.parquet import ParquetSink
from headgate.errors import SourceError
from headgate.ingress.parquet_reader import Files, opened
from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.sources import StreamSource, in_order, read_stream
from headgate.ingress.spark_reader import DecodedBatch
from headgate.ingress.validation import NO_LABEL, Ingress
from headgate.model.snapshot import Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.secure import Mode

COLUMNS = "a INT, w STRING"
BROKEN, READ = b"caf\xe9", "caf\ufffd"


def bench(home: Path, **queries: str) -> Bench:
    found = Bench(home, stream("s", COLUMNS), stream("t", COLUMNS))
    for name, text in queries.items():
        found.query(name, text)
    return found


def files(found: Bench, rows: pa.Table, name: str = "s") -> Files:
    file = found.home / "s.parquet"
    found.home.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    there = opened(found.descriptors[name], [file.as_uri()])
    assert there is not None
    return there


def with_bytes(rows: pa.Table, name: str, at: int, value: bytes) -> pa.Table:
    """One text is no text."""
    column = rows.schema.get_field_index(name)
    texts = [value if n == at else x.encode() for n, x in enumerate(rows.column(name).to_pylist())]
    array = pa.array(texts, pa.binary())
    return rows.set_column(column, name, pa.Array.from_buffers(pa.string(), len(array), array.buffers()))


class Delayed(ReadByDriver):
    """A batch of files, and what happens after it was read and before it is taken."""

    def __init__(self, given: Files, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._given = given
        self._meanwhile = meanwhile

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> DecodedBatch | None:
        found = self._given.decoded(pushdown, now, register)
        self._meanwhile()
        return found

    def all_rows(self) -> pa.Table:
        return self._given.all_rows()


# Those who come meanwhile ---------------------------------------------------------------------------------------------


def late_comer(home: Path, **others: tuple[str, str]) -> list[Row]:
    """What somebody receives of a batch who subscribes after it was read, beside these."""
    found = bench(home, q="SELECT a FROM s WHERE a > 0", r="SELECT a FROM s WHERE a > 2")
    found.subscribed(**others)
    pipeline = found.begin()
    rows = [("nurse", 1, ""), ("doctor", 2, ""), ("nurse", 3, ""), ("doctor", 4, "")]
    given = files(found, found.table("s", rows))
    pipeline.take("s", 0, Delayed(given, lambda: found.subscribed(**others, spy=("q", "nurse,doctor"))))
    return found.fetched("spy", "q")


def test_results_of_a_new_subscriber_do_not_reveal_what_others_see(tmp_path: Path) -> None:
    alone = late_comer(tmp_path / "0", ann=("q", "nurse"))
    assert alone == late_comer(tmp_path / "1", ann=("q", "nurse"), bob=("r", "doctor"))
    assert alone == late_comer(tmp_path / "2", ann=("q", "nurse,doctor"))


# Those who write files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["a file", "a table"])
def test_bytes_that_are_not_text_end_no_query(by: str, tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT a, w FROM s WHERE w <> 'x'", r="SELECT a, UPPER(w) AS u FROM t")
    found.subscribed(ann=("q", "nurse"), bob=("r", "nurse"))
    pipeline = found.begin(found.files())
    rows = found.table("s", [("nurse", 1, "y"), ("nurse", 2, "y"), ("nurse", 3, "y")])
    rows = with_bytes(with_bytes(rows, "w", 1, BROKEN), "policy", 2, BROKEN)
    pipeline.take("s", 0, Delayed(files(found, rows)) if by == "a file" else rows)
    found.take("t", ("nurse", 1, "b"))
    assert found.fetched("bob", "r") == [(1, "B")]
    assert found.fetched("ann", "q") == [(1, "y"), (2, READ)]
    (rejected,) = map(json.loads, (tmp_path / "out" / "owner" / "s.rejected.jsonl").read_text().splitlines())
    assert (rejected["reason"], rejected["values"]["policy"]) == (f"{NO_LABEL}: `policy`: unexpected `\ufffd`", READ)


def test_a_batch_that_ingress_cannot_take_affects_its_stream_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever there is that nobody has thought of."""
    found = bench(tmp_path, q="SELECT a FROM s", r="SELECT a FROM t")
    found.subscribed(ann=("q", "nurse"), bob=("r", "nurse"))
    pipeline = found.begin()
    rows, taken = found.table("s", [("nurse", 1, "y")]), Ingress._taken
    monkeypatch.setattr(Ingress, "_taken", lambda *_: pa.array(["secret"]).cast(pa.int64()))
    with pytest.raises(SourceError, match=r"^stream s could not be taken in \(ArrowInvalid\)$"):
        pipeline.take("s", 0, rows)
    monkeypatch.setattr(Ingress, "_taken", taken)
    found.take("t", ("nurse", 1, "b"))
    assert found.fetched("bob", "r") == [(1,)]
    pipeline.take("s", 0, rows)
    assert found.fetched("ann", "q") == [(1,)]


def test_a_file_that_lies_about_its_size_ends_no_query(tmp_path: Path) -> None:
    """How many tuples there are is the word of whoever wrote the file."""
    found = bench(tmp_path, q="SELECT a FROM s", r="SELECT a FROM t")
    plain = found.descriptors["s"]
    found.descriptors["s"] = type(plain)(plain.name, plain.columns)
    found.subscribed(ann=("q", "nurse"), bob=("r", "nurse"))
    pipeline = found.begin()
    rows = found.table("s", [("nurse", n, "y") for n in range(100)])
    file = tmp_path / "lie.parquet"
    pq.write_table(rows, file, use_dictionary=False, compression="none", write_statistics=False)
    told = file.read_bytes()
    footer = len(told) - 8 - int.from_bytes(told[-8:-4], "little")
    at = told.index(b"\x16\xc8\x01\x19", footer)  # 100, then the list of row groups
    file.write_bytes(told[:at] + b"\x16\xca\x01\x19" + told[at + 4 :])
    given = opened(found.descriptors["s"], [file.as_uri()])
    assert given is not None and given.opened[0].metadata.num_rows == 101
    pipeline.take("s", 0, Delayed(given))
    found.take("t", ("nurse", 1, "b"))
    assert found.fetched("bob", "r") == [(1,)]
    assert len(found.fetched("ann", "q")) == 100


def test_a_long_text_is_not_hidden_behind_a_short_one_of_the_same_name(tmp_path: Path) -> None:
    """A column in a column has a name, too."""
    found = bench(tmp_path, q="SELECT w FROM s")
    rows = found.table("s", [("TRUE", 1, "y" * 2000)])
    hidden = pa.array([{"w": "y"}], pa.struct({"w": pa.string()}))
    there = files(found, pa.table({"other": hidden, **{x: rows.column(x) for x in rows.column_names}}))
    pushdown = Pushdown(found.now, ("w",), {("TRUE",): 0}, longest=1000)
    assert there.decoded(pushdown, 1 << 50, lambda _: None) is None


def batches(frame: DataFrame, home: Path) -> list[pa.Table]:
    """All that a source holds, as Spark hands it over."""
    found: list[pa.Table] = []

    def batch(part: DataFrame, _: int) -> None:
        found.append(in_order(part.toArrow()))

    writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(home))
    writer.trigger(availableNow=True).start().awaitTermination()
    return found


def test_spark_hands_over_texts_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """From files that hold bytes."""
    descriptor = StreamDescriptor("s", (("a", Type.INT), ("w", Type.STRING)))
    rows = with_bytes(pa.table({"a": pa.array([1, 2], pa.int32()), "w": ["y", "y"]}), "w", 1, BROKEN)
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in" / "1")
    frame = read_stream(spark, StreamSource(descriptor, "parquet", {"path": str(tmp_path / "in")}))
    (batch,) = batches(frame, tmp_path / "home")
    batch.validate(full=True)
    assert READ in str(batch.to_pylist())


# What is beside results -----------------------------------------------------------------------------------------------


def test_a_parquet_file_holds_no_labels_but_those_of_its_results(tmp_path: Path) -> None:
    found = bench(tmp_path)
    found.query("q", "SELECT a FROM s", mode=Mode.CUMULATIVE)
    found.subscribed(spy=("q", "nurse"), dora=("q", "nurse,doctor"))
    found.begin(ParquetSink(tmp_path / "out", found))
    found.take("s", ("doctor", 1, ""), ("nurse", 2, ""), ("doctor & nurse", 3, ""))
    for who, labels in (
        ("spy", {"nurse FROM s"}),
        ("dora", {"doctor FROM s", "nurse FROM s", "doctor & nurse FROM s"}),
    ):
        (file,) = (tmp_path / "out" / who / "q").iterdir()
        (chunk,) = pq.ParquetFile(file, read_dictionary=["headgate_label"]).read().column("headgate_label").chunks
        assert set(chunk.dictionary.to_pylist()) == labels
        assert pq.read_schema(file).metadata is None  # the numbers of queries tell how many objects there are


def test_a_subscriber_who_lost_the_right_to_a_query_gets_no_notice_of_its_end(tmp_path: Path) -> None:
    found = bench(tmp_path)
    found.query("q", "SELECT COUNT(*) AS n FROM s [ROWS 9]", mode=Mode.CUMULATIVE)
    found.queries["q"] = replace(found.queries["q"], most_state=1)
    found.subscribed(ann=("q", "nurse"))
    found.now = replace(found.now, subscribers=(*found.now.subscribers, Subscriber("spy", "q", None)))
    found.begin(found.files())
    found.take("s", ("nurse", 1, ""), ("nurse", 2, ""), ("nurse", 3, ""))
    found.end()
    assert "ended" in (tmp_path / "out" / "ann" / "q.jsonl").read_text()
    assert not (tmp_path / "out" / "spy").exists()
