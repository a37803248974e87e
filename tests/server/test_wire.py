"""What stands on the wire: a proxy of the test's own records every byte, and none of them is readable."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
from conftest import PASSWORD

from headgate.protocol import JSON_LINES
from server.serving import Server, events
from server.websockets_client import socket_at

MARK = "unmistakable-value-of-a-tuple"


@dataclass
class Capture:
    port: int
    seen: bytearray = field(default_factory=bytearray)


@contextmanager
def proxy(target: int) -> Iterator[Capture]:
    """Passes connections on to a port of this machine, and keeps what goes through, in both directions."""
    listening = socket.create_server(("127.0.0.1", 0))
    capture = Capture(listening.getsockname()[1])
    held: list[socket.socket] = []

    def pass_on(here: socket.socket, there: socket.socket) -> None:
        try:
            while data := here.recv(65536):
                capture.seen.extend(data)
                there.sendall(data)
        except OSError:
            pass
        finally:
            for end in (here, there):
                end.close()

    def accept() -> None:
        while True:
            try:
                here, _ = listening.accept()
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", target))
            held.extend((here, there))
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=pass_on, args=(one, other), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield capture
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for end in held:
            end.close()
        thread.join(10)


def test_a_capture_shows_no_tuple_password_token_or_name(server: Server) -> None:
    server.run(
        """CREATE STREAM wire (text STRING) LABEL 'nurse' SOURCE publish;
        GRANT VIEW OBJECT, PUBLISH ON STREAM wire TO sender;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM wire TO nurse"""
    )
    context = ssl.create_default_context(cafile=server.home / "tls" / "authority.pem")
    with proxy(int(server.address.rpartition(":")[2])) as capture:
        tokens = {}
        with httpx.Client(base_url=f"https://127.0.0.1:{capture.port}", verify=context, timeout=20) as client:
            for user in ("sam", "ned"):
                answer = client.post("/v1/login", json={"user": user, "password": PASSWORD, "level": "U"})
                tokens[user] = answer.json()["token"]
            sam, ned = ({"Authorization": f"Bearer {tokens[user]}"} for user in ("sam", "ned"))
            client.post("/v1/statements", json={"script": "SUBSCRIBE TO root.wire"}, headers=ned)
            body, kind = json.dumps({"text": MARK}) + "\n", {"Content-Type": JSON_LINES}
            client.post("/v1/streams/root.wire/tuples", content=body, headers=sam | kind).raise_for_status()
            with client.stream("GET", "/v1/streams/root.wire/results", headers=ned) as results:
                assert next(events(results.iter_lines()))["data"]["values"] == {"text": MARK}
        address = f"wss://127.0.0.1:{capture.port}/v1/streams/root.wire/results"
        with socket_at(address, context, ned) as websocket:
            assert MARK in websocket.recv(20)
        seen = bytes(capture.seen)
    assert len(seen) > 5000
    for secret in (MARK, PASSWORD, *tokens.values(), "Bearer", "root.wire", "SUBSCRIBE", "nurse"):
        assert secret.encode() not in seen, secret


def test_the_same_capture_without_tls_shows_them() -> None:
    """That the proxy sees what goes through it: otherwise the test above would say nothing."""
    listening = socket.create_server(("127.0.0.1", 0))
    with proxy(listening.getsockname()[1]) as capture:
        with socket.create_connection(("127.0.0.1", capture.port)) as client:
            client.sendall(MARK.encode())
            other, _ = listening.accept()
            assert other.recv(100).decode() == MARK
            other.close()
        assert MARK.encode() in bytes(capture.seen)
    listening.close()
