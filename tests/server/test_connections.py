"""Connections: what lies beneath an encrypted one is known, or nothing is served."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from unittest.mock import Mock

import pytest

from headgate.errors import StoreError
from headgate.server.connections import LimitedProtocol, Link
from server.serving import served


def test_an_encrypted_connection_of_an_unknown_kind_is_not_served() -> None:
    """As in a Python whose asyncio has another inside: bytes that wait could not be counted nor taken back."""
    transport = Mock(spec=["get_extra_info", "abort"])
    with pytest.raises(StoreError, match="this version of Python"):
        Link(transport)
    transport.abort.assert_called_once_with()


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Head and body are two packets; where Nagle's algorithm is on, the second one waits 40 ms for the client."""
    found, made = list[int](), LimitedProtocol.connection_made

    def connection_made(protocol: LimitedProtocol, transport: asyncio.Transport) -> None:
        beneath: socket.socket = transport.get_extra_info("socket")
        found.append(beneath.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(protocol, transport)

    monkeypatch.setattr(LimitedProtocol, "connection_made", connection_made)
    with served(tmp_path) as server, server.client("sam") as client:
        client.get("/healthz").raise_for_status()
    assert found
    assert all(found)


def test_what_has_not_left_this_machine_is_known() -> None:
    """A reader that takes nothing: some bytes wait here, and others have arrived but are not acknowledged, or are."""
    listening = socket.create_server(("127.0.0.1", 0))
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(listening.getsockname())
    sender, _ = listening.accept()
    transport = Mock(get_write_buffer_size=lambda: 7, get_extra_info={"socket": sender}.get)
    link = Link(transport)
    assert link.unsent() == link.unacknowledged() == 7
    sender.setblocking(False)
    sender.send(bytes(1 << 20))
    assert 7 < link.unsent() <= link.unacknowledged()
    for opened in (sender, reader, listening):
        opened.close()
    assert link.unsent() == link.unacknowledged() == 7  # nothing waits in the kernel for a socket that is closed


def test_through_a_socket_of_the_home_folder_all_that_was_not_read_counts_as_unsent() -> None:
    sender, reader = socket.socketpair()
    link = Link(Mock(get_write_buffer_size=lambda: 0, get_extra_info={"socket": sender}.get))
    sender.send(b"abc")
    assert link.unsent() == link.unacknowledged() > 0
    sender.close()
    reader.close()
