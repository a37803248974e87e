"""Notices of sources: subscribers learn that an input stream cannot be read, and when it can be read again.

Which stream it is, and why, is only for its owner.
"""

from __future__ import annotations

from collections.abc import Collection

from headgate.model.results import ResultBatch, notice
from headgate.model.snapshot import CatalogSnapshot
from headgate.recovery.messages import CONTINUES, WAITS, concerned_by


class SourceNotices:
    def __init__(self) -> None:
        self._notified: dict[str, set[tuple[str, str]]] = {}
        """By stream that cannot be read: who was notified (subscriber and query)."""

    def wait(self, served: CatalogSnapshot, unread: Collection[str]) -> list[ResultBatch]:
        """The notices that these streams cannot be read at the moment."""
        self._notified |= {stream: concerned_by(served, (stream,)) for stream in unread}
        return [notice((name,), query, waits=WAITS) for name, query in sorted(concerned_by(served, unread))]

    def is_waiting(self, stream: str) -> bool:
        return stream in self._notified

    def resume(self, served: CatalogSnapshot, stream: str) -> list[ResultBatch]:
        """The notices that a stream can be read again: for everybody who was notified and waits for no other."""
        concerned = self._notified.pop(stream, set())
        still = {key for waiting in self._notified.values() for key in waiting}
        told = sorted((concerned - still) & served.clearances.keys())
        return [notice((name,), query, continues=CONTINUES) for name, query in told]
