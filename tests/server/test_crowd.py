"""A thousand subscribers on ten views of one query, and twenty senders, for HEADGATE_CROWD_SECONDS (600): nothing is
lost, repeated or wrong, memory stays flat, and a subscriber that never reads harms nobody.

The server has a process of its own; each subscriber is a user of its own. What one is to receive follows from a rule in
this file alone: a view has one role, and a tuple is for two of them. Each sender publishes a tuple every
HEADGATE_CROWD_PAUSE seconds (2): 2,000 results a second. HEADGATE_CROWD_ENGINE=spark runs the engine with Spark.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import ssl
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import pytest
from conftest import ADMIN, KEY, PASSWORD, cheap_passwords

from headgate.labels import LEAST
from headgate.protocol import JSON_LINES
from headgate.service import Headgate
from server.test_kills import Killed

VIEWS, END = 10, -1
SCRIPT = """CREATE STREAM crowd (sender INT, n INT, sent DOUBLE, policy STRING) ROLES FROM policy SOURCE publish;
CREATE QUERY all_of_it AS SELECT sender, n, sent FROM crowd; START QUERY all_of_it;
GRANT VIEW OBJECT, PUBLISH ON STREAM crowd TO sender"""
RESULTS, TUPLES = "/v1/streams/root.all_of_it/results", "/v1/streams/root.crowd/tuples"


def views_of(sender: int, n: int) -> set[int]:
    """The views that a tuple is for; the last one is for all."""
    return set(range(VIEWS)) if n == END else {(sender + n) % VIEWS, (sender * 7 + n // 3) % VIEWS}


@dataclass
class Crowd:
    readers: int
    senders: int
    seconds: float
    pause: float
    late: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    sent: dict[int, int] = field(default_factory=dict)

    async def read(self, client: httpx.AsyncClient, token: str, opened: asyncio.Semaphore) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        ended = 0
        headers = {"Authorization": f"Bearer {token}", "Accept": JSON_LINES}
        async with client.stream("GET", RESULTS, params={"begin": "now"}, headers=headers) as answer:
            assert answer.status_code == 200
            opened.release()
            async for line in answer.aiter_lines():
                values = json.loads(line).get("values") if line else None
                if values is None:
                    continue
                if values["n"] == END:
                    ended += 1
                    if ended == self.senders:
                        return found
                    continue
                found[values["sender"]].append(values["n"])
                self.late.append(time.time() - values["sent"])
        raise AssertionError("it ended too early")

    async def send(self, client: httpx.AsyncClient, token: str, me: int, end: float) -> None:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": JSON_LINES, "Headgate-Producer": f"p{me}"}
        n = sequence = 0
        last = False
        while not last:
            last = time.monotonic() >= end
            numbers = [END] if last else [n]
            rows = [
                {"sender": me, "n": x, "sent": time.time(), "policy": " | ".join(f"v{v}" for v in views_of(me, x))}
                for x in numbers
            ]
            sequence += 1
            body = "".join(f"{json.dumps(row)}\n" for row in rows)
            answer = await client.post(TUPLES, content=body, headers={**headers, "Headgate-Sequence": str(sequence)})
            while answer.status_code == 429:
                await asyncio.sleep(1)
                answer = await client.post(
                    TUPLES, content=body, headers={**headers, "Headgate-Sequence": str(sequence)}
                )
            assert answer.status_code == 200, answer.text
            n += 0 if last else 1
            await asyncio.sleep(self.pause)
        self.sent[me] = n

    async def watch(self, process: int) -> None:
        while True:
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
            self.memory.append(pages * resource.getpagesize())
            await asyncio.sleep(self.seconds / 40)


def prepared(home: Path, readers: int) -> tuple[list[str], str]:
    """Makes the readers, who have subscribed, before the server starts; the tokens of their sessions and of sam's."""
    headgate = Headgate(f"sqlite:///{home / 'headgate.db'}", KEY, passwords=cheap_passwords())
    root = headgate.login(ADMIN, PASSWORD)
    headgate.execute(root, SCRIPT)
    for v in range(VIEWS):
        users = (
            f"CREATE USER u{n} PASSWORD '{PASSWORD}'; GRANT ROLE v{v} TO USER u{n};" for n in range(v, readers, VIEWS)
        )
        headgate.execute(
            root,
            f"""CREATE ROLE v{v}; {"".join(users)}
            GRANT VIEW OBJECT, READ TUPLE ON STREAM crowd TO v{v};
            GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM all_of_it TO v{v}""",
        )
    tokens = [headgate.login(f"u{n}", PASSWORD) for n in range(readers)]
    for token in tokens:
        headgate.execute(token, "SUBSCRIBE TO root.all_of_it")
    sam = headgate.login("sam", PASSWORD, level=LEAST)
    headgate.close()
    return tokens, sam


async def meet(server: Killed, crowd: Crowd, tokens: list[str], sam: str) -> list[dict[int, list[int]]]:
    context = ssl.create_default_context(cafile=server.home / "tls" / "authority.pem")
    address = f"https://127.0.0.1:{server.port}"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=address, verify=context, limits=limits, timeout=600) as client:
        async with asyncio.timeout(300):
            while (await client.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.2)
        opened = asyncio.Semaphore(0)
        reading = [asyncio.create_task(crowd.read(client, token, opened)) for token in tokens]
        async with asyncio.timeout(300):
            for _ in range(crowd.readers):
                await opened.acquire()
        never = never_reads(context, server.port, tokens[0])
        assert server.process is not None
        watching = asyncio.create_task(crowd.watch(server.process.pid))
        end = time.monotonic() + crowd.seconds
        await asyncio.gather(*(crowd.send(client, sam, me, end) for me in range(crowd.senders)))
        found = await asyncio.gather(*reading)
        watching.cancel()
        never.close()
        return found


def never_reads(context: ssl.SSLContext, port: int, token: str) -> ssl.SSLSocket:
    """A subscriber that takes nothing. The kernel holds little for it, so that its results wait in the server."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", port))
    encrypted = context.wrap_socket(plain, server_hostname="127.0.0.1")
    encrypted.sendall(f"GET {RESULTS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    return encrypted


@pytest.mark.long
def test_a_thousand_subscribers_on_ten_views_and_twenty_senders(tmp_path: Path) -> None:
    seconds, pause = (float(os.environ.get(f"HEADGATE_CROWD_{x}", y)) for x, y in (("SECONDS", 600), ("PAUSE", 2)))
    crowd = Crowd(1000, 20, seconds, pause)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16_384, hard), hard))
    server = Killed(tmp_path, os.environ.get("HEADGATE_CROWD_ENGINE", "direct"))
    tokens, sam = prepared(tmp_path, crowd.readers)
    server.start()
    try:
        found = asyncio.run(meet(server, crowd, tokens, sam))
    finally:
        server.kill()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number, got in enumerate(found):
        view = number % VIEWS
        expected = {me: [n for n in range(count) if view in views_of(me, n)] for me, count in crowd.sent.items()}
        assert got == {me: some for me, some in expected.items() if some}
    third = len(crowd.memory) // 3
    before, after = np.median(crowd.memory[third : 2 * third]), np.median(crowd.memory[2 * third :])
    late = 1000 * np.array(crowd.late)
    print(f"{sum(crowd.sent.values()):,} tuples, {len(late):,} results")
    print(f"memory: {before / 1e6:.0f} MB, then {after / 1e6:.0f} MB")
    print(f"latency: median {np.median(late):.0f} ms, 95 of 100 below {np.percentile(late, 95):.0f} ms")
    assert after <= 1.1 * before
