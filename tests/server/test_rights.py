"""Every operation as everyone: without a session, with a dead one, as a stranger, with each role, at each level."""

from __future__ import annotations

import json

import httpx
import pyarrow as pa
import pytest
from conftest import PASSWORD

from headgate.protocol import JSON_LINES
from server.serving import Server

OPERATIONS = [
    ("POST", "/v1/logout"),
    ("GET", "/v1/session"),
    ("POST", "/v1/statements"),
    ("GET", "/v1/catalog/streams"),
    ("POST", "/v1/explain"),
    ("POST", "/v1/why"),
    ("GET", "/v1/audit"),
    ("POST", "/v1/why"),
    ("POST", "/v1/streams/root.pulse/tuples"),
    ("GET", "/v1/streams/root.pulse/rejected"),
    ("GET", "/v1/streams/root.pulse/results"),
    ("GET", "/metrics"),
]
BODIES = {
    "/v1/statements": {"script": "SHOW SESSION"},
    "/v1/explain": {"query": "QUERIES"},
    "/v1/why": {"user": "ned", "permission": "READ TUPLE", "object": "STREAM root.pulse"},
}


def ask(client: httpx.Client, method: str, path: str, token: str | None) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return client.request(method, path, json=BODIES.get(path), headers=headers)


def test_every_operation_that_there_is_is_tried(server: Server) -> None:
    with server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    there = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    tried = {
        (m, p.replace("root.pulse", "{stream}").replace("catalog/streams", "catalog/{what}")) for m, p in OPERATIONS
    }
    assert there - tried == {("POST", "/v1/login"), ("GET", "/healthz"), ("GET", "/readyz")}


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_without_a_session_every_operation_gives_the_same_answer(server: Server, method: str, path: str) -> None:
    with server.client() as client:
        ended = server.headgate.login("stranger", PASSWORD)
        server.headgate.logout(ended)
        answers = [ask(client, method, path, token) for token in (None, "nonsense", "x" * 500, ended)]
    assert {x.status_code for x in answers} == {401}
    assert {x.text for x in answers} == {
        json.dumps(
            {"error": {"kind": "authentication_failed", "message": "no valid session", "hint": "log in again"}},
            separators=(",", ":"),
        )
    }


def test_whoever_has_no_session_makes_the_server_read_no_body(server: Server) -> None:
    with server.raw() as raw:
        raw.sendall(b"POST /v1/statements HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")  # and no body
        assert raw.recv(100).startswith(b"HTTP/1.1 401 ")


def outcome(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text


@pytest.mark.parametrize("user", ["stranger", "ned", "sam"])
def test_what_is_hidden_and_what_does_not_exist_get_the_same_answer(server: Server, user: str) -> None:
    with server.client(user) as client:
        found = {}
        for name in ("secret", "nosuch"):
            headers = {"Content-Type": JSON_LINES}
            found[name] = [
                outcome(client.post(f"/v1/streams/root.{name}/tuples", content=b'{"a": 1}\n', headers=headers)),
                outcome(client.post(f"/v1/streams/root.{name}/tuples", content=b"nonsense", headers=headers)),
                outcome(client.get(f"/v1/streams/root.{name}/rejected")),
                outcome(client.get(f"/v1/streams/root.{name}/results")),
                outcome(client.get(f"/v1/streams/root.{name}/results", headers={"Last-Event-ID": "AAAA"})),
                outcome(client.post("/v1/statements", json={"script": f"SUBSCRIBE TO root.{name}"})),
                outcome(client.post("/v1/explain", json={"query": f"SELECT a FROM root.{name}"})),
            ]
        changed = [(status, text.replace("nosuch", "secret")) for status, text in found["nosuch"]]
        assert found["secret"] == changed
        assert {status for status, _ in changed} == {404}


@pytest.mark.parametrize(
    ("user", "level", "status"),
    [
        ("sam", "U", 200),
        ("sam", "S", 403),
        ("ned", "U", 403),
        ("dora", "U", 403),
        ("stranger", "U", 404),
        ("root", "U", 200),
    ],
)
def test_only_senders_publish_and_only_at_the_level_of_the_stream(
    server: Server, user: str, level: str, status: int
) -> None:
    with server.client(user, level=level) as client:
        headers = {"Content-Type": JSON_LINES}
        answer = client.post(
            "/v1/streams/root.pulse/tuples", content=b'{"pat": 9, "policy": "nobody"}\n', headers=headers
        )
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(("user", "status"), [("sam", 409), ("stranger", 404)])
def test_results_are_for_subscribers(server: Server, user: str, status: int) -> None:
    with server.client(user) as client:
        assert client.get("/v1/streams/root.pulse/results", params={"follow": "false"}).status_code == status


def test_metrics_are_for_operators(server: Server) -> None:
    for user in ("ned", "stranger"):
        with server.client(user) as client:
            assert client.get("/metrics").status_code == 403
    with server.client(headers={"Authorization": "Bearer operator"}) as client:
        text = client.get("/metrics").text
    for name in (
        "ready 1.0",
        "batches_total",
        "lag_seconds",
        "late",
        "unseen",
        "rejected",
        "waiting_bytes",
        "published_total",
    ):
        assert f"headgate_{name}" in text


def test_health_tells_nobody_anything(server: Server) -> None:
    with server.client() as client:
        assert (client.get("/healthz").text, client.get("/readyz").text) == ("ok\n", "ready\n")


def test_a_position_is_of_use_to_its_reader_only(server: Server) -> None:
    for user in ("ned", "dora"):
        server.run("SUBSCRIBE TO root.pulse", user)
    server.publish({"pat": 1, "rate": 60, "policy": "nurse"})
    with server.client("dora") as client:
        lines = client.get("/v1/streams/root.pulse/results", params={"follow": "false"}).text.splitlines()
    while not any(line.startswith("id: ") for line in lines):
        with server.client("dora") as client:
            lines = client.get("/v1/streams/root.pulse/results", params={"follow": "false"}).text.splitlines()
    position = next(line for line in lines if line.startswith("id: ")).removeprefix("id: ")
    with server.client("ned") as client:
        for forged in (position, position[:-2] + "AA", "AAAA", "é"):
            answer = client.get("/v1/streams/root.pulse/results", params={"follow": "false", "after": forged})
            assert (answer.status_code, answer.json()["error"]["kind"]) == (409, "conflict")


def test_every_answer_has_safe_headers(server: Server) -> None:
    with server.client() as client:
        for path in ("/healthz", "/v1/session", "/nosuch", "/openapi.json"):
            headers = client.get(path).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"
            assert "Strict-Transport-Security" in headers
            assert "server" not in headers


def test_a_request_that_is_not_understood_is_not_repeated_in_the_answer(server: Server) -> None:
    with server.client() as client:
        answer = client.post("/v1/login", json={"user": "root", "password": ["hunter2"], "extra": "hunter3"})
        assert answer.status_code == 422
        assert "hunter" not in answer.text
        assert client.post("/v1/login", content=b"{", headers={"Content-Type": "application/json"}).status_code == 422


def test_a_client_does_not_say_itself_where_it_is(server: Server) -> None:
    """The attack: wrong passwords that count for the place of somebody else, and stand in the audit trail with it."""
    forged = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http", "Forwarded": "for=203.0.113.9"}
    with server.client() as client:
        answer = client.post("/v1/login", json={"user": "stranger", "password": "wrong"}, headers=forged)
    assert answer.status_code == 401 and "Strict-Transport-Security" in answer.headers
    (audit,) = server.run("SHOW AUDIT LIMIT 5")
    reasons = [cell for row in audit["rows"] for cell in row if ", from " in cell]
    assert reasons and all(x.endswith(", from 127.0.0.1") for x in reasons)


def test_rejected_rows_are_for_the_owner(server: Server) -> None:
    pipeline = server.engine.pipeline
    assert pipeline is not None
    server.run("CREATE STREAM spoilt (a INT, p STRING) ROLES FROM p SOURCE publish; SUBSCRIBE TO spoilt")
    server.run("GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM spoilt TO nurse")
    pipeline.take("root.spoilt", 0, pa.table({"a": pa.array([7], pa.int32()), "p": ["&&"]}))
    found = {}
    for user in ("root", "ned", "stranger"):
        with server.client(user) as client:
            found[user] = client.get("/v1/streams/root.spoilt/rejected")
    why = "its label cannot be read: `p`: expected a role, `(`, `TRUE` or `FALSE`, found `&`"
    assert found["root"].json() == [{"reason": why, "values": {"a": 7, "p": "&&"}}]
    assert (found["ned"].status_code, found["stranger"].status_code) == (403, 404)
