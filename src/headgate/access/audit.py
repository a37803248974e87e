"""The audit trail: append-only, each record sealed together with the one before it.

Seals are HMACs under a key that is kept outside the store, so a user who can write the store cannot forge them. The
head of the trail (the number of records, the last seal) is sealed too, so a truncated trail is detected. Rolling the
whole store back to an older state, head included, can only be detected by comparison with a head noted elsewhere:
`headgate audit head` prints one, `headgate audit verify --expect` checks it.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _text
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from headgate.errors import StoreError

START = "0" * 64
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=True, default=repr).encode


MAX_FIELD = 500


class Event(NamedTuple):
    """One decision: who requested what, on which object, and the answer with its reason; `level` protects the record.

    A tuple, in the order of the store's columns, for speed: every statement makes one.
    """

    user: str
    session: str
    level: str
    action: str
    object: str
    granted: bool
    reason: str

    def clean(self) -> Event:
        """The event as it may be written: cut to a length, without unprintable characters. Callers without a session
        write here too."""
        together = f"{self.user}{self.action}{self.object}{self.reason}"
        if len(together) <= MAX_FIELD and together.isprintable():
            return self
        return self._replace(
            user=_clean(self.user),
            action=_clean(self.action),
            object=_clean(self.object),
            reason=_clean(self.reason),
        )


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:MAX_FIELD])


@dataclass(frozen=True)
class AuditRecord:
    number: int
    time: float
    event: Event
    mac: str


@dataclass(frozen=True)
class Head:
    """The end of the trail."""

    count: int
    mac: str
    seal: str

    def __str__(self) -> str:
        return f"{self.count}:{self.mac}"


class Seal:
    """All operations that need the key."""

    def __init__(self, key: bytes) -> None:
        self._begun = HMAC(key, SHA256())  # each seal starts from a copy

    def record(self, previous: str, number: int, time: float, event: Event) -> str:
        mac = self._begun.copy()
        mac.update(f"record\n{sealed_text(previous, number, time, event)}".encode())
        return mac.finalize().hex()

    def head(self, count: int, mac: str) -> Head:
        seal = self._begun.copy()
        seal.update(f"head\n{count}:{mac}".encode())
        return Head(count, mac, seal.finalize().hex())


def sealed_text(previous: str, number: int, time: float, event: Event) -> str:
    """`[previous, number, time, {the event's fields, sorted}]` in JSON. It is formatted here because every request
    waits for it. If a damaged store has other values in place of texts and numbers, the slow way produces the same
    form."""
    user, session, level, action, about, granted, reason = event
    try:
        if type(granted) is bool and isfinite(time):
            return (
                f'[{_text(previous)}, {number}, {time!r}, {{"action": {_text(action)}, '
                f'"granted": {"true" if granted else "false"}, "level": {_text(level)}, "object": {_text(about)}, '
                f'"reason": {_text(reason)}, "session": {_text(session)}, "user": {_text(user)}}}]'
            )
    except TypeError:  # not a text, or not a number
        pass
    return _encode([previous, number, time, event._asdict()])


def verify(seal: Seal, records: Iterable[AuditRecord], head: Head, expect: str = "") -> list[str]:
    """The faults of a trail, one line each; empty when every record is as it was written."""
    faults = []
    previous, number, seen = START, 0, {f"0:{START}"}
    for record in records:
        number += 1
        if record.number != number:
            faults.append(f"record {number} is missing: record {record.number} stands in its place")
            number = record.number
        if not _same(seal.record(previous, number, record.time, record.event), record.mac):
            faults.append(f"record {number} was altered, or a record before it was removed or moved")
        previous = record.mac
        seen.add(f"{number}:{previous}")
    if not _same(seal.head(head.count, head.mac).seal, head.seal):
        faults.append("the head of the trail was altered")
    elif (head.count, head.mac) != (number, previous):
        faults.append(f"the trail ends at record {number}, its head says {head.count}: records were removed or added")
    if expect and expect not in seen:
        faults.append("the expected head is not in this trail: it was rolled back or replaced")
    return faults


def _same(wanted: str, found: object) -> bool:
    """Compares whatever others may have written there, without trusting it to be a text."""
    return hmac.compare_digest(wanted.encode(), str(found).encode(errors="replace"))


def load_key(path: Path, *, create: bool = False) -> bytes:
    """The key, from a file that only its owner can read."""
    if create:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
    try:
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        raise StoreError(f"cannot read the audit key `{path}`", hint="restore it from a backup") from None
    if len(key) != 32:
        raise StoreError(f"cannot use the audit key `{path}`: it is damaged", hint="restore it from a backup")
    return key
