"""A principal's part of the provenance: the trees of its tuples, of what was said to it, and of what is gone.

Online provenance is that of tuples that hold now. Offline provenance keeps the tree of a tuple when the tuple goes,
with
the time, for forensics (paper 003, section 6.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.sendlog.core import Rel
from headgate.sendlog.engine import Engine
from headgate.sendlog.provenance import MAX_NODES, Tree, Use
from headgate.sendlog.values import Row, canonical

Remote = Callable[[str, Tree], Tree]
"""Asks the principal that said a tuple for the rest of its tree: distributed provenance."""


@dataclass(frozen=True)
class Bygone:
    """The tree of a tuple that went at a time."""

    tree: Tree
    until: float


class Tracing:
    def __init__(self, principal: str, engine: Engine, *, offline: bool) -> None:
        self.principal, self.engine, self.offline = principal, engine, offline
        self.archive: list[Bygone] = []
        self._came: dict[tuple[str, Row], tuple[Tree, str]] = {}
        self._trees: dict[tuple[Rel, Row], Tree] = {}
        self._budget = 0
        self._statements = False

    def came(self, statement: tuple[str, Row], tree: Tree, via: str) -> None:
        """A statement arrived, with as much of its tree as was sent along."""
        self._came[statement] = (tree, via)

    def listed(self) -> list[Any]:
        return [[name, row, tree.listed(), via] for (name, row), (tree, via) in self._came.items()]

    def restore(self, data: list[Any]) -> None:
        for name, row, tree, via in data:
            values = canonical(row)
            self._came[name, values if isinstance(values, tuple) else ()] = (Tree.of(tree), via)

    def went(self, gone: Mapping[Rel, set[Row]], now: float) -> None:
        """Tuples went, and their derivations with them; offline provenance has their trees from `remember`."""
        for rel, rows in gone.items():
            for row in rows:
                tree = self._trees.pop((rel, row), None)
                if tree is not None:
                    self.archive.append(Bygone(tree, now))

    def remember(self, changed: Mapping[Rel, set[Row]]) -> None:
        """Keeps the trees of tuples that came, where offline provenance is wanted."""
        for rel, rows in changed.items() if self.offline else ():
            if rel.kind == "local":
                for row in rows:
                    self._trees[rel, row] = self.tree(rel, row)

    def tree(self, rel: Rel, row: Row, remote: Remote | None = None, *, statements: bool = False) -> Tree:
        """Why a tuple is there; `remote` follows what others said; `statements` leaves local facts out."""
        self._budget = MAX_NODES
        self._statements = statements
        return self._tree(rel, row, remote, frozenset())

    def _tree(self, rel: Rel, row: Row, remote: Remote | None, above: frozenset[tuple[Rel, Row]]) -> Tree:
        self._budget -= 1
        if rel.kind == "said":
            return self._said(rel, row, remote)
        name, values, speaker = rel.name, row, ""
        if rel.kind == "out":
            values, speaker = row[2:], str(row[1])
        if speaker and speaker != self.principal:  # forwarded: it is what the speaker said, not what we derived
            return self._said(Rel(name, "said"), row[1:], remote)
        derivations = self.engine.derivations
        uses: list[Use] = []
        inside = above | {(rel, row)}
        for label, body in derivations.of((rel, row)) if derivations is not None else ():
            flat = [fact for one in body for fact in self._solutions(one) if not self._left_out(fact)]
            if self._budget > 0 and not inside & set(flat):
                uses.append(Use(label, tuple([self._tree(r, t, remote, inside) for r, t in flat])))
        return Tree(self.principal, name, values, speaker, tuple(uses))

    def _left_out(self, fact: tuple[Rel, Row]) -> bool:
        """Where only statements are wanted: local facts, but for events that follow from statements."""
        rel, derivations = fact[0], self.engine.derivations
        if not self._statements or rel.kind != "local" or derivations is None:
            return False
        return not (self.engine.compiled.core.is_event(rel.name) and derivations.of(fact))

    def _solutions(self, fact: tuple[Rel, Row]) -> list[tuple[Rel, Row]]:
        """Solutions of an aggregate's body are no tuples of anybody's: the tuples behind them are."""
        if fact[0].kind != "body" or self.engine.derivations is None:
            return [fact]
        found = self.engine.derivations.of(fact)
        return list(found[0][1]) if found else []

    def _said(self, rel: Rel, row: Row, remote: Remote | None) -> Tree:
        speaker = str(row[0])
        known, via = self._came.get((rel.name, row), (Tree(speaker, rel.name, row[1:], speaker), speaker))
        if remote is not None and not known.uses:
            return remote(via, known)
        return known
