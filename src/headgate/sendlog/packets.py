"""What principals send each other: batches of statements under one tag, and proofs of single statements.

Every statement is a leaf that also holds sender, receiver, epochs and sequence number, so that none can be moved to
another
message. The tag is over the Merkle root of the leaves: one signature for a batch, and with the path to the root each
statement can be verified alone (paper 003, section 5.2: the triplet of principal, signature and tuple).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from headgate.sendlog import merkle
from headgate.sendlog.keys import LEVELS
from headgate.sendlog.values import Row, ValueFault, canonical, decoded, encoded

_ROOT = b"sendlog root\0"
INSERT, DELETE, EVENT, HELLO = "+", "-", "!", "h"
MAX_PACKET = 64_000_000


class Signer(Protocol):
    """Makes tags: a principal's key ring, or a private key alone."""

    def tag(self, scheme: str, to: str, data: bytes) -> bytes: ...


class Verifier(Protocol):
    """Checks tags: a principal's key ring, or one public key."""

    def authentic(self, scheme: str, speaker: str, tag: bytes, data: bytes) -> bool: ...


@dataclass(frozen=True)
class Header:
    """From whom to whom; epochs count restarts, `number` counts the messages of one sender to one receiver."""

    sender: str
    sender_epoch: int
    receiver: str
    receiver_epoch: int
    number: int

    def listed(self) -> list[Any]:
        return [self.sender, self.sender_epoch, self.receiver, self.receiver_epoch, self.number]


@dataclass(frozen=True)
class Statement:
    """`speaker says name(row)` or its retraction; `proof` is the speaker's own signature where another forwards it."""

    op: str
    name: str
    speaker: str
    row: Row
    provenance: Any = None
    proof: Any = None

    def listed(self) -> list[Any]:
        said = [self.op, self.name, self.speaker, self.row]
        found: list[Any] = [*said, self.provenance, self.proof]
        if self.proof is not None and encoded(self.proof[2]) == encoded(said):
            found[5] = [*self.proof[:2], 0, *self.proof[3:]]  # the statement that it proves stands beside it
        while found[-1] is None:
            found.pop()
        return found

    @classmethod
    def of(cls, data: Any) -> Statement:
        if not isinstance(data, list) or not 4 <= len(data) <= 6 or not all(isinstance(x, str) for x in data[:3]):
            raise ValueFault("this is no statement")
        if data[0] not in (INSERT, DELETE, EVENT, HELLO) or not isinstance(data[3], list):
            raise ValueFault("this is no statement")
        row = canonical(data[3])
        if len(data) == 6 and isinstance(data[5], list) and len(data[5]) == 5 and data[5][2] == 0:
            data = [*data[:5], [*data[5][:2], data[:4], *data[5][3:]]]
        return cls(data[0], data[1], data[2], row if isinstance(row, tuple) else (), *data[4:])


def _leaf(header: Header, listed: list[Any]) -> bytes:
    return merkle.leaf(encoded([header.listed(), listed]))


def pack(keys: Signer, scheme: str, header: Header, statements: Sequence[Statement]) -> bytes:
    """A message: one line of JSON, then the tag."""
    listed = [statement.listed() for statement in statements]
    tag = b""
    if scheme != "none":
        root = merkle.root(merkle.levels([_leaf(header, one) for one in listed]))
        tag = keys.tag(scheme, header.receiver, _ROOT + root)
    return encoded([scheme, header.listed(), listed]) + b"\n" + tag


@dataclass(frozen=True)
class Packet:
    """A message as it came in: nothing of it is believed yet."""

    scheme: str
    header: Header
    listed: tuple[list[Any], ...]
    statements: tuple[Statement, ...]
    tag: bytes

    def authentic(self, keys: Verifier) -> bool:
        if self.scheme == "none":
            return self.tag == b""
        return keys.authentic(self.scheme, self.header.sender, self.tag, _ROOT + merkle.root(self._tree))

    @cached_property
    def _tree(self) -> list[list[bytes]]:
        return merkle.levels([_leaf(self.header, one) for one in self.listed])

    def proof(self, place: int) -> Any:
        """The signature on one statement of the batch, with the path to the root."""
        steps = [[on_left, base64.b64encode(x).decode()] for on_left, x in merkle.path(self._tree, place)]
        tag = base64.b64encode(self.tag).decode()
        return [self.scheme, self.header.listed(), self.listed[place], steps, tag]


def unpack(data: bytes) -> Packet:
    """A ValueFault for what is no message."""
    if len(data) > MAX_PACKET:
        raise ValueFault(f"a message has at most {MAX_PACKET:,} bytes")
    text, _, tag = data.partition(b"\n")
    found = decoded(text)
    if not isinstance(found, list) or len(found) != 3 or found[0] not in LEVELS or not isinstance(found[2], list):
        raise ValueFault("these bytes are no message")
    header, statements = _header(found[1]), tuple([Statement.of(one) for one in found[2]])
    if not statements:
        raise ValueFault("a message holds at least one statement")
    return Packet(found[0], header, tuple(found[2]), statements, tag)


def _header(data: Any) -> Header:
    if not isinstance(data, list) or len(data) != 5:
        raise ValueFault("this is no header")
    texts, numbers = (data[0], data[2]), (data[1], data[3], data[4])
    if not all(isinstance(x, str) for x in texts) or not all(type(x) is int and 0 <= x < 2**63 for x in numbers):
        raise ValueFault("this is no header")
    return Header(*data)


def proven(keys: Verifier, proof: Any) -> Statement | None:
    """The statement that a proof proves, said by the one who signed it; None where it proves nothing.

    A MAC proves nothing to a third principal: anyone of the two who share its key could have made it."""
    try:
        scheme, listed_header, listed, steps, tag = proof
        if scheme not in LEVELS or LEVELS[scheme] < 2:
            return None
        header, statement = _header(listed_header), Statement.of(listed)
        if statement.speaker != header.sender or statement.op == DELETE:
            return None
        path = tuple([(bool(on_left), base64.b64decode(x)) for on_left, x in steps])
        root = merkle.climbed(_leaf(header, listed), path)
        return statement if keys.authentic(scheme, header.sender, base64.b64decode(tag), _ROOT + root) else None
    except (ValueError, TypeError, ValueFault):
        return None
