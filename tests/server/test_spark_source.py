"""Headgate as a source and a sink of somebody's Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import PASSWORD
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headgate
from headgate.client.spark import SessionOptions, StreamReader
from headgate.errors import Conflict, HeadgateError
from server.serving import Server

GRANTS = """CREATE STREAM {0} (n INT, word STRING) LABEL 'nurse' SOURCE publish;
GRANT VIEW OBJECT, PUBLISH ON STREAM {0} TO sender; GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM {0} TO nurse"""


def options(server: Server, user: str, stream: str) -> dict[str, str]:
    certificate = str(server.home / "tls" / "authority.pem")
    named = {"url": server.address, "stream": f"root.{stream}", "certificate": certificate}
    return named | {"user": user, "password": PASSWORD, "level": "U"}


def values(server: Server, stream: str, count: int) -> list[int]:
    """The first results of a stream, as the nurse gets them, and whatever else has come by then."""
    given = options(server, "ned", stream)
    with headgate.connect(given["url"], "ned", PASSWORD, certificate=given["certificate"]) as ned:
        found: list[int] = []
        for received in ned.subscribe(f"root.{stream}"):
            found += [received.values["n"]] if received.values else []
            if len(found) >= count:
                break
        return [*map(int, ned.arrow(f"root.{stream}").column("n").to_pylist())]


def to_its_end(query: StreamingQuery) -> None:
    try:
        query.processAllAvailable()
    finally:
        query.stop()


@pytest.mark.long
def test_what_spark_publishes_is_there_once_and_can_be_read_by_spark(
    server: Server, spark: SparkSession, tmp_path: Path
) -> None:
    server.run(GRANTS.format("sparks"))
    server.run("SUBSCRIBE TO root.sparks", "ned")
    spark.dataSource.register(headgate.DataSource)
    written: Any = spark.range(3).selectExpr("CAST(id AS INT) AS n", "'a' AS word")
    written.write.format("headgate").mode("append").options(**options(server, "sam", "sparks")).save()
    assert values(server, "sparks", 3) == [0, 1, 2]

    (tmp_path / "in").mkdir()
    more = spark.range(10, 14).selectExpr("CAST(id AS INT) AS n", "'b' AS word")
    more.write.mode("append").json(str(tmp_path / "in"))
    stream = spark.readStream.schema("n INT, word STRING").json(str(tmp_path / "in"))
    sink = stream.writeStream.format("headgate").options(**options(server, "sam", "sparks"))
    sink = sink.option("checkpointLocation", str(tmp_path / "out"))
    to_its_end(sink.start())
    assert sorted(values(server, "sparks", 7)) == [0, 1, 2, 10, 11, 12, 13]
    (tmp_path / "out" / "commits" / "0").unlink()  # as if Spark had been killed before it noted that the batch is done
    (tmp_path / "out" / "commits" / ".0.crc").unlink(missing_ok=True)
    to_its_end(sink.start())
    assert sorted(values(server, "sparks", 7)) == [0, 1, 2, 10, 11, 12, 13]

    frame = spark.read.format("headgate").options(**options(server, "ned", "sparks")).load()
    assert frame.columns == ["headgate_position", "headgate_time", "headgate_label", "n", "word"]
    assert sorted(x.n for x in frame.collect()) == [0, 1, 2, 10, 11, 12, 13]
    source = spark.readStream.format("headgate").options(**options(server, "ned", "sparks")).load()
    kept = source.writeStream.format("parquet").option("path", str(tmp_path / "kept"))
    kept = kept.option("checkpointLocation", str(tmp_path / "reading"))
    to_its_end(kept.start())
    server.publish({"n": 20, "word": "c"}, stream="root.sparks")
    assert len(values(server, "sparks", 8)) == 8
    to_its_end(kept.start())
    assert sorted(x.n for x in spark.read.parquet(str(tmp_path / "kept")).collect()) == [0, 1, 2, 10, 11, 12, 13, 20]


@pytest.mark.long
def test_a_data_frame_of_spark_is_published_like_other_rows(server: Server, spark: SparkSession) -> None:
    server.run(GRANTS.format("frames"))
    server.run("SUBSCRIBE TO root.frames", "ned")
    given = options(server, "sam", "frames")
    frame = spark.range(3).selectExpr("CAST(id AS INT) AS n", "'a' AS word")
    with headgate.connect(given["url"], "sam", PASSWORD, level="U", certificate=given["certificate"]) as sam:
        sam.publish("root.frames", frame)
        wrong = spark.range(1).selectExpr("'x' AS n", "'a' AS word")
        with pytest.raises(HeadgateError):
            sam.publish("root.frames", wrong)
        sam.publish("root.frames", [{"n": 3, "word": "b"}])
    assert values(server, "frames", 4) == [0, 1, 2, 3]


def test_a_batch_is_read_again_as_it_was_or_not_at_all(server: Server) -> None:
    server.run(GRANTS.format("twice"))
    server.run("SUBSCRIBE TO root.twice", "ned")
    server.publish(*({"n": n, "word": "x"} for n in range(3)), stream="root.twice")
    values(server, "twice", 3)
    reader = StreamReader(SessionOptions(options(server, "ned", "twice")))
    rows, end = reader.read(reader.initialOffset())
    first = list(rows)
    assert [row[3] for row in first] == [0, 1, 2]
    server.publish({"n": 3, "word": "x"}, stream="root.twice")
    values(server, "twice", 4)
    assert list(reader.readBetweenOffsets(reader.initialOffset(), end)) == first
    assert [row[3] for row in reader.read(end)[0]] == [3]
    assert list(reader.readBetweenOffsets(end, end)) == []
    server.run("REVOKE READ TUPLE ON STREAM twice FROM nurse")
    with pytest.raises(Conflict, match="cannot read a batch again"):
        reader.readBetweenOffsets(reader.initialOffset(), end)


def test_a_missing_option_is_named() -> None:
    with pytest.raises(Conflict, match="the option `stream` is missing"):
        headgate.DataSource({"url": "https://127.0.0.1"})
