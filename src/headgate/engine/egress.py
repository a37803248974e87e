"""Egress: everyone's results, in their order, decided at the very last moment (SecFilter).

A result's label is decided about once for each different set of labels and each clearance, never for each row; nothing
that a view has computed is delivered to somebody whose rights of now do not permit it. Results stay columns: those who
look through one view and may have the same share one parcel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import pyarrow as pa

from headgate.engine.kernels.narrow import of_kinds, places_of, renumbered, used
from headgate.engine.kernels.rows import Bools, Ints
from headgate.engine.results import Batch
from headgate.engine.views import View
from headgate.labels import LEAST, Clearance, Label, Level, Rules
from headgate.labels.conjunction import RoleHolder

_MOST_REMEMBERED = 1_000_000
"""Labels in sets whose combination is remembered, and decisions."""

_Read = tuple[tuple[Label, ...], bool]
"""How a block read its tuples: the labels of the columns it read, and whether it made aggregates."""


@dataclass(frozen=True)
class Outgoing:
    """Whose results these are, and of what, in words: the level and the roles are those of the subscription."""

    user: str
    level: str
    stream: str
    columns: tuple[str, ...]
    roles: frozenset[str] = frozenset()
    named: frozenset[str] | None = None
    """The sources that labels of results may name: those that the reader may view; None: all."""

    @property
    def path(self) -> tuple[str, ...]:
        """Where they go: levels above the least have a folder each, so that each can be guarded as its level needs."""
        above = () if self.level == str(LEAST) else (self.level,)
        return (self.user, *above, self.stream)


@dataclass(frozen=True)
class Parcel:
    """Results of one query for some who look through one view, in order; all of them receive the same. `labels` are
    numbers of `kinds`; a query of several blocks says for each result which one it is from. If it `ended` for them,
    `waits` until a stream can be read again, or is `suspended` until they have the rights, that is why, and there are
    no results; `outgoing` says where that goes if nobody else knows any more."""

    subscribers: tuple[str, ...]
    query: str
    blocks: Ints
    times: Ints
    values: tuple[pa.Array, ...]
    labels: Ints
    kinds: tuple[Label, ...]
    ended: str = ""
    waits: str = ""
    suspended: str = ""
    outgoing: Outgoing | None = None
    places: Ints | None = None
    """Which of the results that were computed these are, if some are not permitted any more."""

    def __len__(self) -> int:
        return len(self.times)

    @property
    def word(self) -> dict[str, str]:
        """What is said instead of results; nothing if these are results."""
        words = (("ended", self.ended), ("waits", self.waits), ("suspended", self.suspended))
        return {name: text for name, text in words if text}

    def to(self, subscribers: tuple[str, ...]) -> Parcel:
        return replace(self, subscribers=subscribers)

    def where(self, chosen: Bools) -> Parcel:
        """Only these results, and no labels but theirs: others may be of what is hidden from whoever receives this."""
        if chosen.all():
            return self._of_own_kinds()
        rows = np.flatnonzero(chosen)
        values = tuple(column.take(pa.array(rows)) for column in self.values)
        left = replace(self, blocks=self.blocks[rows], times=self.times[rows], values=values, labels=self.labels[rows])
        return left._of_own_kinds()

    def _of_own_kinds(self) -> Parcel:
        there = used(self.labels, len(self.kinds))
        if there.all():
            return self
        labels = renumbered(self.labels, places_of(there))
        return replace(self, labels=labels, kinds=tuple(compress(self.kinds, there.tolist())))

    def left(self, chosen: Bools) -> Parcel:
        """The same, and each keeps the place it had."""
        places = np.arange(len(self)) if self.places is None else self.places
        return replace(self.where(chosen), places=places[chosen])


def last_word(view: View, rules: Rules) -> Parcel:
    """What those who look through a view that has ended are told; who may see nothing there is told nothing either."""
    looking = tuple(name for name in sorted(view.clearances) if view.clearance(name, rules) is not None)
    return said(looking, view.running.name, ended=view.ended)


def said(
    subscribers: tuple[str, ...],
    query: str,
    *,
    ended: str = "",
    waits: str = "",
    suspended: str = "",
    outgoing: Outgoing | None = None,
) -> Parcel:
    nothing = np.empty(0, np.int64)
    return Parcel(subscribers, query, nothing, nothing, (), nothing, (), ended, waits, suspended, outgoing)


@dataclass(frozen=True)
class Delivery:
    """One result for one subscriber of one query."""

    subscriber: str
    query: str
    block: int
    time: int
    values: tuple[object, ...]
    label: Label


def deliveries(parcels: Iterable[Parcel]) -> list[Delivery]:
    """Results one by one, for those who want few of them; each subscriber's are in order."""
    found: list[Delivery] = []
    for parcel in parcels:
        columns = [column.to_pylist() for column in parcel.values]
        values = list(zip(*columns, strict=True)) if columns else [()] * len(parcel)
        rows = list(zip(parcel.blocks.tolist(), parcel.times.tolist(), values, parcel.labels.tolist(), strict=True))
        found += [
            Delivery(subscriber, parcel.query, block, time, row, parcel.kinds[label])
            for subscriber in parcel.subscribers
            for block, time, row, label in rows
        ]
    return found


class Egress:
    """`labels` are all labels by number; what a number means never changes, so decisions are remembered."""

    def __init__(self, rules: Rules, labels: Mapping[int, Label]) -> None:
        self._rules = rules
        self._labels = labels
        self._combined: dict[tuple[Level, _Read], dict[frozenset[int], Label]] = {}
        self._decided: dict[Clearance, dict[Label, bool]] = {}
        self._holders: dict[Clearance, RoleHolder] = {}
        self._remembered = 0

    def parcels(self, views: Sequence[View], found: Sequence[Batch]) -> list[Parcel]:
        by_column: dict[int, list[Batch]] = {}
        for batch in found:
            for column in batch.views:
                by_column.setdefault(column, []).append(batch)
        self._forget()
        whole: dict[tuple[object, ...], Parcel] = {}
        parcels = []
        for view in views:
            mine = [batch for column in view.columns for batch in by_column.get(column, ())]
            if mine:
                read = [self._read(view, batch.block) for batch in mine]
                key = (*map(id, mine), *read)
                if key not in whole:
                    whole[key] = self._whole(view, mine, read)
                parcels += self._shared_out(view, whole[key])
        return parcels

    def _shared_out(self, view: View, whole: Parcel) -> list[Parcel]:
        """One parcel for all who may have the same."""
        together: dict[tuple[bool, ...], list[str]] = {}
        for subscriber in sorted(view.clearances):
            clearance = view.clearance(subscriber, self._rules)
            if clearance is not None:
                together.setdefault(self._permits(whole.kinds, clearance), []).append(subscriber)
        if view.running.together and together:
            anybody = tuple(map(any, zip(*together, strict=True)))
            together = {anybody: [name for names in together.values() for name in names]}
        parcels = []
        for permitted, names in together.items():
            parcel = whole if all(permitted) else whole.where(of_kinds(whole.labels, permitted))
            if len(parcel):
                parcels.append(replace(parcel, subscribers=tuple(names)))
        return parcels

    def _permits(self, kinds: tuple[Label, ...], clearance: Clearance) -> tuple[bool, ...]:
        """Which of these labels permit the clearance."""
        known = self._decided.setdefault(clearance, {})
        answers = map(known.get, kinds)  # looked up once: labels are not hashed for nothing
        return tuple(
            self._decide(label, clearance) if answer is None else answer
            for label, answer in zip(kinds, answers, strict=True)
        )

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

    def _whole(self, view: View, batches: list[Batch], read: list[_Read]) -> Parcel:
        """All that a view's blocks yielded, in order, for nobody yet; `read` says how each batch was read."""
        level, (first, *others) = view.running.level, batches
        both = [(own, members) for batch, own in zip(batches, read, strict=True) for members in batch.sets]
        sets = {key: number for number, key in enumerate(dict.fromkeys(both))}
        kinds = self._labels_of(level, sets)
        if not others:
            blocks = np.full(len(first), first.block)
            return Parcel((), first.query, blocks, first.time, first.values, first.labels, kinds)
        order = in_order(view, batches)
        return Parcel(
            (),
            first.query,
            np.repeat([batch.block for batch in batches], [len(batch) for batch in batches])[order],
            np.concatenate([batch.time for batch in batches])[order],
            tuple(pa.concat_arrays(x).take(pa.array(order)) for x in zip(*(b.values for b in batches), strict=True)),
            np.concatenate(
                [
                    np.array([sets[own, x] for x in batch.sets], np.int64)[batch.labels]
                    for batch, own in zip(batches, read, strict=True)
                ]
            )[order],
            kinds,
        )

    def _labels_of(self, level: Level, sets: Iterable[tuple[_Read, frozenset[int]]]) -> tuple[Label, ...]:
        """The labels of results that combine these, read so, at the level of their query."""
        found = []
        for read, members in sets:
            known = self._combined.setdefault((level, read), {})
            if members not in known:
                columns, aggregated = read
                labels = (self._labels[number] for number in members)
                label = combined(self._rules, level, (*labels, *columns))
                known[members] = label.as_aggregate() if aggregated else label
                self._remembered += len(members)
            found.append(known[members])
        return tuple(found)

    def _forget(self) -> None:
        """Now and then, so that what is remembered does not grow for ever."""
        if self._remembered > _MOST_REMEMBERED:
            self._combined.clear()
            self._decided.clear()
            self._holders.clear()
            self._remembered = 0


def combined(rules: Rules, level: Level, labels: Iterable[Label]) -> Label:
    """The label of a result: all its inputs' protection, and the level of its query."""
    given, least = tuple(labels), Label(levels=frozenset({level}))
    return rules.combine(rules.normal(least), given[0]) if len(given) == 1 else rules.combine_all((least, *given))


def in_order(view: View, batches: Sequence[Batch]) -> Ints:
    """Windowed blocks first, by instant and then block; then what merely passed, by arrival."""
    passing = [view.running.query.blocks[batch.block].stateless for batch in batches]
    widest = max(len(batch.order) for batch in batches)
    columns: list[list[Ints]] = [[] for _ in range(widest + 2)]
    for batch, passes in zip(batches, passing, strict=True):
        at, block = np.full(len(batch), int(passes)), np.full(len(batch), batch.block)
        instant, rows = batch.order[: 1 if passes else 4], batch.order[1 if passes else 4 :]
        keys = (at, *instant, block, *rows)
        for number, column in enumerate(columns):
            column.append(keys[number] if number < len(keys) else np.zeros(len(batch), np.int64))
    return np.lexsort([np.concatenate(column) for column in reversed(columns)])
