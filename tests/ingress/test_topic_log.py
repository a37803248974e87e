"""The ingress log in topics, with the broker that is part of Kafka's client: it takes messages and transactions, but
never fails. What happens when a real broker or the server is killed is in `tests/system/test_topic_log.py`."""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from headgate.errors import HeadgateError, SourceError, StoreError, Unavailable
from headgate.ingress import topic_log
from headgate.ingress.sequence_numbers import OutOfOrder, Producer
from headgate.ingress.topic_log import TopicLog, _values
from headgate.ingress.topics import Brokers, stored_identity
from headgate.server.ingress import check_kind, open_log
from headgate.server.settings import Settings

SAM = Producer("sam", "U", "p")


def table(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


@pytest.fixture
def servers() -> Iterator[str]:
    """Brokers in this process, as long as the client that has them lives."""
    client = KafkaProducer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    yield ",".join(f"{x.host}:{x.port}" for x in client.list_topics(timeout=10).brokers.values())
    del client


@pytest.fixture
def log(tmp_path: Path, servers: str) -> Iterator[TopicLog]:
    opened = TopicLog(tmp_path, Brokers(servers))
    yield opened
    opened.close()


def rows(log: TopicLog, stream: str = "s") -> list[int]:
    """The tuples in a topic."""
    reading = {"group.id": "test", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer(log.topics.brokers.client() | reading)
    consumer.assign([TopicPartition(log.topics.name(stream), 0, 0)])
    found: list[int] = []
    try:
        while True:
            message = consumer.poll(10)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            with pa.ipc.open_stream(message.value()) as reader:
                found += reader.read_all().column("n").to_pylist()
    finally:
        consumer.close()


def test_what_is_acknowledged_is_in_the_topic_in_order(log: TopicLog) -> None:
    waiting = [log.append("s", table(n, n + 1), SAM) for n in range(0, 200, 2)]
    assert [x.result(20).rows for x in waiting] == [2] * 100
    assert log.append("other", table(7), SAM).result(20).rows == 1
    assert rows(log) == list(range(200)) and rows(log, "other") == [7]
    assert log.rows == 201 and log.waiting("s") is None and not log.is_full("s")


def test_a_number_is_taken_once_also_after_a_restart(tmp_path: Path, servers: str) -> None:
    log = TopicLog(tmp_path, Brokers(servers))
    assert not log.append("s", table(1), SAM, 1).result(20).is_repeat
    assert log.append("s", table(1), SAM, 1).result(20).is_repeat
    group = [log.append("s", table(n), SAM, n) for n in (2, 2, 3, 2)]
    assert [x.result(20).is_repeat for x in group] == [False, True, False, True]
    log.close()
    log = TopicLog(tmp_path, Brokers(servers))
    assert log.append("s", table(3), SAM, 3).result(20).is_repeat
    assert not log.append("s", table(9), Producer("sam", "S", "p"), 1).result(20).is_repeat
    with pytest.raises(OutOfOrder, match="4 comes next"):
        log.append("s", table(5), SAM, 5).result(20)
    assert rows(log) == [1, 2, 3, 9]
    log.close()


def test_numbers_that_only_the_topic_has_are_read_from_it(tmp_path: Path, servers: str) -> None:
    """As after a crash between the commit in Kafka and the record beside the log, or with an older home folder."""
    log = TopicLog(tmp_path, Brokers(servers))
    for n in range(1, 4):
        log.append("s", table(n), SAM, n).result(20)
    log.append("s", table(), Producer("ann", "U"), 1).result(20)  # a number without a tuple counts too
    log.close()
    with sqlite3.connect(tmp_path / "topics.db") as store:
        store.execute("UPDATE producers SET last = 1 WHERE user = 'sam'")
        store.execute("DELETE FROM producers WHERE user = 'ann'")
        store.execute("DELETE FROM topics")
    store.close()
    log = TopicLog(tmp_path, Brokers(servers))
    assert log.append("s", table(3), SAM, 3).result(20).is_repeat
    assert log.append("s", table(), Producer("ann", "U"), 1).result(20).is_repeat
    assert not log.append("s", table(4), SAM, 4).result(20).is_repeat
    assert rows(log) == [1, 2, 3, 4]
    log.close()


def test_a_topic_that_ends_too_early_takes_nothing_and_others_do(tmp_path: Path, servers: str) -> None:
    log = TopicLog(tmp_path, Brokers(servers))
    log.append("s", table(1), SAM, 1).result(20)
    log.close()
    with sqlite3.connect(tmp_path / "topics.db") as store:
        store.execute("UPDATE topics SET upto = 1000")
    store.close()
    log = TopicLog(tmp_path, Brokers(servers))
    lost, other = log.append("s", table(2), SAM, 2), log.append("other", table(2), SAM, 1)
    with pytest.raises(StoreError, match="its topic ends before the last tuples that it took"):
        lost.result(20)
    assert other.result(20).rows == 1
    log.close()


def test_a_broker_that_is_away_is_said_at_once_the_second_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = TopicLog(tmp_path, Brokers(f"127.0.0.1:{port}"), seconds=0.5)
    with pytest.raises(Unavailable, match="Kafka does not take them"):
        log.append("s", table(1), SAM, 1).result(20)
    begin = time.monotonic()
    with pytest.raises(Unavailable) as error:
        log.append("s", table(1), SAM, 1).result(20)
    assert time.monotonic() - begin < 0.4 and str(port) not in str(error.value)
    assert log.topics.source("s")[0] == "kafka"  # the engine's own reader says what it cannot read
    log.close()


def test_a_fault_leaves_nothing_acknowledged_and_what_is_sent_again_counts_once(
    log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka commits, and the answer is lost on its way."""
    log.append("s", table(1), SAM, 1).result(20)
    monkeypatch.setattr(topic_log, "_PAUSE", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(TopicLog, "_remember", _lost)
        with pytest.raises(Unavailable):
            log.append("s", table(2), SAM, 2).result(20)
    assert log.append("s", table(2), SAM, 2).result(20).is_repeat
    assert rows(log) == [1, 2]


def _lost(*_: object) -> None:
    raise Unavailable("lost")


def test_messages_of_others_in_a_topic_end_its_use(tmp_path: Path, servers: str) -> None:
    log = TopicLog(tmp_path, Brokers(servers))
    log.append("s", table(1), SAM, 1).result(20)
    log.close()
    stranger = KafkaProducer(log.topics.brokers.client())
    stranger.produce(log.topics.name("s"), b"forged", partition=0)
    stranger.flush()
    log = TopicLog(tmp_path, Brokers(servers))
    with pytest.raises(StoreError, match="its topic holds messages of others"):
        log.append("s", table(2), SAM, 2).result(20)
    assert log.append("other", table(2), SAM, 1).result(20).rows == 1
    log.close()


def test_rows_are_divided_into_messages_that_brokers_take() -> None:
    long = pa.table({"t": ["x" * 200_000] * 20 + ["y" * 2_000_000, "z"]})
    values = list(_values(long))
    assert pa.concat_tables([pa.ipc.open_stream(x).read_all() for x in values]).equals(long)
    assert sorted(len(x) > 900_000 for x in values) == [False] * (len(values) - 1) + [True]
    assert [pa.ipc.open_stream(x).read_all().num_rows for x in _values(table())] == [0]
    uneven = pa.table({"t": ["x"] * 5000 + ["y" * 100_000] * 30})
    assert pa.concat_tables([pa.ipc.open_stream(x).read_all() for x in _values(uneven)]).equals(uneven)


def test_the_identity_of_the_home_folder_is_on_the_disk_before_anything_is_published(
    tmp_path: Path, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that fails loses what was not flushed; with another identity, what is acknowledged would be lost."""
    flushed: list[int] = []

    def connect(*given: Any, **more: Any) -> sqlite3.Connection:
        return Noting(*given, **more)

    class Noting(sqlite3.Connection):
        def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
            if statement.startswith(("INSERT OR IGNORE INTO identity", "BEGIN")):
                flushed.append(super().execute("PRAGMA synchronous").fetchone()[0])
            return super().execute(statement, *given)

    monkeypatch.setattr(sqlite3, "connect", connect)
    log = TopicLog(tmp_path, Brokers(servers))
    log.append("s", table(1), SAM, 1).result(20)
    log.close()
    assert flushed[0] == 2 and set(flushed[1:]) == {1}  # FULL; NORMAL for what the topic holds too


def test_streams_that_are_gone_are_forgotten(tmp_path: Path, servers: str) -> None:
    log = TopicLog(tmp_path, Brokers(servers))
    for name in ("s", "other"):
        log.append(name, table(1), SAM, 1).result(20)
    log.close()
    log = TopicLog(tmp_path, Brokers(servers))
    log.keep({"other"})
    log.close()
    with sqlite3.connect(tmp_path / "topics.db") as store:
        assert store.execute("SELECT stream FROM topics").fetchall() == [("other",)]
        assert store.execute("SELECT DISTINCT stream FROM producers").fetchall() == [("other",)]
    store.close()


# Settings -------------------------------------------------------------------------------------------------------------


def test_one_file_of_properties_serves_both_clients(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\nrequest.timeout.ms=5000\n"
        "ssl.truststore.location=/a.pem\nsasl.jaas.config=" + module + ' username="sam" password="a\\"b\\\\c";\n'
    )
    brokers = Brokers("h:1", str(file))
    client = brokers.client()
    assert {name: value for name, value in client.items() if name not in ("logger", "error_cb")} == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.ca.location": "/a.pem",
        "sasl.username": "sam",
        "sasl.password": 'a"b\\c',
    }
    assert 'a"b' not in repr(brokers) and brokers.spark() == {"servers": "h:1", "properties": str(file)}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ssl.truststore.type=JKS", "cannot publish to Kafka with the setting `ssl.truststore.type`"),
        ("sasl.kerberos.service.name=secret", "cannot publish to Kafka with the setting `sasl.kerberos.service.name`"),
        (
            "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required secret;",
            "cannot publish to Kafka: the setting `sasl.jaas.config` has no username and password",
        ),
        ("interceptor.classes=secret", "line 1 is no setting that a source has"),
    ],
)
def test_what_the_client_cannot_do_is_refused_and_not_repeated(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_text(line)
    with pytest.raises(SourceError) as error:
        Brokers("h:1", str(tmp_path / "p")).client()
    assert message in str(error.value) and "secret" not in str(error.value)


def test_a_home_folder_keeps_the_kind_of_its_log(tmp_path: Path, servers: str) -> None:
    files, topics = Settings(), replace(Settings(), kafka_servers=servers)
    log, source = open_log(tmp_path / "a", files)
    check_kind(tmp_path / "b", topics)
    log.append("s", table(1), SAM).result(20)
    log.close()
    assert source("s")[0] == "parquet"
    with pytest.raises(HeadgateError, match="cannot publish into Kafka: the home folder has published tuples elsewh"):
        open_log(tmp_path / "a", topics)
    log = TopicLog(tmp_path / "b", Brokers(servers))
    check_kind(tmp_path / "b", files)  # nothing was published yet
    log.append("s", table(1), SAM).result(20)
    log.close()
    with pytest.raises(HeadgateError, match="cannot publish into files"):
        open_log(tmp_path / "b", files)
    assert log.topics.identity == stored_identity(tmp_path / "b")
    with pytest.raises(StoreError, match="has published nothing to Kafka yet"):
        stored_identity(tmp_path / "a")


def test_topics_of_two_home_folders_are_different(tmp_path: Path, servers: str) -> None:
    logs = [TopicLog(tmp_path / name, Brokers(servers, beginning="ward")) for name in "ab"]
    names = {log.topics.name("root.pulse") for log in logs}
    assert len(names) == 2 and all(name.startswith("ward-") and len(name) < 249 for name in names)
    for log in logs:
        log.close()
