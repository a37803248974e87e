"""Order and freshness between two principals: numbers, epochs, acknowledgements.

Each sender numbers its messages to each receiver and level of authentication. A receiver takes them in order and each
once: a number
seen before is a replay. An epoch is one life of a principal; messages for an earlier life of the receiver are
refused, and the
sender is told (`hello`), so that it sends what holds now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headgate.errors import HeadgateError
from headgate.sendlog.packets import Header, Packet
from headgate.sendlog.values import decoded, encoded

MAX_WAITING = 10_000
FIRST_EPOCH = 1


@dataclass
class _Incoming:
    epoch: int = FIRST_EPOCH
    last: int = 0
    waiting: dict[int, Packet] = field(default_factory=dict)


class Channels:
    """The state of all channels of one principal. `keep`: messages are kept until they are acknowledged."""

    def __init__(self, principal: str, epoch: int, *, keep: bool) -> None:
        self.principal, self.epoch, self.keep = principal, epoch, keep
        self.peers: dict[str, int] = {}
        self._next: dict[tuple[str, str], int] = {}
        self._unacknowledged: dict[tuple[str, str], dict[int, bytes]] = {}
        self._incoming: dict[tuple[str, str], _Incoming] = {}
        self._known: dict[str, int] = {}

    def header(self, receiver: str, scheme: str) -> Header:
        number = self._next[receiver, scheme] = self._next.get((receiver, scheme), 0) + 1
        return Header(self.principal, self.epoch, receiver, self.peers.get(receiver, FIRST_EPOCH), number)

    def sent(self, header: Header, scheme: str, data: bytes) -> None:
        if self.keep:
            self._unacknowledged.setdefault((header.receiver, scheme), {})[header.number] = data

    def resend(self) -> list[tuple[str, bytes]]:
        """Everything that was not acknowledged yet, in order."""
        return [(peer, kept[n]) for (peer, _), kept in self._unacknowledged.items() for n in sorted(kept)]

    def new_epoch(self, peer: str, epoch: int) -> bool:
        """Whether a peer began a new life that we did not know of as a receiver; then our numbers begin again."""
        if epoch <= self.peers.get(peer, FIRST_EPOCH):
            return False
        self.peers[peer] = epoch
        for key in [key for key in self._next if key[0] == peer]:
            del self._next[key]
            self._unacknowledged.pop(key, None)
        return True

    def restarted(self, peer: str, epoch: int) -> bool:
        """Whether a sender began a new life: what it said in the old one is void."""
        known = self._known.get(peer)
        self._known[peer] = max(epoch, known or 0)
        if known is None or epoch <= known:
            return False
        for key in [key for key in self._incoming if key[0] == peer]:
            del self._incoming[key]
        return True

    def admit(self, packet: Packet) -> tuple[list[Packet], str]:
        """The packets whose turn has come, or why this one is refused."""
        header = packet.header
        channel = self._incoming.setdefault((header.sender, packet.scheme), _Incoming(header.sender_epoch))
        if header.receiver_epoch != self.epoch:
            return [], "stale"
        if header.sender_epoch < channel.epoch or header.number <= channel.last or header.number in channel.waiting:
            return [], "replayed"
        if len(channel.waiting) >= MAX_WAITING:
            return [], "too many waiting"
        channel.waiting[header.number] = packet
        ready = []
        while channel.last + 1 in channel.waiting:
            channel.last += 1
            ready.append(channel.waiting.pop(channel.last))
        return ready, ""

    def listed(self) -> list[Any]:
        """The numbers and epochs; messages that wait or are kept belong to whoever carries them."""
        incoming = [[*key, channel.epoch, channel.last] for key, channel in self._incoming.items()]
        return [self.peers, [[*key, n] for key, n in self._next.items()], incoming, self._known]

    def restore(self, data: list[Any]) -> None:
        self.peers, sent, incoming, self._known = data
        self._next = {(peer, scheme): number for peer, scheme, number in sent}
        self._incoming = {(peer, scheme): _Incoming(epoch, last) for peer, scheme, epoch, last in incoming}

    def acknowledgement(self, peer: str, scheme: str) -> bytes:
        channel = self._incoming.get((peer, scheme), _Incoming())
        return encoded(["ack", self.principal, self.epoch, scheme, channel.epoch, channel.last])

    def acknowledged(self, data: bytes) -> bool:
        """Whether this was an acknowledgement. It is not signed: who can forge it could as well drop the message."""
        if not data.startswith(b'["ack",'):
            return False
        try:
            found: Any = decoded(data)
        except HeadgateError:
            return True
        if isinstance(found, list) and len(found) == 6 and isinstance(found[1], str) and isinstance(found[3], str):
            _, peer, epoch, scheme, mine, last = found
            current = epoch == self.peers.get(peer, FIRST_EPOCH) and mine == self.epoch and isinstance(last, int)
            for number in [n for n in self._unacknowledged.get((peer, scheme), ()) if current and n <= last]:
                del self._unacknowledged[peer, scheme][number]
        return True
