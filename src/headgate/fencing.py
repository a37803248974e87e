"""Epochs: of all processes that ever wrote to one state, only the last one to start may go on.

A process that starts to write raises the epoch. One that was stopped or cut off meanwhile, and was replaced, finds a
higher epoch when it continues, and ends. No clock and no lock decides, so this works wherever files can be listed.

INVARIANT: no two processes have the same epoch. Each writes a record under a name of its own and then lists all
records. Whoever finds another one of the same number, or of a higher one, tries again with a higher number. Of two that
wrote the same number, at least the later one sees the other.

What must hold for a state (recovery/state.py) follows from one order of steps. A writer commits, then looks at the
epoch, then publishes. A successor raises the epoch, then looks for what was committed. So whatever the writer was
allowed to publish, its successor finds.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from collections.abc import Iterable

from headgate.errors import Fenced
from headgate.storage import Storage

_NAME = re.compile(r"epoch-(\d{6,})-[0-9a-f]{8}[.]json")
_IDENTITY = re.compile("[0-9a-f]{32}")


class Fence:
    """The epoch of this process, and the identity of the state, which all epochs share. `place` is what the state is
    called in messages; `known` is an identity that the state had before there were epochs."""

    def __init__(self, records: Storage, place: str, known: str = "") -> None:
        self._records, self._place = records, place
        self.identity = self._known_identity() or known or secrets.token_hex(16)
        self.epoch = self._raised()

    def check(self) -> None:
        """Raises Fenced if another process has started since."""
        if max(self._numbers(self._records.names())) != self.epoch:
            raise Fenced(
                f"cannot continue: another process has taken over the state in `{self._place}`",
                hint="nothing is lost: it goes on where this one was",
            )

    def _raised(self) -> int:
        while True:
            number = max(self._numbers(self._records.names())) + 1
            own = f"epoch-{number:06}-{secrets.token_hex(4)}.json"
            record = {"identity": self.identity, "host": socket.gethostname(), "process": os.getpid()}
            self._records.commit(own, json.dumps(record).encode())
            others = [name for name in self._records.names() if name != own]
            if max(self._numbers(others)) < number:
                self._records.delete(others)
                return number
            self._records.delete([own])

    def _known_identity(self) -> str:
        """From the newest record that can be read."""
        for name in sorted(filter(_NAME.fullmatch, self._records.names()), reverse=True):
            try:
                found = json.loads(self._records.read(name).to_pybytes())["identity"]
            except (OSError, ValueError, LookupError, TypeError):
                continue
            if isinstance(found, str) and _IDENTITY.fullmatch(found):
                return found
        return ""

    @staticmethod
    def _numbers(names: Iterable[str]) -> list[int]:
        return [0, *(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))]
