"""The statements that a principal holds: by whom each came, the signature that proves it, and when it ends.

A statement holds as long as anybody who passed it on still does, and for the lifetime of its predicate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headgate.sendlog.core import Rel
from headgate.sendlog.derivations import Fact
from headgate.sendlog.packets import Packet
from headgate.sendlog.values import Row, canonical


class Held:
    def __init__(self) -> None:
        self._support: dict[Fact, set[str]] = {}
        self._proofs: dict[tuple[str, Row], Any] = {}
        self._expiry: dict[Fact, float] = {}

    def hold(self, fact: Fact, via: str) -> None:
        self._support.setdefault(fact, set()).add(via)

    def live(self, fact: Fact, until: float) -> None:
        """Soft state, of a statement or of a base fact."""
        self._expiry[fact] = until

    def forget(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self._support.pop(fact, None)

    def unsupported(self, via: str, facts: Iterable[Fact]) -> list[Fact]:
        """What nobody says any more once `via` takes it back."""
        gone = []
        for fact in facts:
            self._support.get(fact, set()).discard(via)
            if not self._support.get(fact):
                self._support.pop(fact, None)
                self._expiry.pop(fact, None)
                gone.append(fact)
        return gone

    def expired(self, now: float) -> list[Fact]:
        """What has ended, which is held no more."""
        gone = [fact for fact, end in self._expiry.items() if end <= now]
        for fact in gone:
            del self._expiry[fact]
        self.forget(gone)
        return gone

    def said_by(self, principal: str) -> list[Fact]:
        return [fact for fact in self._support if fact[1] and fact[1][0] == principal]

    def came_by(self, peer: str) -> list[Fact]:
        return [fact for fact, via in self._support.items() if peer in via]

    # Signatures

    def prove(self, name: str, row: Row, packet: Packet, place: int) -> None:
        """The statement at a place of a message; its path to the root is found when it is asked for."""
        self._proofs[name, row] = (packet, place)

    def proven_by(self, name: str, row: Row, proof: Any) -> None:
        self._proofs[name, row] = proof

    def proof(self, name: str, row: Row) -> Any:
        """The signature that came with `row[0] says name(...)`, or None."""
        found = self._proofs.get((name, row))
        if isinstance(found, tuple):
            packet, place = found
            found = self._proofs[name, row] = packet.proof(place)
        return found

    # Moving

    def listed(self) -> dict[str, Any]:
        return {
            "support": [[_rel(rel), row, sorted(via)] for (rel, row), via in self._support.items()],
            "proofs": [[name, row, self.proof(name, row)] for name, row in self._proofs],
            "expiry": [[_rel(rel), row, end] for (rel, row), end in self._expiry.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._support = {(Rel(*rel), row_of(row)): set(via) for rel, row, via in state["support"]}
        self._proofs = {(name, row_of(row)): proof for name, row, proof in state["proofs"]}
        self._expiry = {(Rel(*rel), row_of(row)): end for rel, row, end in state["expiry"]}


def _rel(rel: Rel) -> list[Any]:
    return [rel.name, rel.kind, rel.level]


def row_of(data: Any) -> Row:
    row = canonical(data)
    return row if isinstance(row, tuple) else ()
