"""The embedded engine: one principal's tables, kept up to date by every insertion and deletion.

A change runs through the components of relations in order (`maintenance`), so that the tables always equal those
computed from the base facts alone; events are processed, set rules off and are forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headgate.errors import HeadgateError
from headgate.sendlog.codegen import Generated, Loop
from headgate.sendlog.compiled import Compiled, RuleCode
from headgate.sendlog.core import Rel
from headgate.sendlog.derivations import Derivations, Fact
from headgate.sendlog.maintenance import Bound, Maintenance
from headgate.sendlog.tables import Table
from headgate.sendlog.values import Row, Value

LIMIT = 20_000_000
"""Derivations in one change; beyond, a program is taken not to end."""
_DELIVERED = Rel("overlayRecv")
"""The event by which an overlay's program hands a packet to the node above it."""


class Diverged(HeadgateError):
    """A change that set off more derivations than the limit; it was undone."""


@dataclass
class Changes:
    """What one change did: tuples that came and went, events that were exported, and what an overlay delivered."""

    inserted: dict[Rel, set[Row]] = field(default_factory=dict)
    deleted: dict[Rel, set[Row]] = field(default_factory=dict)
    sent: list[Fact] = field(default_factory=list)
    received: list[Value] = field(default_factory=list)

    def merge(self, plus: dict[Rel, set[Row]], minus: dict[Rel, set[Row]]) -> None:
        for rel, rows in minus.items():
            came = self.inserted.get(rel, set())
            self.deleted.setdefault(rel, set()).update(rows - came)
            came -= rows
        for rel, rows in plus.items():
            went = self.deleted.get(rel, set())
            self.inserted.setdefault(rel, set()).update(rows - went)
            went -= rows


class Engine:
    """Tables by relation. `apply` is the only way in; reading is `rows`."""

    def __init__(self, compiled: Compiled, principal: str, *, limit: int = LIMIT, undo: bool = True) -> None:
        """`undo`: a change beyond the limit is undone; without it, whoever made the engine throws it away then."""
        self.compiled, self.principal, self.limit, self._undoes = compiled, principal, limit, undo
        self.tables = {rel: Table() for rel in compiled.rels}
        self.base: dict[Rel, set[Row]] = {}
        self.failures = 0
        self.derivations = Derivations() if compiled.tracing else None
        self._keyed: dict[Rel, dict[Row, Row]] = {}
        self._maintenance = Maintenance(self.tables, self.base, self.derivations, self._count, self._failed)
        self._undo: list[tuple[Rel, Row, bool]] = []
        self.steps = 0
        self._components = [(c, self._bound(c.codes)) for c in compiled.components]
        self._triggers = {rel: self._bound(tuple(codes)) for rel, codes in compiled.triggers.items()}
        self._first = True
        self.initial = self.apply(insert=compiled.core.facts_of(principal))
        self._first = False

    def rows(self, rel: Rel) -> set[Row]:
        table = self.tables.get(rel)
        return table.rows if table is not None else set()

    def apply(self, insert: Iterable[Fact] = (), delete: Iterable[Fact] = ()) -> Changes:
        """Changes base facts and everything derived from them; events are processed and forgotten."""
        self.steps = 0
        done = Changes()
        self._undo.clear()
        waiting = deque([(list(insert), list(delete))])
        try:
            while waiting:
                pending = self._round(*waiting.popleft(), done)
                if pending:
                    waiting.append((pending, []))
        except Diverged:
            if self._undoes:
                self._restore()
            raise
        return done

    # One round

    def _round(self, insert: list[Fact], delete: list[Fact], done: Changes) -> list[Fact]:
        """Maintains the tables, then fires the events; what events insert is the next round's."""
        events = [fact for fact in insert if self._is_event(fact[0])]
        gone: dict[Rel, set[Row]] = {}
        new: dict[Rel, set[Row]] = {}
        for rel, row in delete:
            if row in self.base.get(rel, ()):
                self.base[rel].discard(row)
                self._undo.append((rel, row, True))
                gone.setdefault(rel, set()).add(row)
        for rel, row in insert:
            if not self._is_event(rel) and rel in self.tables:
                self._insert_base(rel, row, new, gone)
        plus: dict[Rel, set[Row]] = {}
        minus: dict[Rel, set[Row]] = {}
        if new or gone or self._first:
            for component, codes in self._components:
                self._maintenance.maintain(component, codes, new, gone, plus, minus, first=self._first)
            done.merge(plus, minus)
        pending: list[Fact] = []
        for rel, row in events:
            self._fire(rel, row, pending, done)
        if self.derivations is not None:
            self.derivations.drop(minus)
        return pending

    def _insert_base(self, rel: Rel, row: Row, new: dict[Rel, set[Row]], gone: dict[Rel, set[Row]]) -> None:
        table = self.compiled.core.tables.get(rel.name)
        if table is not None and table.keys:
            shift = {"said": 1, "out": 2}.get(rel.kind, 0)
            key = (*row[:shift], *(row[k - 1 + shift] for k in table.keys))
            old = self._keyed.setdefault(rel, {}).get(key)
            if old is not None and old != row and old in self.base.get(rel, ()):
                self.base[rel].discard(old)
                self._undo.append((rel, old, True))
                new.get(rel, set()).discard(old)
                gone.setdefault(rel, set()).add(old)
            self._keyed[rel][key] = row
        held = self.base.setdefault(rel, set())
        if row not in held:
            held.add(row)
            self._undo.append((rel, row, False))
        new.setdefault(rel, set()).add(row)

    def _is_event(self, rel: Rel) -> bool:
        return rel.kind != "out" and self.compiled.core.is_event(rel.name)

    def _fire(self, rel: Rel, row: Row, pending: list[Fact], done: Changes) -> None:
        if rel == _DELIVERED:
            done.received.append(row[-1])
        for bound in self._triggers.get(rel, ()):
            rule = bound.code.rule
            for _, _, loop in bound.derive:
                found: list[Any] = []
                loop(row, found)
                self._count(len(found))
                for made, label, body in self._aggregated(bound.code, found):
                    if self.derivations is not None:
                        self.derivations.add((rule.rel, made), label, body)
                    if rule.rel.kind == "out":
                        done.sent.append((rule.rel, made))
                    else:
                        pending.append((rule.rel, made))

    def _aggregated(self, code: RuleCode, found: list[Any]) -> list[tuple[Row, str, tuple[Fact, ...]]]:
        """The rows of an event's rule; an aggregate ranges over the solutions for this one event."""
        label = code.rule.label
        rows = found if self.derivations is not None else [(row, label, ()) for row in found]
        grouping = code.grouping
        if grouping is None:
            return rows
        groups: dict[Row, dict[Row, tuple[Fact, ...]]] = {}
        for row, _, body in rows:
            groups.setdefault(grouping.key(row), {})[row] = body
        made = []
        for key, solutions in groups.items():
            value, chosen = self._maintenance.groups.value(grouping, set(solutions))
            if value is not None:
                bodies = tuple([fact for row in chosen for fact in solutions[row]])
                made.append((grouping.head(key, value), label, bodies))
        return made

    # The rest

    def _bound(self, codes: tuple[RuleCode, ...]) -> list[Bound]:
        found = []
        for code in codes:
            if code.rule.owner in (None, self.principal):
                derive = [(d.trigger, d.negated, self._bind(d.derive)) for d in code.deltas]
                apart = [d.mark is not d.derive for d in code.deltas]
                mark = [
                    (d.trigger, d.negated, self._bind(d.mark)) if differs else one
                    for d, differs, one in zip(code.deltas, apart, derive, strict=True)
                ]
                found.append(Bound(code, derive, mark, self._bind))
        return found

    def _bind(self, generated: Generated) -> Loop:
        return generated.bind(self.principal, self.tables, self._failed, self._count)

    def _failed(self) -> None:
        self.failures += 1

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self.limit:
            hint = "a rule may make new values for ever"
            raise Diverged(f"cannot reach a fixpoint: more than {self.limit:,} derivations in one change", hint=hint)

    def _restore(self) -> None:
        """After a change that does not end: the base facts of before, and the tables that follow from them."""
        for rel, row, was in reversed(self._undo):
            (self.base[rel].add if was else self.base[rel].discard)(row)
        facts = [(rel, row) for rel, rows in self.base.items() for row in rows]
        for table in self.tables.values():
            table.clear()
        self._maintenance.clear()
        self._keyed.clear()
        self.base.clear()
        if self.derivations is not None:
            self.derivations.clear()
        self.steps = 0
        self._first = True
        self._round(facts, [], Changes())
        self._first = False
