"""Results over a WebSocket: the same as over HTTP, decided by the same path, to the same limits."""

from __future__ import annotations

import json
import socket as plain
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from conftest import PASSWORD
from websockets.exceptions import ConnectionClosed, InvalidStatus

from headgate.protocol import SUBPROTOCOL, SUBPROTOCOL_BEARER
from server.serving import Server, served
from server.test_results import publish, stream_of
from server.websockets_client import Socket, socket_at


@contextmanager
def opened(server: Server, stream: str, token: str, query: str = "", **more: Any) -> Iterator[Socket]:
    context = ssl.create_default_context(cafile=server.home / "tls" / "authority.pem")
    address = f"wss{server.address[5:]}/v1/streams/{stream}/results{query}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with socket_at(address, context, headers, **more) as socket:
        yield socket


def until_closed(socket: Socket) -> Iterator[str]:
    with suppress(ConnectionClosed, OSError):
        while True:
            yield str(socket.recv(20))


def numbers(text: str) -> list[int]:
    return [x["values"]["n"] for x in map(json.loads, text.splitlines()) if "values" in x]


def received(socket: Socket, most: int) -> tuple[list[int], str]:
    """The first results, and the position of the last."""
    found: list[int] = []
    position = ""
    while len(found) < most:
        text = str(socket.recv(20))
        found += numbers(text)
        for line in map(json.loads, text.splitlines()):
            position = line.get("position", position)
    return found, position


def test_results_come_in_order_and_go_on_after_a_position(server: Server) -> None:
    stream = stream_of(server, "socket1")
    ned = server.token("ned")
    publish(server, stream, range(1000))
    with opened(server, stream, ned) as socket:
        first, position = received(socket, 300)
    publish(server, stream, range(1000, 1200))
    with opened(server, stream, ned, f"?after={position}") as socket:
        rest, _ = received(socket, 1200 - len(first))
    assert first + rest == list(range(1200))


def test_without_follow_the_socket_closes_where_the_results_end(server: Server) -> None:
    stream = stream_of(server, "socket2")
    publish(server, stream, range(10))
    with opened(server, stream, server.token("ned")) as socket:
        received(socket, 10)
    with opened(server, stream, server.token("ned"), "?follow=false") as socket:
        assert [n for text in socket for n in numbers(str(text))] == list(range(10))
        assert socket.close_code == 1000


def refused(server: Server, stream: str, token: str, query: str = "", **more: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as found, opened(server, stream, token, query, **more):
        pass
    response = found.value.response
    assert response.headers["Cache-Control"] == "no-store"
    return response.status_code, json.loads(response.body or b"{}")["error"]


def test_a_refused_socket_is_answered_like_a_refused_request(server: Server) -> None:
    stream = stream_of(server, "socket3")
    ended = server.headgate.login("ned", PASSWORD)
    server.headgate.logout(ended)
    unknown = (401, {"kind": "authentication_failed", "message": "no valid session", "hint": "log in again"})
    for token in ("", "nonsense", ended):
        assert refused(server, stream, token) == unknown
        assert refused(server, "root.nosuch", token) == unknown
    stranger = server.token("stranger")
    for name in ("root.secret", "root.nosuch"):
        status, said = refused(server, name, stranger)
        assert (status, said["message"]) == (404, f"there is no stream {name}")
    assert refused(server, stream, server.token("sam"))[0] == 409
    assert refused(server, stream, server.token("ned"), "?after=nonsense")[0] == 409
    assert refused(server, stream, server.token("ned"), "?begin=never")[0] == 422


def test_a_browser_names_its_token_among_subprotocols_and_never_gets_it_back(server: Server) -> None:
    stream = stream_of(server, "socket4")
    publish(server, stream, range(1))
    named: list[Any] = [SUBPROTOCOL, f"{SUBPROTOCOL_BEARER}{server.token('ned')}"]
    with opened(server, stream, "", subprotocols=named) as socket:
        assert socket.subprotocol == SUBPROTOCOL
        assert received(socket, 1)[0] == [0]
    assert refused(server, stream, "", subprotocols=[SUBPROTOCOL, f"{SUBPROTOCOL_BEARER}nonsense"])[0] == 401


def test_a_client_that_sends_is_closed(server: Server) -> None:
    stream = stream_of(server, "socket5")
    with opened(server, stream, server.token("ned")) as socket:
        socket.send("hello")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(20)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


def test_the_end_of_a_session_and_of_a_subscription_are_told(server: Server) -> None:
    stream = stream_of(server, "socket6")
    token = server.headgate.login("ned", PASSWORD)
    with opened(server, stream, token) as socket:
        server.run(f"UNSUBSCRIBE FROM {stream}", "ned")
        assert json.loads(socket.recv(20)) == {"closed": "you are not subscribed any more"}


def test_a_revocation_leaves_nothing_in_the_socket_of_a_reader_that_does_not_read(server: Server) -> None:
    """The attack: a reader keeps results waiting in buffers until its right is gone, then reads them."""
    stream = stream_of(server, "socket7")
    publish(server, stream, range(2000), "x" * 2000)
    narrow = plain.socket()
    narrow.setsockopt(plain.SOL_SOCKET, plain.SO_RCVBUF, 4096)  # so that its machine takes little, too
    narrow.connect(("127.0.0.1", int(server.address.rpartition(":")[2])))
    narrow.setblocking(False)
    with opened(server, stream, server.token("ned"), max_queue=1, sock=narrow) as socket:
        received(socket, 1)
        server.run(f"REVOKE READ TUPLE ON STREAM {stream} FROM nurse")
        publish(server, stream, range(2000, 2001), "after")
        texts = takewhile(lambda text: '"suspended"' not in text, until_closed(socket))  # what was in flight is reset
        found = [n for text in texts for n in numbers(text)]
    assert 2000 not in found and len(found) < 2000


def test_a_reader_without_results_gets_a_sign_of_life(tmp_path: Path) -> None:
    with served(tmp_path, limits={"heartbeat_seconds": 1}) as server:
        stream = stream_of(server, "quiet")
        with opened(server, stream, server.token("ned")) as socket:
            assert socket.recv(20) == ""
            publish(server, stream, range(1))
            assert received(socket, 1)[0] == [0]
