"""Where results go in a folder: one folder for each user, and in it one file for each stream."""

from __future__ import annotations

from headgate.egress.sinks import Address
from headgate.labels import source_shown
from headgate.service.headgate import Headgate


class Folders:
    def __init__(self, headgate: Headgate) -> None:
        self._headgate = headgate

    def of(self, subscriber: str, query: str) -> Address:
        return Address.of(self._headgate.snapshots.outgoing(subscriber, query))

    def of_rejected(self, stream: str) -> tuple[str, ...]:
        return (self._headgate.snapshots.owner(stream), f"{source_shown(stream)}.rejected")
