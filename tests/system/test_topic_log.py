"""The ingress log in topics of a real broker: the server and the broker are killed while senders publish."""

from __future__ import annotations

import os
import random
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, TopicPartition
from conftest import ADMIN, PASSWORD
from server.serving import WARD
from server.test_kills import Killed, survive

from headgate.cli import main
from headgate.client import Client, connect
from headgate.errors import StoreError, Unavailable
from headgate.ingress.sequence_numbers import Producer
from headgate.ingress.topic_log import TopicLog
from headgate.ingress.topics import Brokers, Topics, stored_identity
from headgate.server.certificates import own_certificate
from headgate.service import Headgate
from headgate.testing.kafka import KafkaBroker

pytestmark = pytest.mark.long

WORKER = Path(__file__).with_name("topic_worker.py")
SAM = Producer("sam", "U")


def contents(topics: Topics, stream: str) -> list[dict[str, Any]]:
    """The committed tuples of a topic, in their order."""
    reading = {"group.id": "test", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer(topics.brokers.client() | reading)
    consumer.assign([TopicPartition(topics.name(stream), 0, 0)])
    rows: list[dict[str, Any]] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return rows
            with pa.ipc.open_stream(message.value()) as reader:
                rows += reader.read_all().to_pylist()
    finally:
        consumer.close()


class Log:
    """The process with the log."""

    def __init__(self, folder: Path, brokers: str) -> None:
        self._command = [sys.executable, str(WORKER), str(folder), brokers]
        self.acknowledged: dict[str, int] = {}
        self.refusals: list[str] = []
        self.answered = threading.Condition()
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def wait(self) -> None:
        self.process.wait(60)
        self._reader.join(60)
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    def wait_for(self, total: int) -> None:
        with self.answered:
            enough = self.answered.wait_for(lambda: self.total() >= total, 120)
        assert enough, f"nothing is taken: {self.refusals[-3:]}"

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            producer, number, *why = line.split()
            with self.answered:
                if number == "-":
                    self.refusals.append(" ".join(why))
                else:
                    self.acknowledged[producer] = max(self.acknowledged.get(producer, 0), int(number))
                self.answered.notify_all()
            if number == "-":
                time.sleep(0.2)
            self.send(producer)

    def send(self, producer: str) -> None:
        """The number after the last one that was acknowledged."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(f"{producer} {self.acknowledged.get(producer, 0) + 1}\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # it was killed; its successor gets it

    def total(self) -> int:
        return sum(self.acknowledged.values())


@pytest.mark.parametrize("broker_too", [False, True])
def test_each_acknowledged_tuple_is_in_its_topic_once_whatever_is_killed(tmp_path: Path, broker_too: bool) -> None:
    """Producers send one number after the other, into two streams in turn; what was not answered is sent again."""
    kills, chance = int(os.environ.get("HEADGATE_KILLS", "50")) // (5 if broker_too else 1), random.Random(5)
    producers = [f"p{n}" for n in range(4)]
    with KafkaBroker() as broker:
        log = Log(tmp_path, broker.servers)
        for number in range(kills):
            before = log.total()
            for producer in producers:
                log.send(producer)
            log.wait_for(before + chance.randint(4, 300))
            if broker_too and number % 2:
                broker.interrupt(chance.choice([signal.SIGKILL, signal.SIGTERM]))
                broker.resume()
                continue  # the log lives, and goes on by itself
            if broker_too:
                broker.interrupt(signal.SIGKILL)
            time.sleep(chance.random() / 20)
            log.kill()
            if broker_too:
                broker.resume()
            log.start()
        for producer in producers:
            log.send(producer)
        log.wait_for(log.total() + 20)
        assert log.process.stdin is not None
        log.process.stdin.close()  # it answers what it has
        log.wait()
        topics = Topics(Brokers(broker.servers), stored_identity(tmp_path))
        sizes = []
        for odd in (0, 1):
            rows = contents(topics, f"stream {odd}")
            sizes.append(len(rows))
            for producer in producers:
                numbers = [row["n"] for row in rows if row["who"] == producer]
                assert numbers == list(range(2 - odd, 2 * len(numbers) + 1, 2)), producer
                assert not numbers or numbers[-1] >= log.acknowledged[producer] - 1
        print(f"{sizes} tuples, {log.total()} acknowledged, {kills} kills")


def repeated(log: TopicLog, value: int, sequence: int) -> str:
    """Sends a request until it is taken, or refused for good."""
    while True:
        try:
            log.append("s", pa.table({"n": [value]}), SAM, sequence).result(60)
            return ""
        except Unavailable:
            time.sleep(0.2)
        except StoreError as error:
            return error.message


def test_who_opens_the_log_elsewhere_takes_it_over(tmp_path: Path) -> None:
    """A copy of the home folder: the first server writes nothing any more, and says why."""
    with KafkaBroker() as broker:
        log = TopicLog(tmp_path / "a", Brokers(broker.servers))
        assert not log.append("s", pa.table({"n": [1]}), SAM, 1).result(60).is_repeat
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        other = TopicLog(tmp_path / "b", Brokers(broker.servers))
        assert other.append("s", pa.table({"n": [1]}), SAM, 1).result(60).is_repeat
        assert not other.append("s", pa.table({"n": [2]}), SAM, 2).result(60).is_repeat
        assert "another server writes the topics of this home folder" in repeated(log, 3, 2)
        assert repeated(other, 4, 3) == ""
        assert "another server" in repeated(log, 3, 2)
        assert [x["n"] for x in contents(log.topics, "s")] == [1, 2, 4]
        log.close()
        other.close()


def test_a_row_that_the_topic_does_not_take_fails_alone(tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        log = TopicLog(tmp_path, Brokers(broker.servers))
        requests = [log.append("s", pa.table({"t": [os.urandom(size).hex()]}), SAM, None) for size in (9, 11 << 20, 9)]
        assert requests[0].result(60).rows == requests[2].result(60).rows == 1
        with pytest.raises(Exception, match="a row of it is larger than a message of its topic may be"):
            requests[1].result(60)
        assert len(contents(log.topics, "s")) == 2
        log.close()


def test_the_password_of_the_brokers_is_shown_nowhere(tmp_path: Path) -> None:
    """The whole server, with a broker that speaks TLS and wants a login: what is published reaches a subscriber."""
    secret, home, clients = "Tr0ub4dor-und-mehr", tmp_path / "home", list[Client]()
    authority = tmp_path / "tls/authority.pem"
    files = (*own_certificate(authority.parent, "127.0.0.1"), authority)
    with KafkaBroker({"engine": secret}, files) as broker:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        properties = tmp_path / "client.properties"
        properties.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={authority}\n"
            f'sasl.jaas.config={module} username="engine" password="{secret}";\n'
        )
        headgate = Headgate.at_home(home, create=True)
        headgate.initialise(ADMIN, PASSWORD)
        headgate.execute(headgate.login(ADMIN, PASSWORD), WARD)
        headgate.close()
        (home / "server.toml").write_text(
            f'kafka_servers = "{broker.servers}"\nkafka_properties = "{properties}"\nport = 0\nkafka_topics = "ward"\n'
        )
        (home / "server.toml").chmod(0o600)
        shown = CliRunner().invoke(main, ["--home", str(home), "config"]).output
        assert f"kafka_servers = '{broker.servers}'  # server.toml" in shown and "kafka_topics = 'ward'" in shown
        words = ["--home", str(home), "--log-level", "debug", "serve"]
        command = [sys.executable, "-c", "from headgate.cli import main; main()", *words]
        with (tmp_path / "log").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            until = time.monotonic() + 120
            while "serving at" not in (tmp_path / "log").read_text():
                assert process.poll() is None and time.monotonic() < until, (tmp_path / "log").read_text()
                time.sleep(0.2)
            url = (tmp_path / "log").read_text().partition("serving at ")[2].split()[0]
            trust = home / "tls" / "authority.pem"
            ned, sam = (connect(url, user, PASSWORD, level="U", certificate=trust) for user in ("ned", "sam"))
            clients += [ned, sam]
            sam.publish("root.pulse", [{"pat": n, "rate": n, "policy": "nurse"} for n in range(5)])
            came = []
            for received in ned.subscribe("root.pulse"):
                came += [received.values["pat"]] if received.values is not None else []
                if len(came) == 5:
                    break
            assert came == list(range(5))
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    assert secret.encode() not in (folder / "cmdline").read_bytes()
                except OSError:
                    continue
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
            for client in clients:
                client.close()
    assert secret not in shown and secret not in (tmp_path / "log").read_text()
    for path in home.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_each_acknowledged_tuple_is_delivered_once_when_server_and_broker_are_killed(tmp_path: Path) -> None:
    kills, chance = int(os.environ.get("HEADGATE_KAFKA_KILLS", "20")), random.Random(3)
    with KafkaBroker() as broker:

        def between() -> None:
            if chance.random() < 0.3:
                broker.interrupt(chance.choice([signal.SIGKILL, signal.SIGTERM]))
                broker.resume()

        survive(tmp_path, "spark", kills, broker.servers, between)


def test_while_the_broker_is_away_nothing_is_acknowledged_and_nothing_is_lost(tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        server = Killed(tmp_path, "spark", brokers=broker.servers)
        server.start()
        try:
            ned, sam = server.client("ned"), server.client("sam")
            sam.publish("root.pulse", [{"pat": 1, "rate": 1, "policy": "nurse"}])
            broker.interrupt(signal.SIGKILL)
            address = f"https://127.0.0.1:{server.port}/v1/streams/root.pulse/tuples"
            context = ssl.create_default_context(cafile=tmp_path / "tls" / "authority.pem")
            headers = {"Authorization": f"Bearer {sam.token}", "Content-Type": "application/x-ndjson"}
            headers |= {"Headgate-Producer": "p", "Headgate-Sequence": "1"}
            body = '{"pat": 2, "rate": 2, "policy": "nurse"}'
            with httpx.Client(verify=context, timeout=60) as bare:
                refused = bare.post(address, content=body, headers=headers)
                assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1"), refused.text
                broker.resume()
                until = time.monotonic() + 120
                while (taken := bare.post(address, content=body, headers=headers)).status_code == 503:
                    assert time.monotonic() < until
                    time.sleep(0.5)
                assert taken.status_code == 200
                assert bare.post(address, content=body, headers=headers).json() == {"rows": 1, "repeat": True}
            came = []
            for received in ned.subscribe("root.pulse"):
                came += [received.values["pat"]] if received.values is not None else []
                if len(came) == 2:
                    break
            assert came == [1, 2]
        finally:
            server.kill()
            for client in server.clients:
                client.close()
