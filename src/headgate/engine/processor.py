"""A processor: it takes batches of tuples, moves every view on, and hands out what each subscriber may have.

Ingress decides who sees a tuple once, by its label; the plan runs in cells; egress decides about every result with the
rights of that moment. Where cells run (here, or in Spark's tasks) is the carrier's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headgate.engine.egress import Delivery, Egress, Parcel, deliveries
from headgate.engine.kernels.cell import Cell, advance, empty
from headgate.engine.kernels.given import ARRIVAL, LABEL, SIGHT, STREAM, TIME, Program, Sight
from headgate.engine.kernels.passing import passing
from headgate.engine.kernels.reading import Evaluate
from headgate.engine.kernels.rows import Ints
from headgate.engine.kernels.sorting import distinct
from headgate.engine.program import compile_program
from headgate.engine.results import Batch, packed
from headgate.engine.sights import Sightings
from headgate.engine.views import Running, View
from headgate.labels import Clearance, Label, Rules

__all__ = ["Arrivals", "Carrier", "Delivery", "LocalCarrier", "Parcel", "Processor", "deliveries"]

MOST_SIGHTS = 1000
"""So many may there be before anybody looks whether all are needed."""


@dataclass(frozen=True)
class Arrivals:
    """Tuples of one stream in the order of their arrival: times, numbers of labels, values by column."""

    stream: str
    times: Ints
    labels: Ints
    columns: Mapping[str, pa.Array]


class Carrier(Protocol):
    """Runs the cells: what it is given in one call is one batch, done wholly or not at all."""

    cell: Cell

    def run(self, arriving: pa.Table, sight: Sight, changed: Ints | None) -> list[Batch]:
        """`changed` says for each sight which one takes its place, if rights changed since the last batch."""
        ...

    def sights(self) -> Ints:
        """The sights that tuples in the cells have: all others may be forgotten."""
        ...


class LocalCarrier:
    """One cell, in memory, in this process."""

    def __init__(self, program: Program, schema: pa.Schema, evaluate: Evaluate) -> None:
        self._program = program
        self._evaluate = evaluate
        self.cell = empty(schema)

    def run(self, arriving: pa.Table, sight: Sight, changed: Ints | None) -> list[Batch]:
        if changed is not None:
            self.cell = resighted(self.cell, changed)
        passed = passing(self._program, arriving, sight, self._evaluate)
        self.cell, found = advance(self._program, self.cell, arriving, sight, self._evaluate)
        blocks = Counter(block.query for block in (*self._program.blocks, *self._program.passing))
        return [
            packed(x, passing=passes, alone=blocks[x.block.query] == 1)
            for x, passes in (*((x, False) for x in found), *((x, True) for x in passed))
        ]

    def sights(self) -> Ints:
        return distinct(self.cell.table.column(SIGHT).to_numpy())


def resighted(cell: Cell, changed: Ints) -> Cell:
    """The tuples of a cell after rights have changed."""
    numbers = cell.table.column(SIGHT).to_numpy()
    column = pa.array(changed[numbers] if len(numbers) else numbers, pa.int64())
    return replace(cell, table=cell.table.set_column(cell.table.schema.get_field_index(SIGHT), SIGHT, column))


def fitted(cell: Cell, streams: tuple[str, ...], program: Program, schema: pa.Schema) -> Cell:
    """The cell of one program as that of another: tuples of streams that nobody reads any more go, columns that were
    not kept are NULL."""
    table = cell.table
    known = np.array([name in program.streams for name in streams] or [False])
    numbers = np.array([program.streams.index(x) if x in program.streams else 0 for x in streams] or [0])
    kept = known[table.column(STREAM).to_numpy()] if table.num_rows else np.empty(0, np.bool_)
    place = np.cumsum(kept) - 1
    classes = tuple(
        replace(c, held={key: place[held[kept[held]]] for key, held in c.held.items()}) for c in cell.classes
    )
    table = table.filter(pa.array(kept))
    renumbered = pa.array(numbers[table.column(STREAM).to_numpy()] if table.num_rows else [], pa.int16())
    columns = [
        renumbered
        if field.name == STREAM
        else table.column(field.name).combine_chunks()
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return Cell(pa.Table.from_arrays(columns, schema=schema), classes)


class Processor:
    """`carrier` makes the carrier of a program."""

    def __init__(
        self, running: Sequence[Running], rules: Rules, carrier: Callable[[Program, pa.Schema], Carrier]
    ) -> None:
        self.running = {query.name: query for query in running}
        self.program, self.schema = compile_program(running)
        self._carrier = carrier(self.program, self.schema)
        self._sightings = Sightings(rules)
        self._labels: dict[int, Label] = {}
        self._egress = Egress(rules, self._labels)
        self._arrived = 0
        self._most_sights = MOST_SIGHTS
        self._changed: Ints | None = None

    # Who looks --------------------------------------------------------------------------------------------------------

    def subscribe(self, query: str, clearances: Mapping[str, Clearance | None]) -> View:
        """A view for subscribers that come together: of the same rights if the query is exact."""
        return self._sightings.add_view(self.running[query], clearances)

    def change(self, view: View, clearances: Mapping[str, Clearance | None]) -> None:
        """New rights of some who look through a view; they count from here on. None: of nothing."""
        self._renumber(self._sightings.change(view, clearances))

    def _renumber(self, after: Ints) -> None:
        """What the cells are told with the next batch."""
        before = np.arange(len(after)) if self._changed is None else self._changed
        self._changed = np.concatenate([after[before], after[len(before) :]])

    def _forget_sights(self) -> None:
        """Now and then those that no tuple has any more: every change of rights makes new ones."""
        if len(self._sightings) > self._most_sights:
            used = self._carrier.sights()
            self._renumber(self._sightings.keep(used if self._changed is None else self._changed[used]))
            self._most_sights = MOST_SIGHTS + 2 * len(self._sightings)

    def know(self, labels: Mapping[int, Label]) -> None:
        self._labels |= labels
        self._sightings.know(labels)

    # To go on later ---------------------------------------------------------------------------------------------------

    def save(self) -> tuple[Cell, dict[str, Any]]:
        """All there is to know, to be written down before the results of a batch are let out."""
        rest = {"streams": list(self.program.streams), "arrived": self._arrived, "sights": self._sightings.plain()}
        return self._carrier.cell, rest

    def restore(self, cell: Cell, rest: Mapping[str, Any]) -> None:
        """Goes on where another processor was, with the queries that both run; new ones begin with nothing."""
        self._arrived = rest["arrived"]
        self._sightings.restore(rest["sights"], self.running)
        self._carrier.cell = fitted(cell, tuple(rest["streams"]), self.program, self.schema)

    @property
    def views(self) -> list[View]:
        return list(self._sightings.views)

    # Batches ----------------------------------------------------------------------------------------------------------

    def batch(self, arrivals: Sequence[Arrivals], *, last: bool = False) -> list[Parcel]:
        """The next tuples; with the `last`, all that waits for its time becomes final. Returns everyone's results,
        in order, under the rights of now (`deliveries` turns them into single ones)."""
        self._forget_sights()
        table = pa.concat_tables([self.schema.empty_table(), *map(self._entered, arrivals)])
        sight = self._sightings.batch(last=last)
        found = self._carrier.run(table, sight, self._changed)
        self._changed = None
        return self._egress.parcels(self._sightings.views, found)

    def _entered(self, arrivals: Arrivals) -> pa.Table:
        """Ingress: each tuple with its sight; those that nobody sees are dropped before anything is computed."""
        if arrivals.stream not in self.program.streams:
            return self.schema.empty_table()
        sights = self._sightings.arriving(arrivals.stream, arrivals.times, arrivals.labels)
        seen = np.flatnonzero(self._sightings.seen(sights))
        known = {
            TIME: arrivals.times,
            ARRIVAL: self._arrived + np.arange(len(sights)),
            LABEL: arrivals.labels,
            SIGHT: sights,
        }
        self._arrived += len(sights)
        columns = {
            field: arrivals.columns[name]
            for (stream, name), field in self.program.columns.items()
            if stream == arrivals.stream
        }
        if len(seen) < len(sights):
            known = {name: numbers[seen] for name, numbers in known.items()}
            columns = {field: column.take(pa.array(seen)) for field, column in columns.items()}
        known[STREAM] = np.full(len(seen), self.program.streams.index(arrivals.stream), np.int16)
        return pa.Table.from_arrays(
            [
                pa.array(known[field.name], field.type)
                if field.name in known
                else columns[field.name].cast(field.type)
                if field.name in columns
                else pa.nulls(len(seen), field.type)
                for field in self.schema
            ],
            schema=self.schema,
        )
