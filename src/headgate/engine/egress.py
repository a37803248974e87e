"""Egress: everyone's results, in their order, decided at the very last moment (SecFilter).

A result's label is decided about once for each different set of labels and each clearance, never for each row; nothing
that a view has computed is delivered to somebody whose rights of now do not permit it. Results stay columns: those who
look through one view and may have the same share one parcel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa

from headgate.engine.kernels.rows import Bools, Ints
from headgate.engine.program import read_by
from headgate.engine.results import Batch
from headgate.engine.views import View
from headgate.errors import LabelError
from headgate.labels import FALSE, Clearance, Label, Level, Rules
from headgate.plan.secure import Mode

_MOST_REMEMBERED = 200_000


@dataclass(frozen=True)
class Parcel:
    """Results of one query for some who look through one view, in order; all of them receive the same. `labels` are
    numbers of `kinds`; a query of several blocks says for each result which one it is from. If it `ended` for them,
    that is why, and there are no results."""

    subscribers: tuple[str, ...]
    query: str
    blocks: Ints
    times: Ints
    values: tuple[pa.Array, ...]
    labels: Ints
    kinds: tuple[Label, ...]
    ended: str = ""

    def __len__(self) -> int:
        return len(self.times)

    def to(self, subscribers: tuple[str, ...]) -> Parcel:
        return replace(self, subscribers=subscribers)

    def where(self, chosen: Bools) -> Parcel:
        if chosen.all():
            return self
        rows = np.flatnonzero(chosen)
        values = tuple(column.take(pa.array(rows)) for column in self.values)
        return replace(self, blocks=self.blocks[rows], times=self.times[rows], values=values, labels=self.labels[rows])


def last_word(view: View) -> Parcel:
    """What those who look through a view that has ended are told."""
    nothing = np.empty(0, np.int64)
    names = tuple(sorted(view.clearances))
    return Parcel(names, view.running.name, nothing, nothing, (), nothing, (), view.ended)


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
        self._combined: dict[tuple[Level, frozenset[int], frozenset[Label]], Label] = {}
        self._decided: dict[tuple[Clearance, bool], dict[Label, bool]] = {}

    def parcels(self, views: Sequence[View], found: Sequence[Batch]) -> list[Parcel]:
        by_column: dict[int, list[Batch]] = {}
        for batch in found:
            for column in batch.views:
                by_column.setdefault(column, []).append(batch)
        self._forget()
        whole: dict[tuple[tuple[int, frozenset[Label]], ...], Parcel] = {}
        parcels = []
        for view in views:
            mine = [batch for column in view.columns for batch in by_column.get(column, ())]
            if mine:
                read = [self._read(view, batch.block) for batch in mine]
                key = tuple(zip(map(id, mine), read, strict=True))
                if key not in whole:
                    whole[key] = self._whole(view, mine, read)
                parcels += self._shared_out(view, whole[key])
        return parcels

    def _shared_out(self, view: View, whole: Parcel) -> list[Parcel]:
        """One parcel for all who may have the same."""
        together: dict[bytes, tuple[Bools, list[str]]] = {}
        for subscriber in sorted(view.clearances):
            clearance = view.clearance(subscriber, self._rules)
            if clearance is not None:
                permitted = self._permitted(view, whole, clearance)
                together.setdefault(permitted.tobytes(), (permitted, []))[1].append(subscriber)
        parcels = (replace(whole.where(rows), subscribers=tuple(names)) for rows, names in together.values())
        return [parcel for parcel in parcels if len(parcel)]

    def _permitted(self, view: View, whole: Parcel, clearance: Clearance) -> Bools:
        aggregated = [block.aggregated for block in view.running.query.blocks]
        if all(aggregated) or not any(aggregated):
            return self._permits(whole.kinds, clearance, aggregated=aggregated[0])[whole.labels]
        either = [self._permits(whole.kinds, clearance, aggregated=x) for x in (False, True)]
        return np.where(np.array(aggregated)[whole.blocks], either[1][whole.labels], either[0][whole.labels])

    def _permits(self, kinds: tuple[Label, ...], clearance: Clearance, *, aggregated: bool) -> Bools:
        known = self._decided.setdefault((clearance, aggregated), {})
        for label in kinds:
            if label not in known:
                known[label] = self._rules.permits(label, clearance, aggregated=aggregated)
        return np.array([known[label] for label in kinds], np.bool_)

    def _read(self, view: View, number: int) -> frozenset[Label]:
        """The labels of the labelled columns that a block reads, but for those that read as NULL: in exact queries
        those that the view may not see. In cumulative ones all are read, and protect the results."""
        block = view.running.query.blocks[number]
        read = read_by(block)
        found = {
            label
            for reading in block.readings
            for name, label in reading.stream.labels
            if (reading.stream.name, name) in read
        }
        if not found or view.running.mode == Mode.CUMULATIVE:
            return frozenset(found)
        held = [x for name in view.clearances if (x := view.clearance(name, self._rules)) is not None]
        aggregated = block.aggregated
        return frozenset(x for x in found if held and self._rules.permits(x, held[0], aggregated=aggregated))

    def _whole(self, view: View, batches: list[Batch], read: Sequence[frozenset[Label]]) -> Parcel:
        """All that a view's blocks yielded, in order, for nobody yet; `read` are labels of columns, by batch."""
        level, (first, *others) = view.running.level, batches
        kinds = tuple(
            self._label(level, members, more)
            for batch, more in zip(batches, read, strict=True)
            for members in batch.sets
        )
        if not others:
            blocks = np.full(len(first), first.block)
            return Parcel((), first.query, blocks, first.time, first.values, first.labels, kinds)
        order = _order(view, batches)
        offsets = np.cumsum([0, *(len(batch.sets) for batch in batches)]).tolist()
        return Parcel(
            (),
            first.query,
            np.repeat([batch.block for batch in batches], [len(batch) for batch in batches])[order],
            np.concatenate([batch.time for batch in batches])[order],
            tuple(pa.concat_arrays(x).take(pa.array(order)) for x in zip(*(b.values for b in batches), strict=True)),
            np.concatenate([batch.labels + offset for batch, offset in zip(batches, offsets, strict=False)])[order],
            kinds,
        )

    def _label(self, level: Level, members: frozenset[int], more: frozenset[Label]) -> Label:
        key = level, members, more
        if key not in self._combined:
            self._combined[key] = combined(self._rules, level, (*(self._labels[x] for x in members), *more))
        return self._combined[key]

    def _forget(self) -> None:
        """Now and then, so that what is remembered does not grow for ever."""
        if len(self._combined) + sum(map(len, self._decided.values())) > _MOST_REMEMBERED:
            self._combined.clear()
            self._decided.clear()


def combined(rules: Rules, level: Level, labels: Iterable[Label]) -> Label:
    """The label of a result: all its inputs' protection, and the level of its query. What cannot be combined is for
    nobody; so that this does not depend on what else there is, they are combined in an order of their own."""
    least = rules.normal(Label(levels=frozenset({level})))
    try:
        return reduce(rules.combine, sorted(set(labels), key=str), least)
    except LabelError:
        return Label(FALSE)


def _order(view: View, batches: list[Batch]) -> Ints:
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
