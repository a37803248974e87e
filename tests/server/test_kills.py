"""`kill -9` of the server while senders publish and readers read: acknowledged tuples are delivered once, in order."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ADMIN, KEY, PASSWORD, cheap_passwords

from headgate.client import Client, connect
from headgate.server.certificates import own_certificate
from headgate.service import Headgate
from server.serving import WARD

WORKER = Path(__file__).with_name("kill_worker.py")
SENDERS, END = 2, -1
_PAUSE = 0.04
"""Senders without a pause outrun the engine, and whoever waits for what was sent before a kill waits ever longer."""


class Killed:
    """A home folder and the process that serves it."""

    def __init__(
        self, home: Path, kind: str, script: str = WARD, architecture: str = "trusted", brokers: str = ""
    ) -> None:
        self.home, self.kind, self.architecture, self.brokers = home, kind, architecture, brokers
        home.chmod(0o700)
        headgate = Headgate(f"sqlite:///{home / 'headgate.db'}", KEY, passwords=cheap_passwords())
        headgate.initialise(ADMIN, PASSWORD)
        headgate.execute(headgate.login(ADMIN, PASSWORD), script)
        headgate.close()
        own_certificate(home / "tls", "127.0.0.1")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[str] | None = None
        self.clients: list[Client] = []

    def start(self) -> None:
        command = [sys.executable, str(WORKER), str(self.home), str(self.port), self.kind, self.architecture]
        command += [self.brokers] if self.brokers else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("https://")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def client(self, user: str, level: str = "U") -> Client:
        certificate = self.home / "tls" / "authority.pem"
        url = f"https://127.0.0.1:{self.port}"
        self.clients.append(connect(url, user, PASSWORD, level=level, certificate=certificate))
        return self.clients[-1]


class Sender(threading.Thread):
    """Publishes numbers until it is asked to end; each number was acknowledged when it is in `sent`."""

    def __init__(self, client: Client, number: int) -> None:
        super().__init__(daemon=True)
        self._client, self.number = client, number
        self.sent: list[int] = []
        self.ending = threading.Event()

    def run(self) -> None:
        chance = random.Random(self.number)
        publisher = self._client.publisher("root.pulse", producer=f"p{self.number}")
        last = 0
        while not self.ending.is_set():
            some = range(last + 1, last + 1 + chance.randint(1, 20))
            publisher.send([{"pat": self.number, "rate": n, "policy": "nurse"} for n in some], seconds=120)
            self.sent += some
            last = some[-1]
            self.ending.wait(_PAUSE)


class Reader(threading.Thread):
    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._client = client
        self.found: dict[int, list[int]] = {}
        self.changed = threading.Condition()

    def run(self) -> None:
        for received in self._client.subscribe("root.pulse"):
            if received.values is not None:
                if received.values["pat"] == END:
                    return
                with self.changed:
                    self.found.setdefault(received.values["pat"], []).append(received.values["rate"])
                    self.changed.notify_all()

    def wait_for(self, sent: dict[int, list[int]], seconds: float) -> bool:
        def all_there() -> bool:
            return all(len(self.found.get(number, [])) >= len(some) for number, some in sent.items())

        with self.changed:
            return self.changed.wait_for(all_there, seconds)


def survive(home: Path, kind: str, kills: int, brokers: str = "", between: Callable[[], None] = lambda: None) -> None:
    """`between` is done after each kill, before the server starts again."""
    server, chance = Killed(home, kind, brokers=brokers), random.Random(7)
    server.start()
    try:
        readers = [Reader(server.client(user)) for user in ("ned", "dora")]
        for reader in readers:
            reader.start()
        senders = [Sender(server.client("sam"), number) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        for _ in range(kills):
            goal = {x.number: [*x.sent, *range(chance.randint(5, 60))] for x in senders}
            assert readers[0].wait_for(goal, 120), "nothing comes any more"
            server.kill()
            between()
            server.start()
        for sender in senders:
            sender.ending.set()
            sender.join(120)
            assert not sender.is_alive()
        server.client("sam").publish("root.pulse", [{"pat": END, "rate": 0, "policy": "nurse"}])
        for reader in readers:
            reader.join(120)
            assert reader.found == {x.number: x.sent for x in senders}
    finally:
        server.kill()
        for client in server.clients:
            client.close()


def test_each_acknowledged_tuple_is_delivered_once_whatever_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, "direct", 2)


@pytest.mark.long
def test_each_acknowledged_tuple_is_delivered_once_in_50_kills(tmp_path: Path) -> None:
    survive(tmp_path, "direct", int(os.environ.get("HEADGATE_KILLS", "50")))


@pytest.mark.long
def test_each_acknowledged_tuple_is_delivered_once_in_50_kills_with_spark(tmp_path: Path) -> None:
    survive(tmp_path, "spark", int(os.environ.get("HEADGATE_KILLS", "50")))
