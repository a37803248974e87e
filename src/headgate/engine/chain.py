"""The processors of a pipeline, one for each stage: what one stage yields is among what the next one reads.

It knows who looks at which query, and follows what is wanted: queries come and go without disturbing the state of
others, rights change for those who look, labels keep their numbers for as long as the state lives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.engine.carriers import Carrier
from headgate.engine.cells import CellName, Cells
from headgate.engine.demand import Demand
from headgate.engine.egress import Parcel
from headgate.engine.kernels.cell import Cell
from headgate.engine.kernels.given import Program
from headgate.engine.kernels.limits import Limits
from headgate.engine.processor import Arrivals, Processor
from headgate.engine.sights import Running, View
from headgate.engine.sql.types import ARROW
from headgate.engine.stages import Stages, fed
from headgate.engine.state import NO_LIMIT
from headgate.engine.wanted import MOST_LISTED, Wanted
from headgate.errors import LabelError
from headgate.labels import FALSE, Clearance, Label, Rules
from headgate.labels.text import parse_any_label
from headgate.plan.secure import Mode

Make = Callable[[Sequence[Running], Program, pa.Schema], Carrier]


class Numbers:
    """Labels by number. They are kept with the state, so a number means the same for as long as the state lives."""

    def __init__(self) -> None:
        self.labels: list[Label] = []
        self._numbers: dict[Label, int] = {}

    def number(self, label: Label) -> int:
        if label not in self._numbers:
            self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return self._numbers[label]

    def protect(self, strengthened: Callable[[Label], Label]) -> bool:
        """What each label is from now on, in its place; whether any became another."""
        labels = [strengthened(label) for label in self.labels]
        changed = labels != self.labels
        if changed:
            self._keep(labels)
        return changed

    def plain(self) -> list[str]:
        return [str(label) for label in self.labels]

    def restore(self, texts: Sequence[str]) -> None:
        self._keep([parse_any_label(text, limit=NO_LIMIT) for text in texts])

    def _keep(self, labels: list[Label]) -> None:
        self.labels = labels
        self._numbers = {label: number for number, label in enumerate(labels)}


class Chain:
    """`make` makes what runs the cells of a program."""

    def __init__(self, make: Make, limits: Limits | None = None) -> None:
        self._make = make
        self._limits = limits
        self._demand = Demand()
        self._stages = Stages.of(self._demand)
        self._processors: list[Processor] = []
        self._known: list[int] = []
        self._views: dict[tuple[str, str], View] = {}
        self.numbers = Numbers()
        self.unseen = 0
        """How many tuples of the last batch nobody sees."""

    # What is wanted ---------------------------------------------------------------------------------------------------

    def meet(self, demand: Demand) -> None:
        """From now on this is wanted."""
        stages = Stages.of(demand)
        if stages.stages != self._stages.stages:
            self._rebuild(demand, stages, *self.save())
        self._rule(demand)
        self._demand, self._stages = demand, stages
        self._meet_subscribers()

    def feed(self, tables: Mapping[str, Arrivals]) -> None:
        """The tuples of all tables that could be read."""
        self._know()
        for processor in self._processors:
            processor.feed([tables[name] for name in sorted(tables)])

    def _rule(self, demand: Demand) -> None:
        """What a stream's owner demands now also protects the tuples that came before."""
        stricter = demand.entrances != self._demand.entrances and self.numbers.protect(demand.protected)
        for number, processor in enumerate(self._processors):
            if stricter:
                processor.know(dict(enumerate(self.numbers.labels)))
                self._known[number] = len(self.numbers.labels)
            processor.rule(demand.rules, anew=stricter)

    def _rebuild(self, demand: Demand, stages: Stages, cells: Cells, plain: Sequence[Mapping[str, Any]]) -> None:
        """New processors, which go on where those that ran the same queries were; a query that means something else
        than the one of its name begins with nothing."""
        self._processors = [self._processor(queries, demand.rules) for queries in stages.stages]
        for number, (processor, rest) in enumerate(zip(self._processors, plain, strict=False)):
            means = {name: query.meaning for name, query in processor.running.items()}
            kept = frozenset(name for name, meant in rest["queries"].items() if means.get(name) == meant)
            own = {(share.partition(" ")[2], x): c for (share, x), c in cells.items() if _stage(share) == number}
            processor.restore(own, rest, kept)
        self._known = [0] * len(self._processors)
        self._know()
        for processor in self._processors:
            processor.decide_anew()
        self._views = {
            (name, view.running.name): view
            for processor in self._processors
            for view in processor.views
            for name in view.clearances
        }

    def _processor(self, queries: Sequence[Running], rules: Rules) -> Processor:
        return Processor(queries, rules, lambda program, schema: self._make(queries, program, schema), self._limits)

    def _meet_subscribers(self) -> None:
        self._know()
        wanted = {(x.name, x.query): x.clearance for x in self._stages.subscribers}
        for key in [key for key in self._views if key not in wanted]:
            self._processor_of(key[1]).leave(self._views.pop(key), key[0])
        coming: dict[tuple[str, Clearance | None], list[str]] = {}
        changed: dict[tuple[int, Clearance | None], list[tuple[str, str]]] = {}
        for (name, query), clearance in wanted.items():
            known = self._views.get((name, query))
            if known is None:
                coming.setdefault((query, clearance), []).append(name)
            elif known.clearances.get(name) != clearance:
                changed.setdefault((id(known), clearance), []).append((name, query))
        for (query, clearance), names in coming.items():
            self._subscribe(query, dict.fromkeys(names, clearance))
        for (_, clearance), keys in changed.items():
            self._change(keys, clearance)

    def _subscribe(self, query: str, clearances: Mapping[str, Clearance | None]) -> None:
        """Those who come together with the same rights look through one view. All who look at a cumulative query do."""
        processor = self._processor_of(query)
        cumulative = self._stages.running[query].mode == Mode.CUMULATIVE
        there = [x for x in processor.views if cumulative and x.running.name == query and not x.ended]
        if there:
            processor.change(there[0], clearances)
        view = there[0] if there else processor.subscribe(query, clearances)
        self._views |= {(name, query): view for name in clearances}

    def _change(self, keys: Sequence[tuple[str, str]], clearance: Clearance | None) -> None:
        """New rights for some who look through one view; if for some only, they go on through one of their own."""
        names, view = [name for name, _ in keys], self._views[keys[0]]
        processor = self._processor_of(view.running.name)
        if view.running.mode == Mode.EXACT and len(names) < len(view.clearances):
            view = processor.part(view, names)
            self._views |= dict.fromkeys(keys, view)
        processor.change(view, dict.fromkeys(names, clearance))

    def _processor_of(self, query: str) -> Processor:
        return self._processors[self._stages.running[query].stage]

    def _know(self) -> None:
        for number, processor in enumerate(self._processors):
            new = range(self._known[number], len(self.numbers.labels))
            processor.know({x: self.numbers.labels[x] for x in new})
            self._known[number] = len(self.numbers.labels)

    def wanted(self, stream: str, labels: Mapping[tuple[str | None, ...], int]) -> Wanted:
        """What the next batch of a stream needs to have, as things are now; labels have these numbers."""
        self._know()
        reading = [x for x in self._processors if stream in x.program.streams]
        columns = dict.fromkeys(name for x in reading for own, name in x.program.columns if own == stream)
        wanted = Wanted(self._demand, tuple(columns), labels, longest=(self._limits or Limits()).text)
        if len(labels) > MOST_LISTED or sum(len(x.program.passing) for x in reading) > MOST_LISTED:
            return wanted
        numbers = sorted(set(labels.values()))
        keep = tuple(dict.fromkeys(y for x in reading for y in x.kept(stream, numbers)))
        whole = {number for seen, condition in keep if condition is None for number in seen}
        if whole.issuperset(numbers) or len(keep) > MOST_LISTED:
            return wanted
        return replace(wanted, keep=keep)

    # Batches ----------------------------------------------------------------------------------------------------------

    def batch(self, arrivals: Sequence[Arrivals], *, last: bool = False) -> list[Parcel]:
        """Everyone's results of these tuples; with the `last`, all that waits for its time becomes final."""
        self._know()
        self.unseen = sum(len(x.times) for x in arrivals)
        results: list[Parcel] = []
        coming = list(arrivals)
        for processor in self._processors:
            found = processor.batch([x for x in coming if x.stream in processor.program.streams], last=last)
            self.unseen = min(self.unseen, processor.unseen)
            for parcel in sorted(found, key=lambda x: self._stages.running[x.query].output):
                mine = tuple(name for name in parcel.subscribers if fed(name) is None)
                if mine:
                    results.append(parcel if mine == parcel.subscribers else parcel.to(mine))
                coming += self._fed(parcel)
            self._know()
        return results

    def end(self, keys: Collection[tuple[str, str]], reason: str) -> None:
        """For these, by subscriber and query, it ends with the next batch."""
        for key in keys:
            self._processor_of(key[1]).end(self._views[key], reason)

    def _fed(self, parcel: Parcel) -> Iterator[Arrivals]:
        """What feeders received, as tuples of the stream that the query makes."""
        keys = (fed(name) for name in parcel.subscribers)
        views = {id(view): view for key in keys if key and (view := self._views.get(key))}
        if parcel.ended:
            for view in views.values():  # after what it makes of the last that it reads
                view.ending = view.ending or parcel.ended
        if parcel.ended or not views:
            return
        running = self._stages.running[parcel.query]
        source = Label(sources=frozenset({running.output}))
        numbers = np.array([self.numbers.number(self._combined(kind, source)) for kind in parcel.kinds], np.int64)
        columns = {
            name: column.cast(ARROW[type_])
            for (name, type_), column in zip(running.query.columns, parcel.values, strict=True)
        }
        yield Arrivals(running.output, parcel.times, numbers[parcel.labels], columns, tuple(views.values()))

    def _combined(self, label: Label, source: Label) -> Label:
        try:
            return self._demand.rules.combine(label, source)
        except LabelError:
            return Label(FALSE)

    # To go on later ---------------------------------------------------------------------------------------------------

    def save(self) -> tuple[Cells, list[dict[str, Any]]]:
        """All there is to know but for the labels: what cells hold, and the rest as plain values."""
        cells: dict[CellName, Cell] = {}
        plain = []
        for number, processor in enumerate(self._processors):
            own, rest = processor.save()
            cells |= {(f"{number} {share}", x): cell for (share, x), cell in own.items()}
            rest["queries"] = {name: query.meaning for name, query in processor.running.items()}
            plain.append(rest)
        return cells, plain

    def restore(self, cells: Cells, plain: Sequence[Mapping[str, Any]], labels: Sequence[str], demand: Demand) -> None:
        """Goes on where another chain was."""
        self.numbers.restore(labels)
        self._stages = Stages.of(demand)
        self._rebuild(demand, self._stages, cells, plain)
        self._know()
        self._rule(demand)
        self._demand = demand
        self._meet_subscribers()


def _stage(share: str) -> int:
    return int(share.partition(" ")[0])
