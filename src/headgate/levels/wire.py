"""Messages between the server and a processor: a kind, facts as JSON, and parts as bytes.

The server must not trust what a processor sends, so nothing that comes from one is ever unpickled, and every length is
limited before memory is taken for it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

_LENGTHS = struct.Struct("<II")
_PART = struct.Struct("<Q")
MOST_FACTS, MOST_PARTS, MOST_BYTES = 64 << 20, 100_000, 2 << 30


class ChannelClosed(Exception):
    """The other side has ended, or what it sends is not a message."""


@dataclass(frozen=True)
class Message:
    kind: str
    facts: Mapping[str, Any]
    parts: tuple[bytes, ...] = ()


class Channel:
    """Two pipes; one side asks, the other answers."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self._reader, self._writer = reader, writer
        self.sent = self.received = 0
        """Bytes."""

    def send(self, kind: str, *parts: bytes, **facts: Any) -> None:
        head = json.dumps([kind, facts]).encode()
        content = [_LENGTHS.pack(len(head), len(parts)), *(_PART.pack(len(part)) for part in parts), head, *parts]
        try:
            for piece in content:
                self._writer.write(piece)
            self._writer.flush()
        except (OSError, ValueError):
            raise ChannelClosed from None
        self.sent += sum(map(len, content))

    def receive(self) -> Message:
        head, parts = _LENGTHS.unpack(self._exactly(_LENGTHS.size))
        if head > MOST_FACTS or parts > MOST_PARTS:
            raise ChannelClosed
        sizes = [_PART.unpack(self._exactly(_PART.size))[0] for _ in range(parts)]
        if sum(sizes) > MOST_BYTES:
            raise ChannelClosed
        try:
            kind, facts = json.loads(self._exactly(head))
        except (ValueError, TypeError):
            raise ChannelClosed from None
        if not isinstance(kind, str) or not isinstance(facts, dict):
            raise ChannelClosed
        return Message(kind, facts, tuple(self._exactly(size) for size in sizes))

    def _exactly(self, size: int) -> bytes:
        try:
            found = self._reader.read(size)
        except (OSError, ValueError):
            raise ChannelClosed from None
        if len(found) != size:
            raise ChannelClosed
        self.received += size
        return found

    def close(self) -> None:
        for pipe in (self._writer, self._reader):
            try:
                pipe.close()
            except OSError:
                continue
