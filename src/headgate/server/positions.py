"""Positions as readers see them: encrypted for one reader of one stream.

The numbers inside count versions of the state and computed results, which include those of others; a reader could count
what is hidden from it. Encrypted they say nothing, cannot be made up, and cannot be used by another reader.
"""

from __future__ import annotations

import base64
import binascii
import struct
from contextlib import suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from headgate.egress.delivery_log import NONE_YET, LogPosition
from headgate.errors import Conflict

_FORM = struct.Struct(">Qq")


class Positions:
    def __init__(self, key: bytes) -> None:
        self._cipher = AESSIV(key)

    def shown(self, position: LogPosition, *reader: str) -> str:
        """`reader` is the history of the log, the subscriber and the query."""
        sealed = self._cipher.encrypt(_FORM.pack(position.version, position.place), _bound(reader))
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def read(self, text: str, history: str, *reader: str) -> LogPosition:
        """A position that was given before the log had a history comes before everything in it."""
        for known in (history, NONE_YET):
            with suppress(InvalidTag, binascii.Error, ValueError, struct.error):
                sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
                return LogPosition(*_FORM.unpack(self._cipher.decrypt(sealed, _bound((known, *reader)))))
        raise Conflict(
            "cannot go on from this position: it is not one of yours in this stream",
            hint="begin without a position",
        )


def _bound(reader: tuple[str, ...]) -> list[bytes]:
    return [part.encode() for part in reader]
