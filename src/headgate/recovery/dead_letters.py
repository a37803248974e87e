"""Dead letters: rejected rows and messages for the owners of streams, collected until the next version is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.model.rejected import RejectedRows
from headgate.plain import counted
from headgate.recovery.counts import RunCounts
from headgate.recovery.messages import LATE, note


class DeadLetters:
    def __init__(self, counts: RunCounts) -> None:
        self._counts = counts
        self._waiting: list[RejectedRows] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def reject(self, rejected: Sequence[RejectedRows]) -> None:
        self._counts.rejected.update({(x.stream, x.reason): len(x) for x in rejected})
        self.add(rejected)

    def late(self, stream: str, tuples: int) -> None:
        """Tuples came too late for windows."""
        if tuples:
            self._counts.late[stream] += tuples
            self.tell(stream, f"{LATE}: {counted(tuples, 'tuple')}")

    def tell(self, stream: str, text: str) -> None:
        """A message for the owner of a stream."""
        self._waiting.append(note(stream, text))

    def tell_all(self, texts: Mapping[str, str]) -> None:
        """Messages by stream."""
        for stream, text in texts.items():
            self.tell(stream, text)

    def add(self, rejected: Sequence[RejectedRows]) -> None:
        """Rows that were counted elsewhere."""
        self._waiting += rejected

    def take(self) -> list[RejectedRows]:
        """Everything that was collected since the last call."""
        found, self._waiting = self._waiting, []
        return found
