"""Clients that do not behave: slow, half-sent, huge, too many; old TLS; a home folder that others can open."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from headgate.access.authorizer import Principal
from headgate.errors import HeadgateError
from headgate.labels import LEAST
from headgate.server import connections, dispatch
from headgate.server.answers import Refused
from headgate.server.certificates import own_certificate
from headgate.server.guard import Guard
from headgate.server.home import check_private, secret
from headgate.server.rates import Rates
from headgate.server.settings import Settings, read_settings
from headgate.testing.clock import ManualClock
from server.serving import Server, events, served


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with little patience."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "HEADER_SECONDS", 0.2)
        limits = {
            "body_seconds": 1,
            "heartbeat_seconds": 1,
            "stall_seconds": 1,
            "connections": 30,
            "ingress_bytes": 20_000,
        }
        with served(tmp_path_factory.mktemp("strict"), limits=limits) as found:
            yield found


def test_half_a_head_is_cut_off(strict: Server) -> None:
    with strict.raw() as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        with suppress(OSError):
            assert raw.recv(100) == b""  # the connection is cut, without a word
    with strict.client() as client:
        assert client.get("/healthz").status_code == 200


def test_a_connection_is_not_closed_under_a_request_of_a_client_that_kept_it(strict: Server) -> None:
    """A client keeps a connection for some seconds; the server must keep it longer."""
    kept = httpx.Limits().keepalive_expiry
    assert kept is not None

    def asked(raw: ssl.SSLSocket) -> None:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while not answer.endswith(b"ok\n"):
            answer += raw.recv(1000)

    with strict.raw() as raw:
        asked(raw)
        raw.settimeout(kept + 0.5)
        with pytest.raises(TimeoutError):
            raw.recv(1000)  # it says nothing, and is not closed
        asked(raw)


def test_half_a_body_is_refused_and_nothing_of_it_is_taken(strict: Server) -> None:
    before = strict.parts.ingress.rows
    head = f"POST /v1/streams/root.pulse/tuples HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {strict.token('sam')}\r\n"
    head += "Content-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n"
    with strict.raw() as raw:
        raw.sendall(head.encode() + b'{"pat": 1, "policy": "nurse"}\n')
        assert raw.recv(100).startswith(b"HTTP/1.1 408 ")
    with strict.raw() as raw:
        raw.sendall(head.encode() + b'{"pat": 1, "policy": "nurse"}\n')  # and it leaves
    with strict.client("sam") as client:
        assert client.get("/v1/session").status_code == 200
    assert strict.parts.ingress.rows == before


def test_a_sender_cannot_tell_whether_anybody_reads_its_stream(strict: Server) -> None:
    """The attack: send until the stream is full; whoever is told to wait knows that nobody reads, at any level."""
    strict.run(
        """CREATE STREAM unread (n INT, text STRING) SOURCE publish;
        GRANT VIEW OBJECT, PUBLISH ON STREAM unread TO sender;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM unread TO nurse"""
    )
    chance = random.Random(1)
    for n in range(60):
        rows = ({"n": n, "text": chance.randbytes(16).hex()} for _ in range(200))
        assert strict.publish(*rows, stream="root.unread").status_code == 200
    assert strict.parts.ingress.removed
    assert (strict.parts.ingress.waiting("root.unread") or 0) <= strict.parts.settings.ingress_bytes + 50_000
    strict.run("SUBSCRIBE TO root.unread", "ned")
    with strict.client("ned") as client, client.stream("GET", "/v1/streams/root.unread/results") as answer:
        first = next(events(answer.iter_lines()))  # what is left is whole, and in order
        assert first["data"]["values"]["n"] > 0


def test_a_full_stream_says_when_to_come_again(strict: Server) -> None:
    strict.run("SUBSCRIBE TO root.pulse", "ned")
    strict.engine.paused.set()
    try:
        chance = random.Random(1)
        statuses = list[int]()
        while len(statuses) < 100 and 429 not in statuses:
            answer = strict.publish(*({"pat": chance.randrange(1 << 30), "policy": "nurse"} for _ in range(500)))
            statuses.append(answer.status_code)
        assert answer.headers["Retry-After"] == "1"
        assert answer.json()["error"]["kind"] == "busy"
        assert set(statuses) == {200, 429}
    finally:
        strict.engine.paused.clear()


@pytest.mark.parametrize(("most", "size", "status"), [(10, 11, 400), (10, 10, 200), (2_000_000, 1_500_000, 200)])
def test_texts_are_checked_by_the_setting_that_the_engine_goes_by(
    tmp_path: Path, most: int, size: int, status: int
) -> None:
    with served(tmp_path, limits={"text_bytes": most}) as server:
        server.run("CREATE STREAM t (x STRING) SOURCE publish")
        answer = server.publish({"x": "y" * size}, user="root", stream="root.t")
        assert answer.status_code == status
        if status == 400:
            assert answer.json()["error"]["rows"] == [{"row": 1, "message": "a text in it is too long"}]


def test_a_sender_that_sends_too_much_is_told_when_to_come_again(tmp_path: Path) -> None:
    with served(tmp_path, limits={"sender_rows": 2}) as server:
        rows = [{"pat": n, "policy": "nurse"} for n in range(1000)]
        assert server.publish(*rows).status_code == 200
        before = server.parts.ingress.rows
        answer = server.publish(rows[0])
        assert (answer.status_code, answer.json()["error"]["kind"]) == (429, "busy")
        assert 480 <= int(answer.headers["Retry-After"]) <= 490  # 20 at once, and 980 at 2 a second
        assert server.parts.ingress.rows == before
        assert server.publish(rows[0], user="root").status_code == 200  # another user does not notice it


def test_a_rate_is_asked_before_the_body_arrives(tmp_path: Path) -> None:
    with served(tmp_path, limits={"sender_rows": 2, "body_seconds": 1}) as server:
        assert server.publish(*({"pat": n, "policy": "nurse"} for n in range(1000))).status_code == 200
        head = f"POST /v1/streams/root.pulse/tuples HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token('sam')}"
        head += "\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n"
        with server.raw() as raw:
            raw.sendall(head.encode() + b'{"pat": 1, "policy": "nurse"}\n')  # and no more
            assert raw.recv(100).startswith(b"HTTP/1.1 429 ")


def test_nothing_is_held_of_a_request_that_its_rate_refuses() -> None:
    """The attack: one sender far beyond its rate fills the memory that the bodies of all senders share."""
    rates = Rates(1)
    rates.charge("sam", 100)
    held = list[int]()
    answered = list[Message]()

    async def app(_: Scope, __: Receive, ___: Send) -> None:
        raise AssertionError("the request was handed on")

    sam = Principal("sam", frozenset(), LEAST)
    guard = Guard(app, Settings(), lambda _: sam, lambda _: None, frozenset(), rates)

    async def receive() -> Message:
        held.append(guard.held)
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": len(held) < 10}

    async def send(message: Message) -> None:
        answered.append(message)

    headers = [(b"authorization", b"Bearer x"), (b"content-length", b"10485760")]
    scope = {"type": "http", "scheme": "https", "path": "/v1/streams/s/tuples", "headers": headers, "method": "POST"}
    asyncio.run(guard(scope, receive, send))
    assert held == [0] * 10 and answered[0]["status"] == 429
    assert b"connection" not in dict(answered[0]["headers"])  # it was read to its end: the client sees the answer


def test_a_rate_is_an_average() -> None:
    clock = ManualClock(0.0)
    rates = Rates(10, clock)
    for _ in range(100):  # the share of ten seconds at once
        rates.admit("sam")
        rates.charge("sam", 1)
    rates.charge("sam", 5)
    for seconds in ("0", "0.4"):
        clock.advance(float(seconds))
        with pytest.raises(Refused, match="more than 10 tuples a second"):
            rates.admit("sam")
    clock.advance(0.2)
    rates.admit("sam")
    clock.advance(10_000)
    rates.charge("sam", 101)
    with pytest.raises(Refused) as found:
        rates.admit("sam")
    assert found.value.retry == 1


def test_a_quiet_subscriber_gets_signs_of_life(strict: Server) -> None:
    strict.run("SUBSCRIBE TO root.pulse", "dora")
    with strict.client("dora") as client, client.stream("GET", "/v1/streams/root.pulse/results?begin=now") as answer:
        lines = answer.iter_lines()
        assert any(line == ":" for line in lines)


def test_more_connections_than_allowed_are_refused_and_others_served(strict: Server) -> None:
    open_ = []
    try:
        for _ in range(40):
            try:
                context = strict.raw()
                open_.append((context, context.__enter__()))
            except OSError:
                pass
    finally:
        for context, _ in open_:
            context.__exit__(None, None, None)
    with strict.client() as client:
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2])
def test_old_tls_is_refused(server: Server, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=server.home / "tls" / "authority.pem")
    context.maximum_version = version
    port = int(server.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_without_tls_nobody_beyond_this_machine_is_served() -> None:
    assert Settings(tls=False).host == "127.0.0.1"
    with pytest.raises(HeadgateError, match="cannot serve without TLS"):
        Settings(tls=False, host="192.0.2.1")


def test_a_home_that_others_can_open_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    secret(tmp_path / "positions.key")
    own_certificate(tmp_path / "tls", "localhost")
    check_private(tmp_path)
    for path in (tmp_path, tmp_path / "positions.key", tmp_path / "tls", tmp_path / "tls" / "server.key"):
        mode = path.stat().st_mode
        path.chmod(mode | 0o040)
        with pytest.raises(HeadgateError, match="other users can open"):
            check_private(tmp_path)
        path.chmod(mode)
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(HeadgateError, match="is a link"):
        check_private(tmp_path)


def test_all_that_a_server_makes_is_private(server: Server) -> None:
    check_private(server.home)
    assert [path for path in server.home.rglob("*") if path.lstat().st_mode & 0o077] == []


def test_settings_come_from_file_environment_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.toml").write_text("port = 1\nhost = '::1'\nbody_rows = 5\n")
    monkeypatch.setenv("HEADGATE_SERVE_PORT", "2")
    found = read_settings(tmp_path, {"body_rows": 7, "master": None})
    assert (found.host, found.port, found.body_rows) == ("::1", 2, 7)
    for text, fault in (
        ("nosuch = 1", "there is no setting `nosuch`"),
        ("port = 'x'", "cannot use the setting `port`"),
        ("port = -1", "cannot use the setting `port`"),
        ("port = ", "it is not TOML"),
    ):
        (tmp_path / "server.toml").write_text(text)
        monkeypatch.delenv("HEADGATE_SERVE_PORT", raising=False)
        with pytest.raises(HeadgateError, match=fault):
            read_settings(tmp_path, {})


def test_whoever_keeps_publishing_is_not_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is a use of its session, whether it is a statement or not; without requests it ends."""
    monkeypatch.setattr(dispatch, "USE_SECONDS", 0.05)
    clock = ManualClock(time.time())
    with served(tmp_path, clock=clock) as server, server.client("sam") as client:
        sessions = server.headgate.monitor.sessions
        for pat in range(3):
            clock.advance(20 * 60)
            assert server.publish({"pat": pat, "rate": 1, "policy": "nurse"}).status_code == 200
            until = time.monotonic() + 20
            while sessions.find(server.token("sam")).last_used < clock.now():
                assert time.monotonic() < until
                time.sleep(0.01)
        clock.advance(31 * 60)
        assert client.get("/v1/session").status_code == 401
