"""A processor: it takes batches of tuples, moves every view on, and hands out what each subscriber may have.

Ingress decides who sees a tuple once, by its label; the plan runs in cells; egress decides about every result with the
rights of that moment. Where cells run (here, or in Spark's tasks) is the carrier's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Constant, Ints
from headgate.egress.filter import ResultFilter, end_notice
from headgate.execution import metering
from headgate.execution.compile import compile_program
from headgate.execution.executors import Executor
from headgate.execution.partitions import PartitionStates, fitted, gathered, renumbered_visibility
from headgate.labels import Clearance, Label, Rules
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.results import ResultBatch
from headgate.model.tuples import TupleBatch
from headgate.model.view import View
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY, Block, Program
from headgate.plan import nodes as n
from headgate.plan import normal
from headgate.plan.binding import LEVEL
from headgate.plan.expressions import Expr
from headgate.plan.secure import Mode
from headgate.visibility.index import Fate, VisibilityIndex

__all__ = ["DeliveredResult", "Processor", "ResultBatch", "TupleBatch", "delivered_results"]

MOST_ROWS = 1000
"""So many may there be before anybody looks whether all are needed."""


class Processor:
    """`carrier` makes the carrier of a program."""

    def __init__(
        self,
        running: Sequence[ContinuousQuery],
        rules: Rules,
        carrier: Callable[[Program, pa.Schema], Executor],
        limits: Limits | None = None,
    ) -> None:
        self.running = {query.name: query for query in running}
        self.program, self.schema = compile_program(running)
        self._carrier = carrier(self.program, self.schema)
        self._sightings = VisibilityIndex(rules, limits)
        self._labels: dict[int, Label] = {}
        self._egress = ResultFilter(rules, self._labels)
        self._arrived = 0
        self._same = Constant()
        self.fates: dict[str, Fate] = {}
        """What became of the tuples of the last batch, by the source they came from."""
        self._most_sights = MOST_ROWS
        self._changed: Ints | None = None
        self._fed: tuple[TupleBatch, ...] = ()
        self._tables: pa.Table | None = None
        self._ended: list[View] = []

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

    def part(self, view: View, subscribers: Collection[str]) -> View:
        """Some of those who look through a view go on alone, with all that it has seen."""
        return self._sightings.part(view, subscribers)

    def end(self, view: View, reason: str) -> None:
        """It went too far: it sees nothing any more, and those who look through it are told why. Others go on."""
        if not view.ended:
            view.ended = reason
            self._ended.append(view)
            self.change(view, {})

    def leave(self, view: View, subscriber: str) -> None:
        """Somebody looks no longer; what others share is not touched, but for what nobody else may see."""
        if len(view.clearances) == 1 or view.running.mode == Mode.CUMULATIVE:
            self.change(view, {subscriber: None})
        del view.clearances[subscriber]
        if not view.clearances:
            self._sightings.remove(view)

    def rule(self, rules: Rules, *, anew: bool = False) -> None:
        """Levels, the semantics of sources or what labels mean have changed: everything is decided anew."""
        if anew or rules != self._sightings.looks.rules:
            self._sightings.looks.rules = rules
            self._egress = ResultFilter(rules, self._labels)
            self.decide_anew()

    def decide_anew(self) -> None:
        """What views have seen under other rules than those of now, they lose."""
        for view in self.views:
            self.change(view, {})

    def forget_sights(self) -> None:
        """Those that no tuple has any more: every new label and every change of rights makes new ones."""
        used = self._carrier.sights()
        self._renumber(self._sightings.keep(used if self._changed is None else self._changed[used]))
        self._most_sights = MOST_ROWS + 2 * len(self._sightings)
        self._tables = None

    @property
    def labels_held(self) -> Collection[int]:
        """The labels of tuples that are held, once sights are forgotten that no tuple has."""
        return self._sightings.labels_held

    def forget_labels(self, kept: Collection[int]) -> None:
        """All but these."""
        self._labels = {number: label for number, label in self._labels.items() if number in kept}
        self._sightings.forget_labels(self._labels)
        self._egress = ResultFilter(self._sightings.looks.rules, self._labels)

    def know(self, labels: Mapping[int, Label]) -> None:
        self._labels |= labels
        self._sightings.know(labels)

    def kept(self, stream: str, labels: Sequence[int]) -> list[tuple[tuple[int, ...], Expr | None]]:
        """For each block that reads a stream, the labels that anybody sees there, and the condition under which a tuple
        yields anything; to a window every tuple matters that anybody sees."""
        found: list[tuple[tuple[int, ...], Expr | None]] = [
            (tuple(self._sightings.seen_by(block.target, stream, labels)), None)
            for block in self.program.blocks
            if any(isinstance(node, n.Source) and node.stream == stream for node in block.top.walk())
        ]
        for block in self.program.passing:
            _, conditions, own = block.passes
            if own == stream:
                seen = self._sightings.seen_by(block.target, stream, labels)
                timed = any(query == block.query for query, _ in self.program.windowed)  # all it sees moves its time
                found.append((tuple(seen), None if timed else self._condition(block, conditions)))
        return found

    def _condition(self, block: Block, conditions: frozenset[Expr]) -> Expr | None:
        """What a tuple must meet to yield anything for anybody: not to be said where the same column is NULL for some
        and not for others, nor of levels, which are no column."""
        (reading,) = self.running[block.query].query.blocks[block.number].readings
        differing = {LEVEL, *(name for name, _ in reading.stream.labels)}
        if not conditions or any(column.name in differing for x in conditions for column in x.columns):
            return None
        return normal.conjunction(sorted(conditions, key=str))

    # To go on later ---------------------------------------------------------------------------------------------------

    def save(self) -> tuple[PartitionStates, dict[str, Any]]:
        """All there is to know, to be written down before the results of a batch are let out."""
        rest = {"streams": list(self.program.streams), "arrived": self._arrived, "sights": self._sightings.plain()}
        cells = self._carrier.cells
        if self._changed is not None:  # nobody has told them yet
            cells = {name: renumbered_visibility(cell, self._changed) for name, cell in cells.items()}
        return cells, rest

    def restore(self, cells: PartitionStates, rest: Mapping[str, Any], kept: Collection[str] | None = None) -> None:
        """Goes on where another processor was, with the queries that both run (or only those `kept` of them); others
        begin with nothing. Its cells need not be those of the other."""
        self._arrived = rest["arrived"]
        known = self.running if kept is None else {name: self.running[name] for name in kept}
        self._sightings.restore(rest["sights"], known)
        self._carrier.restore(fitted(gathered(cells), tuple(rest["streams"]), self.program, self.schema))

    @property
    def views(self) -> list[View]:
        return list(self._sightings.views)

    # Batches ----------------------------------------------------------------------------------------------------------

    def feed(self, tables: Sequence[TupleBatch]) -> None:
        """The tuples of the tables that are read, all of them: they are there at every instant."""
        fed = tuple(x for x in tables if x.stream in self.program.streams)
        if list(map(id, fed)) != list(map(id, self._fed)):
            self._fed, self._tables = fed, None

    def _there(self) -> pa.Table | None:
        """The tuples of tables in their order, with sights that stay theirs."""
        if self._fed and self._tables is None:
            found = [
                self._table(x, np.arange(len(x.times)), self._sightings.of_table(x.stream, x.labels))
                for x in sorted(self._fed, key=lambda x: x.stream)
            ]
            self._tables = pa.concat_tables(found).combine_chunks()
        return self._tables

    def batch(
        self, arrivals: Sequence[TupleBatch], *, last: bool = False, clock: int | None = None
    ) -> list[ResultBatch]:
        """The next tuples, which come when the `clock` stands there; with the `last`, all that waits for its time
        becomes final. Returns everyone's results, in order, under the rights of now (`delivered_results` turns them into
        single ones)."""
        self.fates = {}
        if len(self._sightings) > self._most_sights:
            self.forget_sights()
        tables = self._there()
        coming = sum(len(x.times) for x in arrivals)
        metering.begin(self._sightings, coming, self._carrier.cells, self._changed)
        entered = [self._entered(x, clock) for x in arrivals] or [self.schema.empty_table()]
        table = entered[0] if len(entered) == 1 else pa.concat_tables(entered)
        sight = metering.cut(self.views, self._sightings.batch(last=last), table, self._carrier, self._changed)
        found = self._carrier.run(table, sight, self._changed, tables)
        self._changed = None
        for view in self.views:
            budget = sight.budgets.get(view.columns[0])
            view.spent = budget.spent if budget else 0
        owners = {column: view for view in self._sightings.views for column in view.columns}
        for batch in (batch for batch in found if batch.exceeded):
            for view in (owners[column] for column in batch.views):
                self.end(view, batch.exceeded)
        going_on = [view for view in self._sightings.views if not view.ended]
        parcels = self._egress.parcels(going_on, metering.metered(going_on, found))
        for view in (view for view in going_on if view.ending):
            self.end(view, view.ending)
        ended, self._ended = self._ended, []
        words = (end_notice(view, self._sightings.looks.rules) for view in ended)
        return [*parcels, *(word for word in words if word.subscribers)]

    def _entered(self, arrivals: TupleBatch, clock: int | None) -> pa.Table:
        """Ingress: each tuple with its sight; those that nobody sees are dropped before anything is computed."""
        if arrivals.stream not in self.program.streams:
            return self.schema.empty_table()
        sights = self._sightings.arriving(
            arrivals.stream, arrivals.times, arrivals.labels, arrivals.views, self._arrived, clock
        )
        if arrivals.views is None:
            self.fates[arrivals.stream] = self._sightings.fate
        seen = self._sightings.seen(sights)
        rows = None if seen is None or seen.all() else np.flatnonzero(seen)
        arrived = self._arrived + np.arange(len(sights))
        self._arrived += len(sights)
        return self._table(arrivals, arrived, sights, rows)

    def _table(self, arrivals: TupleBatch, arrived: Ints, sights: Ints, rows: Ints | None = None) -> pa.Table:
        """Tuples as cells have them: all, or some `rows` of them."""
        known = {
            TIME: arrivals.times,
            ARRIVAL: arrived,
            LABEL: self._same.spelt_out(arrivals.labels),
            VISIBILITY: sights,
        }
        size = len(sights) if rows is None else len(rows)
        columns = {
            field: arrivals.columns[name]
            for (stream, name), field in self.program.columns.items()
            if stream == arrivals.stream
        }
        if rows is not None:
            known = {name: numbers[rows] for name, numbers in known.items()}
            columns = {field: column.take(pa.array(rows)) for field, column in columns.items()}
        known[STREAM] = np.full(size, self.program.streams.index(arrivals.stream), np.int16)
        return pa.Table.from_arrays(
            [
                pa.array(known[field.name], field.type)
                if field.name in known
                else columns[field.name].cast(field.type)
                if field.name in columns
                else pa.nulls(size, field.type)
                for field in self.schema
            ],
            schema=self.schema,
        )
