"""The result filter (SecFilter): decides at the last moment which results each subscriber receives, in result order.

A decision is made once for each distinct set of labels and each clearance, never for each row. INVARIANT: no result
that a view computed reaches a subscriber whose current rights do not permit it. Results stay in columns: subscribers of
one view who may receive the same results share one result batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np

from headgate.egress.gathered import GatheredBatch, Gathering, Piece, joined
from headgate.execution.results import moments_of, result_order
from headgate.labels import Clearance, Label, Level, Rules
from headgate.labels.conjunction import RoleHolder
from headgate.model.query import ContinuousQuery
from headgate.model.results import BlockResults, ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.view import View

_MOST_REMEMBERED = 1_000_000
"""The most labels in remembered sets and remembered decisions, together."""

_Read = tuple[tuple[Label, ...], bool]
"""How a block read its tuples: the labels of the columns it read, and whether it aggregates."""
_Members = tuple[_Read, frozenset[int]]
"""The labels, by number, that a result combines, and how they were read."""


class ResultFilter:
    """`labels` maps numbers to labels.

    INVARIANT: while a filter exists, the label of a number does not change, so decisions can be remembered. When a
    label becomes stricter under its number (`Dictionary.protect`), the processor gets a new filter."""

    def __init__(self, rules: Rules, labels: Mapping[int, Label]) -> None:
        self._rules = rules
        self._labels = labels
        self._combined: dict[tuple[Level, _Read], dict[frozenset[int], Label]] = {}
        self._kinds: dict[tuple[Level, tuple[_Members, ...]], tuple[Label, ...]] = {}
        self._decided: dict[Clearance, dict[Label, bool]] = {}
        self._permitted: dict[Clearance, dict[int, tuple[bool, ...]]] = {}
        """Decisions about whole `_kinds`, by their identity."""
        self._holders: dict[Clearance, RoleHolder] = {}
        self._remembered = 0

    def result_batches(self, views: Sequence[View], found: Sequence[BlockResults]) -> list[ResultBatch]:
        by_column: dict[int, list[BlockResults]] = {}
        for batch in found:
            for column in batch.views:
                by_column.setdefault(column, []).append(batch)
        self._forget()
        whole: dict[tuple[object, ...], tuple[ResultBatch, list[View]]] = {}
        for view in views:
            mine = [batch for column in view.columns for batch in by_column.get(column, ())]
            if mine:
                read = [self._read(view, batch.block) for batch in mine]
                timeline = view.scratch.timeline.marks.tobytes() if view.scratch.timeline is not None else b""
                key = (view.running.name, *map(id, mine), *read, timeline)
                if key not in whole:
                    whole[key] = self._whole(view, mine, read), []
                whole[key][1].append(view)
        return [x for found_in, of in whole.values() for x in self._shared_out(of, found_in)]

    def _shared_out(self, views: Sequence[View], whole: ResultBatch) -> list[ResultBatch]:
        """One result batch for each group of subscribers, of all views that have these results, who may receive the
        same of them."""
        together: dict[tuple[bool, ...], list[str]] = {}
        clearances = {name: view.clearance(name, self._rules) for view in views for name in view.clearances}
        for subscriber, clearance in sorted(clearances.items(), key=itemgetter(0)):
            if clearance is not None:
                together.setdefault(self._permits(whole.kinds, clearance), []).append(subscriber)
        if views[0].running.together and together:
            anybody = tuple(map(any, zip(*together, strict=True)))
            together = {anybody: [name for names in together.values() for name in names]}
        result_batches = []
        for permitted, names in together.items():
            result_batch = whole if all(permitted) else whole.of_kinds(permitted)
            if len(result_batch):
                result_batches.append(result_batch.to(tuple(names)))
        return result_batches

    def _permits(self, kinds: tuple[Label, ...], clearance: Clearance) -> tuple[bool, ...]:
        """For each of these labels, which are among `_kinds`, whether it permits the clearance."""
        known = self._permitted.setdefault(clearance, {})
        found = known.get(id(kinds))
        if found is None:
            answers = self._decided.setdefault(clearance, {})
            found = tuple(answers[x] if x in answers else self._decide(x, clearance) for x in kinds)
            known[id(kinds)] = found
            self._remembered += len(found)
        return found

    def _decide(self, label: Label, clearance: Clearance) -> bool:
        holder = self._holders.get(clearance)
        if holder is None:
            holder = self._holders[clearance] = RoleHolder(clearance.roles)
        answer = holder.satisfies(label.roles) and self._rules.permits_whatever_roles(label, clearance)
        self._decided[clearance][label] = answer
        self._remembered += 1
        return answer

    def _read(self, view: View, block: int) -> _Read:
        return view.column_labels(block, self._rules), view.running.query.blocks[block].aggregated

    def _whole(self, view: View, batches: list[BlockResults], read: list[_Read]) -> ResultBatch:
        """All results of a view's blocks, in order, without subscribers yet; `read` says how each batch was read."""
        level, (first, *others) = view.running.level, batches
        both = [(own, members) for batch, own in zip(batches, read, strict=True) for members in batch.sets]
        sets = dict.fromkeys(both)
        kinds = self._labels_of(level, tuple(sets))
        if not others and first.written is None:
            blocks = np.full(len(first), first.block)
            come = moments_of(view, first) if _in_moments(view) else None
            return ResultBatch((), first.query, blocks, first.time, first.values, first.labels, kinds, moments=come)
        place = {key: number for number, key in enumerate(sets)}
        numbers = [tuple(place[own, x] for x in batch.sets) for batch, own in zip(batches, read, strict=True)]
        workers = next((x.written.workers for x in batches if x.written is not None), None)
        if workers is not None:
            passing = [view.running.query.blocks[x.block].stateless for x in batches]
            pieces = tuple(Piece.of(*x) for x in zip(batches, numbers, passing, strict=True))
            return GatheredBatch((), Gathering(first.query, pieces, kinds), workers)
        parts = [replace(x, labels=np.array(own, np.int64)[x.labels]) for x, own in zip(batches, numbers, strict=True)]
        order = result_order(view, batches)
        come = np.concatenate([moments_of(view, batch) for batch in batches])[order] if _in_moments(view) else None
        return replace(joined(first.query, parts, order, kinds), moments=come)

    def _labels_of(self, level: Level, sets: tuple[_Members, ...]) -> tuple[Label, ...]:
        """The labels of results that combine these sets of labels, read in these ways, at the level of their query."""
        kinds = self._kinds.get((level, sets))
        if kinds is None:
            kinds = self._kinds[level, sets] = tuple(self._combination(level, *x) for x in sets)
            self._remembered += len(sets)
        return kinds

    def _combination(self, level: Level, read: _Read, members: frozenset[int]) -> Label:
        known = self._combined.setdefault((level, read), {})
        if members not in known:
            columns, aggregated = read
            labels = (self._labels[number] for number in members)
            label = combined(self._rules, level, (*labels, *columns))
            known[members] = label.as_aggregate() if aggregated else label
            self._remembered += len(members)
        return known[members]

    def _forget(self) -> None:
        """Clears remembered combinations and decisions when there are too many, so that they do not grow without
        limit."""
        if self._remembered > _MOST_REMEMBERED:
            self._combined.clear()
            self._kinds.clear()
            self._decided.clear()
            self._permitted.clear()
            self._holders.clear()
            self._remembered = 0


def _in_moments(view: View) -> bool:
    """Whether others read the results of a view, and at which moments these come is known."""
    return bool(view.readers) and view.scratch.timeline is not None


def combined(rules: Rules, level: Level, labels: Iterable[Label]) -> Label:
    """The label of a result: the protection of all its inputs, and the level of its query."""
    given, least = tuple(labels), Label(levels=frozenset({level}))
    return rules.combine(rules.normal(least), given[0]) if len(given) == 1 else rules.combine_all((least, *given))


class Decisions:
    """Which results the rights of one catalog snapshot permit, whenever they were computed. The same results and
    rights are decided about once."""

    def __init__(self, snapshot: CatalogSnapshot) -> None:
        self._snapshot = snapshot
        self._left: dict[tuple[int, Clearance], tuple[ResultBatch, ResultBatch | None]] = {}
        """What is left, beside the results that it was decided about, so that their identity is nobody else's."""

    def left(self, results: ResultBatch, subscriber: str) -> ResultBatch | None:
        """What is left of results, or a notice, for one of its subscribers; None: nothing."""
        now = self._snapshot
        if results.outgoing is not None:  # a notice about a subscription holds no result
            return results
        query = now.running.get(results.query)
        if query is None:
            return results if results.word and (subscriber, results.query) in now.unfit else None
        clearance = now.clearances.get((subscriber, results.query))
        if clearance is None:
            return None
        key = id(results), clearance
        if key not in self._left:
            self._left[key] = results, self._decided(results, query, clearance)
        return self._left[key][1]

    def _decided(self, results: ResultBatch, query: ContinuousQuery, clearance: Clearance) -> ResultBatch | None:
        rules = self._snapshot.rules
        if not rules.order.dominates(clearance.level, query.level):
            return None
        here = replace(clearance, level=query.level)
        allowed = [rules.permits(self._snapshot.protected(label), here) for label in results.kinds]
        left = results if all(allowed) else results.left_of_kinds(allowed)
        return left if len(left) or left.word else None


def permitted(snapshot: CatalogSnapshot, results: ResultBatch) -> list[ResultBatch]:
    """What the rights of this snapshot permit of results: one batch for all subscribers who may have the same."""
    if results.outgoing is not None:
        return [results]
    decisions = Decisions(snapshot)
    together: dict[int, tuple[ResultBatch, list[str]]] = {}
    for subscriber in results.subscribers:
        left = decisions.left(results, subscriber)
        if left is not None:
            together.setdefault(id(left), (left, []))[1].append(subscriber)
    return [left.to(tuple(names)) for left, names in together.values()]


def permits_all(snapshot: CatalogSnapshot, results: ResultBatch) -> bool:
    """Whether every row is still permitted to every subscriber of the batch."""
    found = permitted(snapshot, results)
    names = [name for x in found for name in x.subscribers]
    return len(names) == len(results.subscribers) and all(len(x) == len(results) for x in found)
