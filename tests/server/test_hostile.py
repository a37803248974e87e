"""Requests that would exhaust the server: endless lines, countless columns, idle connections by the thousand. Each gets
a clear answer or is cut off, nothing is lost, memory stays bounded, and others are served."""

from __future__ import annotations

import resource
import socket
import ssl
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from headgate.protocol import ARROW_STREAM, JSON_LINES
from server.serving import Server, served

MEGABYTE = b"x" * (1 << 20)


def resident() -> int:
    """Bytes of memory of this process, in which the server runs too."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def is_served(server: Server) -> bool:
    with server.client("sam") as client:
        return client.get("/v1/session").status_code == 200


def test_a_gigabyte_line_is_refused_when_it_is_announced(server: Server) -> None:
    with server.raw() as raw:
        token = server.token("sam")
        head = f"POST /v1/streams/root.pulse/tuples HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        raw.sendall(f"{head}Content-Type: {JSON_LINES}\r\nContent-Length: {1 << 30}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
    assert is_served(server)


def test_a_gigabyte_line_in_chunks_is_refused_where_the_limit_ends(server: Server) -> None:
    before, rows = resident(), server.parts.ingress.rows
    sent = 0
    with server.raw() as raw:
        token = server.token("sam")
        head = f"POST /v1/streams/root.pulse/tuples HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        raw.sendall(f"{head}Content-Type: {JSON_LINES}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        with suppress(OSError):  # the server stops reading
            while sent < 64:
                raw.sendall(b"100000\r\n" + MEGABYTE + b"\r\n")
                sent += 1
        with suppress(OSError):
            assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
    assert sent < 64
    assert is_served(server) and server.parts.ingress.rows == rows
    assert resident() - before < 200 << 20


@pytest.mark.parametrize("columns", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_countless_columns_are_refused(server: Server, columns: int) -> None:
    before, rows = resident(), server.parts.ingress.rows
    line = "{" + ", ".join(f'"c{n}": 1' for n in range(columns)) + "}\n"
    with server.client("sam") as client:
        said = client.post("/v1/streams/root.pulse/tuples", content=line.encode(), headers={"Content-Type": JSON_LINES})
        assert said.status_code in (400, 413), said.text
        assert said.json()["error"]["message"].startswith("cannot take the request")
    assert is_served(server) and server.parts.ingress.rows == rows
    assert resident() - before < 500 << 20


def test_thousands_of_columns_of_an_arrow_stream_are_refused(server: Server) -> None:
    table = pa.table({f"c{n}": pa.array([1]) for n in range(5000)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with server.client("sam") as client:
        headers = {"Content-Type": ARROW_STREAM}
        said = client.post("/v1/streams/root.pulse/tuples", content=bytes(sink.getvalue()), headers=headers)
    assert said.status_code == 400 and "more than 1,000 columns" in said.text


@pytest.mark.parametrize("path", ["/v1/statements", "/v1/explain", "/v1/login"])
def test_a_deeply_nested_body_is_refused(server: Server, path: str) -> None:
    with server.client("sam") as client:
        body = b'{"script": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 413, 422)
    assert is_served(server)


def test_a_head_that_never_ends_is_cut_off(server: Server) -> None:
    with server.raw() as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        with suppress(OSError):
            for _ in range(200):
                raw.sendall(b"X-Header: " + b"x" * 1000 + b"\r\n")
            assert raw.recv(100)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431", b"")
    assert is_served(server)


def idle(server: Server, count: int, stack: ExitStack) -> int:
    """Connections that say nothing; how many could be opened."""
    port, made = int(server.address.rpartition(":")[2]), 0
    for _ in range(count):
        with suppress(OSError):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            made += 1
    return made


@pytest.mark.long
def test_thousands_of_idle_connections_harm_nobody(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    try:
        with served(tmp_path) as server, ExitStack() as stack:
            is_served(server)
            before = resident()
            assert idle(server, 3000, stack) == 3000
            assert is_served(server)
            assert server.publish({"pat": 1, "rate": 1, "policy": "nurse"}).status_code == 200
            assert resident() - before < 600 << 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_some_idle_connections_harm_nobody(server: Server) -> None:
    with ExitStack() as stack:
        assert idle(server, 200, stack) == 200
        assert is_served(server)


def test_slow_senders_of_bodies_are_cut_off_and_others_served(tmp_path: Path) -> None:
    with served(tmp_path, limits={"body_seconds": 1}) as server:
        token, answers = server.token("sam"), list[bytes]()

        def trickle() -> None:
            with server.raw() as raw, suppress(OSError, ssl.SSLError):
                head = f"POST /v1/streams/root.pulse/tuples HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                raw.sendall(f"{head}Content-Type: {JSON_LINES}\r\nContent-Length: 1000\r\n\r\n{{".encode())
                answers.append(raw.recv(100)[:12])

        threads = [threading.Thread(target=trickle) for _ in range(20)]
        for thread in threads:
            thread.start()
        assert is_served(server)
        for thread in threads:
            thread.join(30)
        assert answers == [b"HTTP/1.1 408"] * 20


@pytest.mark.parametrize("stranger", [False, True])
def test_many_bodies_that_never_end_share_a_budget(
    tmp_path: Path, stranger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: thousands of connections, each with nearly all of the largest body, until the memory is full. Those
    who are not logged in take nothing from those who are."""
    monkeypatch.setattr("headgate.server.guard._LOGIN_BUDGET", 8 * 50_000)
    with served(tmp_path, limits={"body_bytes": 50_000, "script_bytes": 50_000}) as server, ExitStack() as stack:
        token = server.token("sam")
        path = "/v1/login" if stranger else "/v1/streams/root.pulse/tuples"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 50000\r\n\r\n"
        refused, answers = 0, list[bytes]()
        for number in range(30):
            raw = stack.enter_context(server.raw())
            raw.settimeout(60)
            with suppress(OSError):  # the server may answer and close before it has read all
                raw.sendall(head.encode() + b"x" * 49_999)
            raw.settimeout(0.3 if number < 8 else 60)
            try:
                answers.append(raw.recv(100)[:13])
            except TimeoutError:
                continue  # it is held
            except ConnectionResetError:  # what the server had not read reset the connection, and took the answer along
                refused += 1
        assert set(answers) == {b"HTTP/1.1 429 "}
        assert refused + len(answers) == 30 - 8
        with server.client() as client:
            assert client.get("/healthz").status_code == 200
        sent = server.publish({"pat": 1, "rate": 1, "policy": "nurse"})
        assert sent.status_code == (200 if stranger else 429)
    with served(tmp_path / "again", limits={"body_bytes": 50_000}) as server:  # what has ended is not held any more
        for _ in range(30):
            assert server.publish({"pat": "x" * 40_000}).status_code == 400
        assert server.publish({"pat": 1, "rate": 1, "policy": "nurse"}).status_code == 200


@pytest.mark.parametrize(("path", "size"), [("/v1/login", 70_000), ("/v1/login", 900_000), ("/v1/explain", 1_500_000)])
def test_a_client_whose_body_is_too_large_gets_to_know_it(server: Server, path: str, size: int) -> None:
    with server.client("sam") as client:
        for body in (b"x" * size, iter([b"x" * 10_000] * (size // 10_000))):  # with its length announced, and without
            answer = client.post(path, content=body)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (413, "too_large")


def test_an_answer_that_nobody_reads_holds_no_memory_for_ever(server: Server) -> None:
    """A client asks a thousand times over one connection and reads nothing: the server reads no more from it."""
    with server.raw() as raw:
        raw.settimeout(1)
        token = server.token("root")
        ask = f"GET /v1/catalog/roles HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        with suppress(OSError):
            for _ in range(20_000):
                raw.sendall(ask)
    with httpx.Client(verify=ssl.create_default_context(cafile=server.home / "tls" / "authority.pem")) as client:
        assert client.get(f"{server.address}/healthz").status_code == 200
