"""How the tables of a component follow its inputs: semi-naive insertion, delete and rederive (paper 003, section 5.1).

A component is a set of relations that depend on each other. A deletion marks all that may have depended on it, takes
that away, and derives again what still can be. Where `min` or `max` stands inside the recursion, insertions improve the
best tuples, and anything else computes the component anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from headgate.sendlog.best import Best
from headgate.sendlog.codegen import Generated, Loop
from headgate.sendlog.compiled import Component, Grouping, RuleCode
from headgate.sendlog.core import Rel
from headgate.sendlog.derivations import Derivations, Fact
from headgate.sendlog.groups import Groups
from headgate.sendlog.tables import Table
from headgate.sendlog.values import Row

_PORTION = 4096


@dataclass
class Bound:
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


class Maintenance:
    """Works on an engine's tables. `count` is told of every derivation, and ends a change that has too many."""

    def __init__(
        self,
        tables: dict[Rel, Table],
        base: dict[Rel, set[Row]],
        derivations: Derivations | None,
        count: Callable[[int], None],
        failed: Callable[[], None],
    ) -> None:
        self.tables, self.base, self.derivations = tables, base, derivations
        self.groups = Groups(tables, failed)
        self._count = count
        self._best = Best(tables, self.record, count, failed)

    def clear(self) -> None:
        self.groups.clear()
        self._best.forget(self.tables)

    def maintain(
        self,
        component: Component,
        codes: list[Bound],
        new: dict[Rel, set[Row]],
        gone: dict[Rel, set[Row]],
        plus: dict[Rel, set[Row]],
        minus: dict[Rel, set[Row]],
        *,
        first: bool,
    ) -> None:
        """Base facts `new` and `gone`, and what `plus` and `minus` say of the component's inputs; its own changes are
        added to these. `first`: nothing was derived before."""
        touched = first or any(rel in new or rel in gone for rel in component.rels)
        if not touched and not any(plus.get(rel) or minus.get(rel) for rel in component.inputs):
            return
        if component.best:
            self._maintain_best(component, codes, new, gone, plus, minus)
            return
        added: dict[Rel, set[Row]] = {}
        grouped_new, grouped_gone = self.groups.regroup(component, plus, minus, self.derivations)
        seeds = [(rel, row) for rel in component.rels for row in gone.get(rel, ())] + grouped_gone
        marked = self._mark(component, codes, seeds, plus, minus)
        for rel, row in marked:
            self.tables[rel].remove(row)
        queue: deque[Fact] = deque(self._still(component, codes, marked))
        queue.extend((rel, row) for rel in component.rels for row in new.get(rel, ()))
        queue.extend(grouped_new)
        for bound in codes if first else ():
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
        codes: list[Bound],
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

    def _may_mark(self, codes: list[Bound], plus: dict[Rel, set[Row]], minus: dict[Rel, set[Row]]) -> Iterator[bool]:
        for bound in codes:
            for trigger, negated, _ in bound.mark:
                yield bool(plus.get(trigger) if negated else minus.get(trigger))

    def _dependants(self, codes: list[Bound], rel: Rel, row: Row, *, negated: bool) -> list[Fact]:
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

    def _still(self, component: Component, codes: list[Bound], marked: dict[Fact, None]) -> list[Fact]:
        """Marked tuples that are base facts, values of an aggregate, or derived in another way."""
        grouped = {(g.rule.rel, row) for g in component.groupings for row in self.groups.heads(g)} if marked else set()
        kept = []
        for rel, row in marked:
            if row in self.base.get(rel, ()) or (rel, row) in grouped or self._derivable(codes, rel, row):
                kept.append((rel, row))
        return kept

    def _derivable(self, codes: list[Bound], rel: Rel, row: Row) -> bool:
        possible = False
        for bound in codes:
            if bound.code.target == rel and bound.again is not None:
                found: list[Any] = []
                bound.again(row, found)
                if found:
                    possible = True
                    self.record(rel, found)
        return possible

    def _derive(self, codes: list[Bound], rel: Rel, rows: set[Row], queue: deque[Fact], *, negated: bool) -> None:
        for bound in codes:
            for trigger, is_negated, loop in bound.derive:
                if trigger == rel and is_negated == negated:
                    for row in rows:
                        self._run(bound, loop, row, queue)

    def _run(self, bound: Bound, loop: Loop, row: Row | None, queue: deque[Fact]) -> None:
        found: list[Any] = []
        loop(row, found)
        if not found:
            return
        self._count(len(found))
        target = bound.code.target
        rows = self.tables[target].rows
        for one in self.record(target, found):
            if one not in rows:
                queue.append((target, one))

    def record(self, rel: Rel, found: list[Any]) -> list[Row]:
        if self.derivations is None:
            return found
        for row, label, body in found:
            self.derivations.add((rel, row), label, body)
        return [row for row, _, _ in found]

    def _insert(self, codes: list[Bound], queue: Iterable[Fact], added: dict[Rel, set[Row]]) -> None:
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
                target.pending |= set(self.record(target.rel, found)) - target.table.rows

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
        codes: list[Bound],
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

    def _others(self, component: Component, codes: list[Bound], bests: dict[Rel, Grouping]) -> None:
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
