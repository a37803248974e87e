"""A server for tests: in a thread of this process, without Spark, at a free port of the loopback address."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from conftest import ADMIN, KEY, PASSWORD, cheap_passwords
from levels.harness import ThreadChild

from headgate.clock import Clock
from headgate.egress.delivery_log import DeliveryLog
from headgate.egress.level_logs import LevelLogs
from headgate.egress.owner_files import OwnerFiles
from headgate.ingress.folder_log import FolderLog
from headgate.ingress.ingress_log import IngressLog
from headgate.ingress.topic_log import TopicLog
from headgate.ingress.topics import Brokers
from headgate.levels.child import Start
from headgate.protocol import JSON_LINES
from headgate.server.apart import levels_apart
from headgate.server.app import Parts
from headgate.server.home import secret
from headgate.server.positions import Positions
from headgate.server.serve import Serving
from headgate.server.settings import Settings
from headgate.service import Headgate
from headgate.service.folders import Folders
from server.engines import DirectEngine

ARCHITECTURE = os.environ.get("HEADGATE_TEST_ARCHITECTURE", "trusted")
"""Of servers that choose none; all tests of the server can be run with another one."""
START: Start = ThreadChild
WARD = f"""
CREATE LEVEL S ABOVE U;
CREATE ROLE nurse; CREATE ROLE doctor; CREATE ROLE sender;
GRANT ROLE nurse TO ROLE doctor;
CREATE USER ned PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER ned;
CREATE USER dora PASSWORD '{PASSWORD}'; GRANT ROLE doctor TO USER dora;
CREATE USER sam PASSWORD '{PASSWORD}' CLEARANCE S; GRANT ROLE sender TO USER sam;
CREATE USER stranger PASSWORD '{PASSWORD}';
CREATE STREAM pulse (pat INT, rate INT, policy STRING) ROLES FROM policy SOURCE publish;
CREATE STREAM secret (a INT) SOURCE publish;
GRANT VIEW OBJECT, PUBLISH ON STREAM pulse TO sender;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM pulse TO nurse;
"""


@dataclass
class Server:
    home: Path
    headgate: Headgate
    engine: DirectEngine
    parts: Parts
    address: str = ""
    tokens: dict[str, str] = field(default_factory=dict)

    def client(self, user: str = "", *, level: str = "U", **more: Any) -> httpx.Client:
        """A client without a session, or with the one of this user at this level; they are kept."""
        context = ssl.create_default_context(cafile=self.home / "tls" / "authority.pem")
        found = httpx.Client(base_url=self.address, verify=context, timeout=20, **more)
        if user:
            found.headers["Authorization"] = f"Bearer {self.token(user, level)}"
        return found

    @contextmanager
    def raw(self) -> Iterator[ssl.SSLSocket]:
        """A bare connection, for requests that no client would send."""
        context = ssl.create_default_context(cafile=self.home / "tls" / "authority.pem")
        port = int(self.address.rpartition(":")[2])
        plain = socket.create_connection(("127.0.0.1", port), timeout=20)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
            yield encrypted

    def token(self, user: str, level: str = "U") -> str:
        key = f"{user}@{level}"
        if key not in self.tokens:
            with self.client() as client:
                body = {"user": user, "password": PASSWORD, "level": level}
                self.tokens[key] = client.post("/v1/login", json=body).raise_for_status().json()["token"]
        return self.tokens[key]

    def run(self, script: str, user: str = ADMIN, level: str = "U") -> list[dict[str, Any]]:
        with self.client(user, level=level) as client:
            answer = client.post("/v1/statements", json={"script": script})
            assert answer.status_code == 200, answer.text
            found: list[dict[str, Any]] = answer.json()
            return found

    def resets(self) -> int:
        """Connections that were reset by a lost right."""
        with self.client() as client:
            lines = client.get("/metrics", headers={"Authorization": "Bearer operator"}).text.splitlines()
        return next(int(float(x.split()[1])) for x in lines if x.startswith("headgate_resets_total"))

    def publish(
        self, *rows: Mapping[str, Any], user: str = "sam", stream: str = "root.pulse", **headers: str
    ) -> httpx.Response:
        with self.client(user) as client:
            content = "".join(f"{json.dumps(row)}\n" for row in rows)
            return client.post(
                f"/v1/streams/{stream}/tuples", content=content, headers={"Content-Type": JSON_LINES, **headers}
            )


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events, as their fields; `data` is read as JSON."""
    found: dict[str, Any] = {}
    for line in lines:
        if not line:
            if "data" in found:
                yield {**found, "data": json.loads(found["data"])}
            found = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            found[name] = value


@contextmanager
def served(
    home: Path, script: str = WARD, *, limits: Mapping[str, Any] | None = None, clock: Clock | None = None
) -> Iterator[Server]:
    chosen = replace(Settings(port=0), **{"architecture": ARCHITECTURE, **(limits or {})})
    headgate = Headgate(f"sqlite:///{home / 'headgate.db'}", KEY, passwords=cheap_passwords(), clock=clock)
    home.chmod(0o700)
    headgate.initialise(ADMIN, PASSWORD)
    headgate.execute(headgate.login(ADMIN, PASSWORD), script)
    log = DeliveryLog(home / "engine" / "delivery", most=chosen.log_bytes)
    place = home / "engine" / "owners"
    owners = OwnerFiles(place, Folders(headgate))
    ingress: IngressLog = FolderLog(home / "ingress", chosen.ingress_bytes)
    if chosen.kafka_servers:  # its engine does not read them
        ingress.close()
        ingress = TopicLog(home / "ingress", Brokers(chosen.kafka_servers), seconds=1)
    logs, levels = None, None
    if chosen.architecture != "trusted":
        logs = LevelLogs(lambda level: DeliveryLog(home / "engine" / level.encode().hex(), most=chosen.log_bytes))
        levels = levels_apart(headgate, home / "engine", place, logs, chosen.architecture)
        levels = replace(levels, setting=replace(levels.setting, start=START, apart=START is not ThreadChild))
    engine = DirectEngine(headgate, home / "engine", [owners, log], home / "ingress", levels)
    positions = Positions(secret(home / "positions.key"))
    parts = Parts(headgate, engine, log, ingress, positions, chosen, place, "operator", logs)
    server = Server(home, headgate, engine, parts)
    ready = threading.Event()

    def told(address: str) -> None:
        server.address = address
        ready.set()

    serving = Serving(parts, home, told)
    thread = threading.Thread(target=serving.run)
    thread.start()
    try:
        assert ready.wait(30)
        yield server
    finally:
        serving.stop()
        thread.join(30)
        ingress.close()
        headgate.close()
        assert not thread.is_alive()
        assert engine.fault is None, engine.fault
