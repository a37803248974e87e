"""What client and server must agree on: the names of headers and forms, and what a sender signs."""

from __future__ import annotations

import hashlib

JSON_LINES, ARROW_STREAM, EVENTS = "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/event-stream"
PRODUCER, SEQUENCE, SIGNATURE = "Headgate-Producer", "Headgate-Sequence", "Headgate-Signature"
POSITION, BEGINNING = "Last-Event-ID", "Headgate-Position"
"""Where a reader goes on; and, in the answer, where its results begin."""
PUBLISH = "publish"
"""The source of a stream that senders publish to."""
SUBPROTOCOL, SUBPROTOCOL_BEARER = "v1.headgate", "bearer.headgate."
"""What a WebSocket speaks, and how a browser names its token beside it."""


def signed_message(stream: str, user: str, producer: str, sequence: str, body: bytes) -> bytes:
    """What a sender signs: everything that a request to publish says."""
    parts = ["headgate publish 1", stream, user, producer, sequence, hashlib.sha256(body).hexdigest()]
    return "\n".join(parts).encode()
