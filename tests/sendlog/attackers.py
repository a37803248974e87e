"""What attackers can do: send any bytes to anyone, with keys of their own, and change what is on its way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from headgate.sendlog.network import Message, Network
from headgate.sendlog.packets import Header, Statement, pack

MALLORY = "mallory"


def send_as(network: Network, claimed: str, to: str, *statements: Statement, number: int = 1) -> None:
    """Mallory's key, another's name."""
    mallory = network.nodes[MALLORY]
    header = Header(claimed, 1, to, 1, number)
    network.nodes[to].receive(pack(mallory.keys, mallory.settings.scheme, header, statements))
    network.run()


def altering(change: Callable[[list[Any]], list[Any]], sender: str, to: str) -> Callable[[Message], list[Message]]:
    """Rewrites the statements of every message between two principals; the tag stays."""

    def tap(message: Message) -> list[Message]:
        if message[:2] != (sender, to):
            return [message]
        text, _, tag = message[2].partition(b"\n")
        scheme, header, statements = json.loads(text)
        changed = json.dumps([scheme, header, change(statements)], separators=(",", ":")).encode()
        return [(sender, to, changed + b"\n" + tag)]

    return tap


def renumbered(data: bytes, number: int) -> bytes:
    """The same message, as if it were another."""
    text, _, tag = data.partition(b"\n")
    scheme, header, statements = json.loads(text)
    return json.dumps([scheme, [*header[:4], number], statements], separators=(",", ":")).encode() + b"\n" + tag
