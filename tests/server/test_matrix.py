"""Every operation as every kind of caller, with each role, at each level: a table of what is answered, and nothing but
what rights allow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from conftest import PASSWORD

from headgate.access.sessions import KEY_MARK
from headgate.protocol import JSON_LINES
from headgate.testing.clock import ManualClock
from server.serving import WARD, Server, events, served

ROW = b'{"pat": 3, "rate": 1, "policy": "nobody"}\n'
Ask = Callable[[httpx.Client], httpx.Response]


def publish(name: str) -> Ask:
    return lambda c: c.post(f"/v1/streams/root.{name}/tuples", content=ROW, headers={"Content-Type": JSON_LINES})


def run(script: str) -> Ask:
    return lambda c: c.post("/v1/statements", json={"script": script})


def get(path: str) -> Ask:
    return lambda c: c.get(path)


OPERATIONS: dict[str, Ask] = {
    "session": get("/v1/session"),
    "catalog": get("/v1/catalog/streams"),
    "audit": get("/v1/audit"),
    "publish": publish("matrix"),
    "publish hidden": publish("secret"),
    "publish missing": publish("nosuch"),
    "results": get("/v1/streams/root.matrix/results?follow=false"),
    "results hidden": get("/v1/streams/root.secret/results?follow=false"),
    "rejected": get("/v1/streams/root.matrix/rejected"),
    "explain": lambda c: c.post("/v1/explain", json={"query": "SELECT pat FROM root.matrix"}),
    "describe": run("DESCRIBE root.matrix"),
    "describe hidden": run("DESCRIBE root.secret"),
    "subscribe": run("SUBSCRIBE TO root.matrix"),
    "create stream": run("CREATE STREAM mine (a INT)"),
    "create user": run("CREATE USER mallory"),
    "add column": run("ALTER STREAM root.matrix ADD COLUMN mine INT"),
    "grant": run("GRANT READ TUPLE ON STREAM root.matrix TO PUBLIC"),
    "why": lambda c: c.post(
        "/v1/why", json={"user": "ned", "permission": "READ TUPLE", "object": "STREAM root.matrix"}
    ),
    "metrics": get("/metrics"),
}
NONE = dict.fromkeys(OPERATIONS, 401)
STRANGER = {
    "session": 200,
    "catalog": 200,
    "audit": 200,
    "publish": 404,
    "publish hidden": 404,
    "publish missing": 404,
    "results": 404,
    "results hidden": 404,
    "rejected": 404,
    "explain": 404,
    "describe": 404,
    "describe hidden": 404,
    "subscribe": 404,
    "create stream": 403,
    "create user": 403,
    "add column": 404,
    "grant": 404,
    "why": 404,
    "metrics": 403,
}
SEEN = {"describe": 200, "rejected": 403, "add column": 403, "grant": 403, "why": 403}
NURSE = STRANGER | SEEN | {"publish": 403, "results": 409, "explain": 200, "subscribe": 200}
SENDER = STRANGER | SEEN | {"publish": 200, "results": 409, "explain": 403, "subscribe": 403}
CALLERS: dict[str, tuple[str, str, dict[str, int]]] = {
    "stranger": ("stranger", "U", STRANGER),
    "nurse, who asks about itself": ("ned", "U", NURSE | {"why": 200}),
    "doctor, who is a nurse too": ("dora", "U", NURSE),
    "sender": ("sam", "U", SENDER),
    "sender at a higher level": ("sam", "S", SENDER | {"publish": 403}),
}


SCRIPT = """CREATE STREAM matrix (pat INT, rate INT, policy STRING) ROLES FROM policy SOURCE publish;
GRANT VIEW OBJECT, PUBLISH ON STREAM matrix TO sender;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM matrix TO nurse"""


@pytest.fixture(scope="module", autouse=True)
def stream(server: Server) -> None:
    server.run(SCRIPT)


def answers(client: httpx.Client) -> dict[str, int]:
    """The subscription is ended first, so that results are asked for without one."""
    run("UNSUBSCRIBE FROM root.matrix")(client)
    return {name: ask(client).status_code for name, ask in OPERATIONS.items()}


@pytest.mark.parametrize("kind", CALLERS)
def test_each_caller_gets_what_its_rights_allow(server: Server, kind: str) -> None:
    user, level, expected = CALLERS[kind]
    with server.client(user, level=level) as client:
        assert answers(client) == expected


@pytest.mark.parametrize("kind", ["nobody", "nonsense", "ended", "no key"])
def test_whoever_has_no_session_gets_one_answer_to_everything(server: Server, kind: str) -> None:
    token = {"nobody": "", "nonsense": "nonsense", "no key": f"{KEY_MARK}nonsense"}.get(kind, "")
    if kind == "ended":
        token = server.headgate.login("ned", PASSWORD)
        server.headgate.logout(token)
    assert len(refused(server, token)) == 1


def refused(server: Server, token: str) -> set[str]:
    """The texts with which everything is refused."""
    with server.client(headers={"Authorization": f"Bearer {token}"} if token else {}) as client:
        found = {name: ask(client) for name, ask in OPERATIONS.items()}
    assert {name: answer.status_code for name, answer in found.items()} == NONE
    return {answer.text for answer in found.values()}


def test_a_session_or_key_that_has_expired_is_none(tmp_path: Path) -> None:
    """Not used for too long; used, but too old; a key after its time: all are answered as nobody is."""
    clock = ManualClock(time.time())
    with served(tmp_path, WARD + SCRIPT, clock=clock) as server:
        rows = server.run("CREATE API KEY short ROLES nurse VALID 1 HOUR", "dora")[0]["rows"]
        unused, used, key = server.token("ned"), server.token("dora"), rows[0][-1]
        server.run("SUBSCRIBE TO root.matrix", "dora")
        with server.client("dora") as client, client.stream("GET", "/v1/streams/root.matrix/results") as reading:
            lines, nobody = events(reading.iter_lines()), refused(server, "")
            for _ in range(16):
                clock.advance(29 * 60)
                server.headgate.use(used)
            assert refused(server, unused) == refused(server, key) == nobody
            clock.advance(29 * 60)
            assert refused(server, used) == nobody
            server.publish({"pat": 1, "rate": 1, "policy": "nurse"}, stream="root.matrix")
            assert [x["data"] for x in lines] == [{"closed": "your session has ended"}]


def test_an_api_key_gets_what_its_roles_allow(server: Server) -> None:
    rows = server.run("CREATE API KEY matrix ROLES nurse VALID 1 HOUR", "dora")[0]["rows"]
    with server.client(headers={"Authorization": f"Bearer {rows[0][-1]}"}) as client:
        assert answers(client) == NURSE
        assert client.post("/v1/logout").status_code == 409
    server.run("DROP API KEY matrix", "dora")
    with server.client(headers={"Authorization": f"Bearer {rows[0][-1]}"}) as client:
        assert set(answers(client).values()) == {401}
