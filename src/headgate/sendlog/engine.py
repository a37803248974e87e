"""The embedded engine: one principal's tables, kept up to date by every insertion and deletion.

Insertions run through rule strands, many tuples at a time (semi-naive, paper 003 section 5.1). A deletion first takes
away all that may have depended on it and then derives again what still can be (delete and rederive), component by
component, so that the tables always equal those computed from the base facts alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from headgate.errors import HeadgateError
from headgate.sendlog.best import Best
from headgate.sendlog.codegen import Generated, Loop
from headgate.sendlog.compiled import Compiled, Component, Grouping, RuleCode
from headgate.sendlog.core import Rel
from headgate.sendlog.derivations import Derivations
from headgate.sendlog.groups import Groups
from headgate.sendlog.tables import Table
from headgate.sendlog.values import Row, Value

Fact = tuple[Rel, Row]
LIMIT = 20_000_000
"""Derivations in one change; beyond, a program is taken not to end."""


_PORTION = 4096
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


@dataclass
class _Bound:
    """A rule's loops over this engine's tables. Those that only deletions and recomputing need are made when they are
    needed: each loop's indexes must be kept up to date from then on."""

    code: RuleCode
    derive: list[tuple[Rel, bool, Loop]]
    mark: list[tuple[Rel, bool, Loop]]
    bind: Callable[[Generated], Loop]

    @cached_property
    def again(self) -> Loop | None:
        return self.bind(self.code.again) if self.code.again is not None else None

    @cached_property
    def full(self) -> Loop:
        return self.bind(self.code.full)


@dataclass
class _Slot:
    """A relation in the hot loop, with the strands that its new tuples set off."""

    rel: Rel
    table: Table
    added: set[Row]
    pending: set[Row] = field(default_factory=set)
    loops: list[tuple[_Slot, Loop]] = field(default_factory=list)


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
        self._groups = Groups(self.tables, self._failed)
        self._best = Best(self.tables, self._record, self._count, self._failed)
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
                self._maintain(component, codes, new, gone, plus, minus)
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
            value, chosen = self._groups.value(grouping, set(solutions))
            if value is not None:
                bodies = tuple([fact for row in chosen for fact in solutions[row]])
                made.append((grouping.head(key, value), label, bodies))
        return made

    # Maintenance of one component

    def _maintain(
        self,
        component: Component,
        codes: list[_Bound],
        new: dict[Rel, set[Row]],
        gone: dict[Rel, set[Row]],
        plus: dict[Rel, set[Row]],
        minus: dict[Rel, set[Row]],
    ) -> None:
        touched = self._first or any(rel in new or rel in gone for rel in component.rels)
        if not touched and not any(plus.get(rel) or minus.get(rel) for rel in component.inputs):
            return
        if component.best:
            self._maintain_best(component, codes, new, gone, plus, minus)
            return
        added: dict[Rel, set[Row]] = {}
        grouped_new, grouped_gone = self._groups.regroup(component, plus, minus, self.derivations)
        seeds = [(rel, row) for rel in component.rels for row in gone.get(rel, ())] + grouped_gone
        marked = self._mark(component, codes, seeds, plus, minus)
        for rel, row in marked:
            self.tables[rel].remove(row)
        queue: deque[Fact] = deque(self._still(component, codes, marked))
        queue.extend((rel, row) for rel in component.rels for row in new.get(rel, ()))
        queue.extend(grouped_new)
        for bound in codes if self._first else ():
            if all(atom.negated for atom in bound.code.rule.atoms()):  # no tuple ever sets it off
                self._run(bound, bound.full, None, queue)
        for rel in component.inputs.intersection(plus):
            self._derive(codes, rel, plus[rel], queue, negated=False)
        for rel in component.inputs.intersection(minus):
            self._derive(codes, rel, minus[rel], queue, negated=True)
        self._insert(codes, queue, added)
        self._settle(component, marked, added, plus, minus)

    def _mark(
        self,
        component: Component,
        codes: list[_Bound],
        seeds: list[Fact],
        plus: dict[Rel, set[Row]],
        minus: dict[Rel, set[Row]],
    ) -> dict[Fact, None]:
        """All tuples of the component that may depend on what went, or on a negated tuple that came."""
        marked: dict[Fact, None] = {}
        queue: deque[Fact] = deque()
        if not seeds and not any(self._may_mark(codes, plus, minus)):
            return marked

        def mark(facts: Iterable[Fact]) -> None:
            for fact in facts:
                if fact not in marked and fact[1] in self.tables[fact[0]].rows:
                    marked[fact] = None
                    queue.append(fact)

        mark(seeds)
        back = [(rel, row) for rel, rows in minus.items() for row in rows]
        for rel, row in back:  # joins must still find the tuples that went
            self.tables[rel].add(row)
        for rel in component.inputs:
            for row in minus.get(rel, ()):
                mark(self._dependants(codes, rel, row, negated=False))
            for row in plus.get(rel, ()):
                mark(self._dependants(codes, rel, row, negated=True))
        while queue:
            mark(self._dependants(codes, *queue.popleft(), negated=False))
        for rel, row in back:
            self.tables[rel].remove(row)
        return marked

    def _may_mark(self, codes: list[_Bound], plus: dict[Rel, set[Row]], minus: dict[Rel, set[Row]]) -> Iterator[bool]:
        for bound in codes:
            for trigger, negated, _ in bound.mark:
                yield bool(plus.get(trigger) if negated else minus.get(trigger))

    def _dependants(self, codes: list[_Bound], rel: Rel, row: Row, *, negated: bool) -> list[Fact]:
        facts = []
        for bound in codes:
            for trigger, is_negated, loop in bound.mark:
                if trigger == rel and is_negated == negated:
                    found: list[Any] = []
                    loop(row, found)
                    self._count(len(found))
                    for one in found:
                        if self.derivations is not None:
                            self.derivations.remove((bound.code.target, one[0]), one[1], one[2])
                        facts.append((bound.code.target, one if self.derivations is None else one[0]))
        return facts

    def _still(self, component: Component, codes: list[_Bound], marked: dict[Fact, None]) -> list[Fact]:
        """Marked tuples that are base facts, values of an aggregate, or derived in another way."""
        grouped = {(g.rule.rel, row) for g in component.groupings for row in self._groups.heads(g)} if marked else set()
        kept = []
        for rel, row in marked:
            if row in self.base.get(rel, ()) or (rel, row) in grouped or self._derivable(codes, rel, row):
                kept.append((rel, row))
        return kept

    def _derivable(self, codes: list[_Bound], rel: Rel, row: Row) -> bool:
        possible = False
        for bound in codes:
            if bound.code.target == rel and bound.again is not None:
                found: list[Any] = []
                bound.again(row, found)
                if found:
                    possible = True
                    self._record(rel, found)
        return possible

    def _derive(self, codes: list[_Bound], rel: Rel, rows: set[Row], queue: deque[Fact], *, negated: bool) -> None:
        for bound in codes:
            for trigger, is_negated, loop in bound.derive:
                if trigger == rel and is_negated == negated:
                    for row in rows:
                        self._run(bound, loop, row, queue)

    def _run(self, bound: _Bound, loop: Loop, row: Row | None, queue: deque[Fact]) -> None:
        found: list[Any] = []
        loop(row, found)
        if not found:
            return
        self._count(len(found))
        target = bound.code.target
        rows = self.tables[target].rows
        for one in self._record(target, found):
            if one not in rows:
                queue.append((target, one))

    def _record(self, rel: Rel, found: list[Any]) -> list[Row]:
        if self.derivations is None:
            return found
        for row, label, body in found:
            self.derivations.add((rel, row), label, body)
        return [row for row, _, _ in found]

    def _insert(self, codes: list[_Bound], queue: Iterable[Fact], added: dict[Rel, set[Row]]) -> None:
        """The hot loop: new tuples are stored and run through the strands they set off, many at a time."""
        slots: dict[Rel, _Slot] = {}
        for bound in codes:
            target = slots.setdefault(bound.code.target, self._slot(bound.code.target, added))
            for trigger, negated, loop in bound.derive:
                if not negated:
                    slots.setdefault(trigger, self._slot(trigger, added)).loops.append((target, loop))
        for rel, row in queue:
            if rel not in slots:
                slots[rel] = self._slot(rel, added)
            slots[rel].pending.add(row)
        while waiting := [slot for slot in slots.values() if slot.pending]:
            for slot in waiting:
                delta, slot.pending = slot.pending - slot.table.rows, set()
                slot.table.add_all(delta)
                slot.added |= delta
                for target, loop in slot.loops:
                    self._advance(delta, target, loop)

    def _advance(self, delta: set[Row], target: _Slot, loop: Loop) -> None:
        """In portions: candidates are many more than the tuples that are new."""
        rows = iter(delta)
        while portion := list(islice(rows, _PORTION)):
            found: list[Any] = []
            for row in portion:
                loop(row, found)
            if found:
                self._count(len(found))
                target.pending |= set(self._record(target.rel, found)) - target.table.rows

    def _slot(self, rel: Rel, added: dict[Rel, set[Row]]) -> _Slot:
        return _Slot(rel, self.tables[rel], added.setdefault(rel, set()))

    def _settle(
        self,
        component: Component,
        marked: dict[Fact, None],
        added: dict[Rel, set[Row]],
        plus: dict[Rel, set[Row]],
        minus: dict[Rel, set[Row]],
    ) -> None:
        was: dict[Rel, set[Row]] = {}
        for rel, row in marked:
            was.setdefault(rel, set()).add(row)
        for rel in component.rels:
            came, went = added.get(rel, set()), was.get(rel, set())
            if came - went:
                plus[rel] = came - went
            if went - came:
                minus[rel] = went - came

    # Aggregates inside recursion

    def _maintain_best(
        self,
        component: Component,
        codes: list[_Bound],
        new: dict[Rel, set[Row]],
        gone: dict[Rel, set[Row]],
        plus: dict[Rel, set[Row]],
        minus: dict[Rel, set[Row]],
    ) -> None:
        """Insertions improve what is there; after anything else the component is computed anew."""
        before = {rel: set(self.tables[rel].rows) for rel in component.rels}
        bests = {g.rule.rel: g for g in component.groupings}
        only_more = not any(gone.get(rel) for rel in component.rels) and not any(
            minus.get(rel) for rel in component.inputs
        )
        strands = [(t, bound.code.target, loop) for bound in codes for t, n, loop in bound.derive if not n]
        negated = any(is_negated for bound in codes for _, is_negated, _ in bound.derive)
        queue: deque[Fact] = deque()
        if only_more and not negated and len(bests) == len(component.rels):
            for rel in component.inputs.intersection(plus):
                self._derive(codes, rel, plus[rel], queue, negated=False)
            queue.extend((rel, row) for rel in component.rels for row in new.get(rel, ()))
            self._best.improve(component, strands, queue)
        else:
            for rel in component.rels:
                self.tables[rel].clear()
            self._best.forget(component.rels)
            for bound in codes:
                self._run(bound, bound.full, None, queue)
            queue.extend((rel, row) for rel in component.rels for row in self.base.get(rel, ()))
            self._best.improve(component, strands, queue)
            self._others(component, codes, bests)
        for rel in component.rels:
            rows = self.tables[rel].rows
            plus[rel], minus[rel] = rows - before[rel], before[rel] - rows

    def _others(self, component: Component, codes: list[_Bound], bests: dict[Rel, Grouping]) -> None:
        """Relations in the recursion that are no aggregates followed every improvement; now only the last ones
        count."""
        others = [rel for rel in component.rels if rel not in bests]
        for rel in others:
            self.tables[rel].clear()
        queue: deque[Fact] = deque((rel, row) for rel in others for row in self.base.get(rel, ()))
        plain = [bound for bound in codes if bound.code.target not in bests]
        for bound in plain:
            self._run(bound, bound.full, None, queue)
        self._insert(plain, queue, {})

    # The rest

    def _bound(self, codes: tuple[RuleCode, ...]) -> list[_Bound]:
        found = []
        for code in codes:
            if code.rule.owner in (None, self.principal):
                derive = [(d.trigger, d.negated, self._bind(d.derive)) for d in code.deltas]
                apart = [d.mark is not d.derive for d in code.deltas]
                mark = [
                    (d.trigger, d.negated, self._bind(d.mark)) if differs else one
                    for d, differs, one in zip(code.deltas, apart, derive, strict=True)
                ]
                found.append(_Bound(code, derive, mark, self._bind))
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
        self._groups.clear()
        self._best.forget(self.tables)
        self._keyed.clear()
        self.base = {}
        if self.derivations is not None:
            self.derivations = Derivations()
        self.steps = 0
        self._first = True
        self._round(facts, [], Changes())
        self._first = False
