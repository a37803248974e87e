"""Kafka end to end: a producer, a topic of two partitions, queries of three readers, a topic for each result stream.

Producer and consumer are those of librdkafka, which shares no code with Spark's connector.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headgate.cli import main
from headgate.ingress.validation import plain_value
from headgate.labels import Conjunction, Label
from headgate.labels.text import parse_roles
from headgate.plan.expressions import Value
from headgate.server.certificates import own_certificate
from headgate.service import Headgate
from headgate.testing.kafka import KafkaBroker
from headgate.testing.oracle import Tuple, exact

pytestmark = pytest.mark.long

PASSWORD = "correct horse"
COMMAND = (sys.executable, "-c", "from headgate.cli import main; main()")
BEGIN = dt.datetime(2024, 3, 1, 8, 0, tzinfo=dt.UTC)
PEOPLE = {"dora": "doctor", "nina": "nurse", "adam": "administration"}
POLICIES = ("doctor | nurse", "doctor", "nurse", "doctor | nurse | administration")
QUERIES = ("alarms", "recent", "devices")
SETUP = """
SET SYSTEM idle_minutes = 600;
CREATE ROLE doctor; CREATE ROLE nurse; CREATE ROLE administration;
{users}
CREATE STREAM Vitals (at TIMESTAMP, patient INT, rate INT, device BINARY, policy STRING)
  EVENT TIME at LATENESS 120 SECONDS ROLES FROM policy
  SOURCE kafka (servers = '{servers}', topic = 'vitals', key = 'device', "header.policy" = 'policy',
                maxOffsetsPerTrigger = 250{more});
GRANT VIEW OBJECT, READ TUPLE ON STREAM Vitals TO doctor, nurse, administration;
CREATE QUERY alarms AS SELECT patient, rate WHERE rate > 100 FROM Vitals;
CREATE QUERY recent AS
  SELECT patient, COUNT(*) AS n, MAX(rate) AS top FROM Vitals [RANGE 20 SECONDS] GROUP BY patient;
CREATE QUERY devices AS SELECT device, COUNT(*) AS n FROM Vitals [ROWS 10] GROUP BY device;
START QUERY alarms; START QUERY recent; START QUERY devices;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM alarms TO doctor, nurse, administration;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM recent TO doctor, nurse, administration;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM devices TO doctor, nurse, administration;
"""


class Ward:
    """A store with three readers, and the tuples that were sent."""

    def __init__(self, folder: Path, servers: str, *, more: str = "", client: dict[str, Any] | None = None) -> None:
        self.home = folder / "home"
        self.headgate = Headgate.at_home(self.home, create=True)
        self.headgate.initialise("joe", PASSWORD)
        joe = self.headgate.login("joe", PASSWORD)
        users = "\n".join(
            f"CREATE USER {name} PASSWORD '{PASSWORD}'; GRANT ROLE {role} TO USER {name};"
            for name, role in PEOPLE.items()
        )
        self.headgate.execute(joe, SETUP.format(users=users, servers=servers, more=more))
        for name in PEOPLE:
            token = self.headgate.login(name, PASSWORD)
            self.headgate.execute(token, "; ".join(f"SUBSCRIBE TO joe.{query}" for query in QUERIES))
        login = ["--home", str(self.home), "--session", str(folder / "session"), "login", "joe"]
        done = CliRunner().invoke(main, login, env={"HEADGATE_PASSWORD": PASSWORD})
        assert done.exit_code == 0, done.output
        self.words = ["--home", str(self.home), "--session", str(folder / "session"), "run", "--everyone"]
        self.words += ["--to", "kafka", "--option", f"servers={servers}"]
        self.client = {"bootstrap.servers": servers} | (client or {})
        self.producer = Producer(self.client | {"linger.ms": 5})
        self.random = Random(servers.count(":"))
        self.tuples: list[Tuple] = []

    def send(self, count: int) -> None:
        """Tuples with different event times, which are also their Kafka timestamps. One partition may have all of its
        tuples before the other has any: so many seconds must not make them late."""
        for _ in range(count):
            number = len(self.tuples)
            at = BEGIN + dt.timedelta(milliseconds=250 * number + self.random.randrange(250))
            patient, rate = self.random.randrange(4), self.random.randint(80, 130)
            device = bytes([patient, 0xFF, self.random.randrange(2)])
            value: dict[str, Value] = {"at": at.isoformat(), "patient": patient, "rate": rate}
            self._produce(json.dumps(value).encode(), device, POLICIES[patient], number % 2, at)
            values: dict[str, Value] = {**value, "at": at, "device": device, "policy": POLICIES[patient]}
            label = Label(roles=Conjunction.of(parse_roles(POLICIES[patient])), sources=frozenset({"joe.Vitals"}))
            self.tuples.append(Tuple("joe.Vitals", round(at.timestamp() * 1000), values, label))
        self.producer.flush()

    def send_malformed(self) -> None:
        at = BEGIN
        self._produce(b"{broken", b"d", "doctor", 0, at)
        self._produce(json.dumps({"at": at.isoformat(), "rate": "fast"}).encode(), b"d", "doctor", 1, at)
        self._produce(json.dumps({"at": at.isoformat(), "rate": 7}).encode(), b"d", "doctor &", 1, at)
        self.producer.produce("vitals", b"\xff\xfe", b"d", headers=[("policy", b"a"), ("policy", b"b")], partition=0)
        self.producer.flush()

    def _produce(self, value: bytes, key: bytes, policy: str, partition: int, at: dt.datetime) -> None:
        moment = round(at.timestamp() * 1000)
        headers: list[tuple[str, str | bytes | None]] = [("policy", policy.encode()), ("trace", b"x")]
        self.producer.produce("vitals", value, key, partition, headers=headers, timestamp=moment)

    def expected(self) -> dict[str, list[tuple[Any, ...]]]:
        snapshot, found = self.headgate.snapshot(), {}
        tuples = [Tuple(x.stream, x.time, x.values, snapshot.rules.normal(x.label)) for x in self.tuples]
        for x in snapshot.subscribers:
            running = snapshot.running[x.query]
            results = exact(running.query, tuples, {x.name: snapshot.clearances[x.name, x.query]})[x.name]
            out = self.headgate.snapshots.outgoing(x.name, x.query)
            found[f"headgate.{out.user}.{out.stream}"] = [(y.time, str(y.label), y.values) for y in results]
        return found

    @contextmanager
    def following(self, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
        with (folder / "said").open("ab") as said:
            process = subprocess.Popen(
                [*COMMAND, *self.words, "--follow"],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True, env=os.environ,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)

    def replay(self) -> subprocess.CompletedProcess[str]:
        words = [*COMMAND, *self.words]
        return subprocess.run(words, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, check=False)


def topics(client: dict[str, Any]) -> dict[str, int]:
    found = AdminClient(client).list_topics(timeout=30).topics
    return {name: len(x.partitions) for name, x in found.items() if name.startswith("headgate.")}


def received(client: dict[str, Any], topic: str, partitions: int) -> list[dict[str, Any]]:
    """All messages of a topic, in order of their keys, as a reader has them who drops repeated keys."""
    consumer = Consumer(client | {"group.id": "test", "enable.auto.commit": False})
    try:
        found: dict[bytes, dict[str, Any]] = {}
        for partition in range(partitions):
            place = TopicPartition(topic, partition, 0)
            _, high = consumer.get_watermark_offsets(place, timeout=30)
            consumer.assign([place])
            read = 0
            while read < high:
                for message in consumer.consume(500, timeout=10):
                    assert message.error() is None, message.error()
                    key, value, offset = message.key(), message.value(), message.offset()
                    assert isinstance(key, bytes) and value is not None and offset is not None
                    found[key], read = json.loads(value), offset + 1
        return [found[key] for key in sorted(found, key=_number)]
    finally:
        consumer.close()


def _number(key: bytes) -> tuple[bool, int]:
    """Of a result; notices come after results, and have numbers of their own."""
    number = key.decode().rpartition("/")[2]
    return number.startswith("notice"), int(number.removeprefix("notice "))


def results(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    def moment(text: str) -> int:
        return round(dt.datetime.fromisoformat(text).timestamp() * 1000)

    return [(moment(x["time"]), x["label"], tuple(x["values"].values())) for x in lines if "values" in x]


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(at, label, tuple(map(plain_value, values))) for at, label, values in rows]


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], said: Path) -> None:
    until = time.monotonic() + 300
    while not condition():
        assert process.poll() is None and time.monotonic() < until, said.read_text()
        time.sleep(0.2)


def test_three_readers_receive_exactly_what_the_oracle_says_while_the_broker_restarts(tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        ward = Ward(tmp_path, broker.servers)
        ward.send(400)
        with ward.following(tmp_path) as process:
            alarms = "headgate.dora.joe.alarms"

            def count() -> int:
                with suppress(KafkaException):  # a broker that has just started leads no partition yet
                    known = topics(ward.client)
                    return len(received(ward.client, alarms, known[alarms])) if alarms in known else 0
                return 0

            wait_until(lambda: count() > 0, process, tmp_path / "said")
            ward.send(400)
            before = count()
            broker.interrupt()
            broker.resume()
            ward.send(400)
            wait_until(lambda: count() > before, process, tmp_path / "said")
        ward.send_malformed()
        ward.send(300)
        ended = ward.replay()
        assert ended.returncode == 0, ended.stderr
        right, known = ward.expected(), topics(ward.client)
        found = {name: results(received(ward.client, name, known.get(name, 0))) for name in right}
        for name in (name for name in found if name.endswith("alarms")):
            found[name].sort()  # they come as their tuples do, and Kafka has no order between two partitions
        assert found == {name: plain(rows) for name, rows in right.items()}
        assert sum(map(len, found.values())) > 2000
        rejected = received(ward.client, "headgate.joe.joe.Vitals.rejected", 2)
    places = {(x["headgate_partition"], x["reason"]) for x in map(flat, rejected)}
    form = "it does not have the stream's form"
    assert places == {
        (0, f"{form}: it is not one JSON object"),
        (0, f"{form}: it has header policy twice"),
        (1, f'{form}: rate: `"fast"` is not INT'),
        (1, "its label cannot be read: `policy`: expected a role, `(`, `TRUE` or `FALSE`, found the end of the text"),
    }
    assert all(isinstance(x["headgate_offset"], int) for x in map(flat, rejected))
    print(f"{len(ward.tuples)} tuples, {sum(map(len, found.values()))} results in {len(found)} topics exactly")


def flat(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, **line.get("values", {})}


@pytest.mark.parametrize("tls", [False, True])
def test_a_password_for_kafka_is_shown_nowhere(tmp_path: Path, tls: bool) -> None:
    secret = "Tr0ub4dor-und-mehr"
    files, protocol, trust, trusted = None, "SASL_PLAINTEXT", "", dict[str, str]()
    if tls:
        authority = tmp_path / "tls/authority.pem"
        files, protocol = (*own_certificate(authority.parent, "127.0.0.1"), authority), "SASL_SSL"
        trust = f"ssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
        trusted = {"ssl.ca.location": str(authority)}
    with KafkaBroker({"engine": secret}, files) as broker:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        properties = tmp_path / "client.properties"
        properties.write_text(
            f"# the engine's account\nsecurity.protocol={protocol}\nsasl.mechanism=PLAIN\n{trust}"
            f'sasl.jaas.config={module} username="engine" password="{secret}";\n'
        )
        login = {"security.protocol": protocol, "sasl.mechanism": "PLAIN", "sasl.username": "engine"} | trusted
        ward = Ward(
            tmp_path,
            broker.servers,
            more=f", properties = '{properties}'",
            client=login | {"sasl.password": secret},
        )
        of_sink = tmp_path / "sink.properties"
        of_sink.write_text(properties.read_text())
        ward.words += ["--option", f"properties={of_sink}"]
        ward.send(50)
        with ward.following(tmp_path) as process:
            wait_until(lambda: bool(topics(ward.client)), process, tmp_path / "said")
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    assert secret.encode() not in (folder / "cmdline").read_bytes()
                except OSError:
                    continue
        ended = ward.replay()
        assert ended.returncode == 0, ended.stderr
        properties.write_text(properties.read_text().replace(secret, f"{secret}-wrong"))
        refused = ward.replay()
    assert refused.returncode == 1
    assert "cannot read stream joe.Vitals any further: SaslAuthenticationException" in refused.stderr
    said = [(tmp_path / "said").read_text(), ended.stdout, ended.stderr, refused.stdout, refused.stderr]
    joe = ward.headgate.login("joe", PASSWORD)
    for statement in ("SHOW STREAMS", "SHOW STREAM Vitals", "EXPLAIN QUERY recent"):
        try:
            said.append(str(ward.headgate.execute(joe, statement)))
        except Exception as error:
            said.append(str(error))
    assert not [x for x in said if secret in x]
    for path in ward.home.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
