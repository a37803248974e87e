"""Tells owners of streams about roles that labels name and that do not exist: most often a sender has misspelt one, and
nobody sees the tuple. It is no fault of the tuple: the role may be created later."""

from __future__ import annotations

from collections.abc import Mapping, Set

from headgate.ingress.validation import Ingress
from headgate.lexing import quote
from headgate.model.rejected import RejectedRows
from headgate.recovery.messages import note

_MOST = 100
"""Roles of which an owner is told for one stream: senders choose the names."""


class UnknownRoles:
    """Each owner is told of each role once, as long as the process lives."""

    def __init__(self) -> None:
        self._told: dict[str, set[str]] = {}

    def notes(self, roles: Set[str] | None, ingress: Mapping[str, Ingress]) -> list[RejectedRows]:
        """What is new since the last call; `roles` are those that exist, None: not known."""
        found: list[RejectedRows] = []
        for stream, reader in ingress.items():
            named = reader.take_named()
            if roles is None or not named:
                continue
            told = self._told.setdefault(stream, set())
            for role in sorted(named - roles - told)[: _MOST - len(told)]:
                told.add(role)
                found.append(note(stream, text_of(role)))
        return found


def text_of(role: str) -> str:
    return f"a label names role {quote(role)}, which does not exist: nobody sees a tuple that needs it"
