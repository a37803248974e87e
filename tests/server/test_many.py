"""Many readers at once, on two views of one stream: each receives exactly its own, in order."""

from __future__ import annotations

import asyncio
import json
import resource
import ssl

import httpx
import pytest

from headgate.protocol import JSON_LINES
from server.serving import Server

STREAM, END, ROWS = "/v1/streams/root.crowd", -1, 20
POLICIES = ("nurse", "doctor")


async def read(client: httpx.AsyncClient, token: str, opened: asyncio.Semaphore) -> list[int]:
    found: list[int] = []
    headers = {"Authorization": f"Bearer {token}"}
    async with client.stream("GET", f"{STREAM}/results", params={"begin": "now"}, headers=headers) as answer:
        assert answer.status_code == 200
        opened.release()
        async for line in answer.aiter_lines():
            values = json.loads(line.removeprefix("data: ")).get("values") if line.startswith("data: ") else None
            if values is not None:
                if values["n"] == END:
                    return found
                found.append(values["n"])
    raise AssertionError("it ended too early")


async def crowd(server: Server, readers: int, batches: int) -> None:
    context = ssl.create_default_context(cafile=server.home / "tls" / "authority.pem")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=server.address, verify=context, limits=limits, timeout=300) as client:
        opened = asyncio.Semaphore(0)
        tokens = [server.token("ned"), server.token("dora")]
        reading = [asyncio.create_task(read(client, tokens[n % 2], opened)) for n in range(readers)]
        async with asyncio.timeout(120):
            for _ in range(readers):
                await opened.acquire()
        headers = {"Authorization": f"Bearer {server.token('sam')}", "Content-Type": JSON_LINES}
        for batch in range(batches + 1):
            numbers = [END] if batch == batches else range(batch * ROWS, (batch + 1) * ROWS)
            lines = [json.dumps({"n": n, "policy": "nurse" if n == END else POLICIES[n % 2]}) for n in numbers]
            answer = await client.post(f"{STREAM}/tuples", content="\n".join(lines), headers=headers)
            assert answer.status_code == 200, answer.text
        found = await asyncio.gather(*reading)
    whole = list(range(batches * ROWS))
    assert found[1::2] == [whole] * (readers // 2)
    assert found[0::2] == [[n for n in whole if n % 2 == 0]] * (readers - readers // 2)


@pytest.fixture(scope="module", autouse=True)
def stream(server: Server) -> None:
    server.run(
        """CREATE STREAM crowd (n INT, policy STRING) ROLES FROM policy SOURCE publish;
        GRANT VIEW OBJECT, PUBLISH ON STREAM crowd TO sender;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM crowd TO nurse"""
    )
    for user in ("ned", "dora"):
        server.run("SUBSCRIBE TO root.crowd", user)


def test_fifty_readers_of_two_views_receive_their_own(server: Server) -> None:
    asyncio.run(crowd(server, 50, 5))


@pytest.mark.long
def test_a_thousand_readers_of_two_views_receive_their_own(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16_384, hard), hard))
    try:
        asyncio.run(crowd(server, 1000, 50))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
