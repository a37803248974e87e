"""A temporary Kafka broker: one process that is broker and controller (KRaft), because a fake would not lose
connections, restart or reject a login as a real one does.

It belongs to one test run: its data is in a temporary directory, and it listens only on 127.0.0.1. It can be restarted
in place: the same port, the same topics. `scripts/ensure-kafka.sh broker` installs its jars.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from headgate.errors import HeadgateError
from headgate.ingress.kafka_jars import kafka_folder

_HOST = "127.0.0.1"
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_MEMORY = "-Xmx512m"


class KafkaBroker:
    """One broker process and its directory; `start` returns when the broker accepts connections, `stop` when both are
    gone. With `users` a client must log in (SASL PLAIN); with `tls` (PEM files of certificate, key
    and authority) it speaks TLS."""

    def __init__(
        self, users: Mapping[str, str] | None = None, tls: tuple[Path, Path, Path] | None = None, **settings: str
    ) -> None:
        self._users = users or {}
        self._tls = tls
        self._settings = settings
        self._jars = kafka_folder() / "broker"
        if not list(self._jars.glob("kafka_*.jar")):
            raise HeadgateError(
                "no Kafka broker was found on this machine", hint="run `scripts/ensure-kafka.sh broker`"
            )
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = self._controller = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def servers(self) -> str:
        return f"{_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise HeadgateError("the Kafka broker is not running")
        return self._process.pid

    def start(self) -> None:
        """Formats the storage and starts on free ports."""
        self._directory = Path(tempfile.mkdtemp(prefix="headgate-kafka-"))
        self._port, self._controller = _free_ports()
        (self._directory / "server.properties").write_text(self._configuration())
        cluster = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "A")
        words = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", "server.properties"]
        if self._spawn(words).wait(_START_SECONDS) != 0:
            raise HeadgateError(f"the Kafka broker could not format its storage: {self._last_log_line()}")
        self.resume()

    def resume(self) -> None:
        """Starts the process, again after `interrupt`."""
        self._process = self._spawn(["kafka.Kafka", "server.properties"])
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError), socket.create_connection((_HOST, self._port), 1):
                return
            time.sleep(0.05)
        raise HeadgateError(f"the Kafka broker did not start: {self._last_log_line()}")

    def interrupt(self, order: int = signal.SIGTERM) -> None:
        """Ends the process and keeps topics and port."""
        if self._process is not None:
            self._process.send_signal(order)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def stop(self) -> None:
        self.interrupt(signal.SIGKILL)  # nobody needs its data any more
        if self._directory is not None:
            shutil.rmtree(self._directory)
            self._directory = None

    def _configuration(self) -> str:
        protocol = ("SASL_" if self._users else "") + ("SSL" if self._tls else "PLAINTEXT")
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{_HOST}:{self._controller}",
            "listeners": f"CLIENTS://{_HOST}:{self._port},CONTROLLER://{_HOST}:{self._controller}",
            "advertised.listeners": f"CLIENTS://{self.servers}",
            "listener.security.protocol.map": f"CLIENTS:{protocol},CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "CLIENTS",
            "log.dirs": f"{self._directory}/data",
            "num.partitions": "2",
            "log.retention.ms": "-1",  # tests send messages of years ago, and they must stay
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        if self._tls:
            certificate, key, authority = self._tls
            store = Path(f"{self._directory}/broker.pem")  # Kafka wants key and certificate in one file
            store.touch(mode=0o600)
            store.write_text(key.read_text() + certificate.read_text())
            for name, file in (("keystore", store), ("truststore", authority)):
                lines |= {f"ssl.{name}.type": "PEM", f"ssl.{name}.location": str(file)}
        if self._users:
            accounts = "".join(f' user_{name}="{password}"' for name, password in self._users.items())
            name, password = next(iter(self._users.items()))
            module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            jaas = f'{module} username="{name}" password="{password}"{accounts};'
            lines |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.clients.plain.sasl.jaas.config": jaas,
            }
        return "".join(f"{name}={value}\n" for name, value in (lines | self._settings).items())

    def _spawn(self, words: list[str]) -> subprocess.Popen[bytes]:
        """Runs in the broker's directory, with a log, in a session of its own: Ctrl-C reaches the tests, which stop the
        broker in their order."""
        assert self._directory is not None  # noqa: S101 - called after start made it
        java = os.path.join(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else "java"
        descriptor = os.open(self._directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return subprocess.Popen(  # noqa: S603 - a list, made of our own paths and settings
                [java, _MEMORY, "-cp", f"{self._jars}/*", *words],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    def _last_log_line(self) -> str:
        assert self._directory is not None  # noqa: S101
        lines = (self._directory / "log").read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote no log")


@contextmanager
def running_kafka() -> Iterator[KafkaBroker]:
    """A broker for the duration of a `with`."""
    with KafkaBroker() as broker:
        yield broker


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind((_HOST, 0))
        second.bind((_HOST, 0))
        return first.getsockname()[1], second.getsockname()[1]
