"""A processor takes batches of tuples, advances every view, and returns the results that each subscriber may receive.

The visibility index decides once, by its label, which views see a tuple; an executor runs the plan over partitions; the
result filter decides about every result with the rights of that moment. The processor does not know where the executor
runs its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Constant, Ints
from headgate.execution import metering
from headgate.execution.compile import compile_program
from headgate.execution.executors import Executor
from headgate.execution.partitions import PartitionStates, fitted, gathered, renumbered_visibility
from headgate.execution.results import end_notice
from headgate.labels import Clearance, Label, Rules
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.results import BlockResults, ResultBatch
from headgate.model.times import NO_TIME
from headgate.model.tuples import TupleBatch, in_moments
from headgate.model.view import View
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY, Block, Program
from headgate.plan import nodes as n
from headgate.plan import normal
from headgate.plan.expressions import Expr
from headgate.plan.reserved import LEVEL
from headgate.plan.secure import Mode
from headgate.visibility.index import Fate, VisibilityIndex
from headgate.visibility.watermarks import Moments

MOST_ROWS = 1000
"""With more visibility rows than this, the processor checks which of them are still used."""


class Filter(Protocol):
    """Decides about the results of views under the current rights."""

    def result_batches(self, views: Sequence[View], results: Sequence[BlockResults]) -> list[ResultBatch]: ...


class Processor:
    """Runs the queries of one stage.

    executor: makes the executor of a program
    result_filter: makes the filter of results, from the current rules and the labels by number
    """

    def __init__(
        self,
        running: Sequence[ContinuousQuery],
        rules: Rules,
        executor: Callable[[Program, pa.Schema], Executor],
        result_filter: Callable[[Rules, Mapping[int, Label]], Filter],
        limits: Limits | None = None,
    ) -> None:
        self.running = {query.name: query for query in running}
        self.program, self.schema = compile_program(running)
        self._executor = executor(self.program, self.schema)
        self._index = VisibilityIndex(rules, limits)
        self._labels: dict[int, Label] = {}
        self._result_filter = result_filter
        self._filter = result_filter(rules, self._labels)
        self._arrived = 0
        self._same = Constant()
        self._most_rows = MOST_ROWS
        self._changed: Ints | None = None
        self._fed: tuple[TupleBatch, ...] = ()
        self._tables: pa.Table | None = None
        self._ended: list[View] = []

    # Views and rights -------------------------------------------------------------------------------------------------

    def subscribe(self, query: str, clearances: Mapping[str, Clearance | None]) -> View:
        """Add a view for subscribers that join together; if the query is exact, all of them have the same rights."""
        return self._index.add_view(self.running[query], clearances)

    def change(self, view: View, clearances: Mapping[str, Clearance | None]) -> None:
        """Change the rights of some subscribers of a view, from now on. None means no rights at all."""
        self._renumber(self._index.change(view, clearances))

    def _renumber(self, after: Ints) -> None:
        """Collect renumberings of visibility rows; the partitions receive them with the next batch."""
        before = np.arange(len(after)) if self._changed is None else self._changed
        self._changed = np.concatenate([after[before], after[len(before) :]])

    def part(self, view: View, subscribers: Collection[str]) -> View:
        """Move some subscribers of a view into a view of their own, which keeps all that the view has seen."""
        return self._index.part(view, subscribers)

    def end(self, view: View, reason: str) -> None:
        """End a view that exceeded a limit: it sees nothing any more, and its subscribers receive a notice with the
        reason. Other views continue."""
        if not view.ended:
            view.ended = reason
            self._ended.append(view)
            self.change(view, {})

    def leave(self, view: View, subscriber: str) -> None:
        """Remove a subscriber from a view. The other subscribers keep everything except what only this one was allowed
        to see."""
        if len(view.clearances) == 1 or view.running.mode == Mode.CUMULATIVE:
            self.change(view, {subscriber: None})
        del view.clearances[subscriber]
        if not view.clearances:
            self._index.remove(view)

    def rule(self, rules: Rules, *, anew: bool = False) -> None:
        """Replace the rules (levels, semantics of sources, meanings of labels) and decide everything anew."""
        if anew or rules != self._index.policies.rules:
            self._index.policies.rules = rules
            self._filter = self._result_filter(rules, self._labels)
            self.decide_anew()

    def decide_anew(self) -> None:
        """Decide visibility anew: views lose what they have seen under other rules and may not see under the current
        ones."""
        for view in self.views:
            self.change(view, {})

    def forget_visibilities(self) -> None:
        """Forget the visibility rows that no tuple has any more: every new label and every change of rights adds
        some."""
        used = self._executor.visibilities()
        self._renumber(self._index.keep(used if self._changed is None else self._changed[used]))
        self._most_rows = MOST_ROWS + 2 * len(self._index)
        self._tables = None

    @property
    def labels_held(self) -> Collection[int]:
        """The labels of tuples that are held, after `forget_visibilities` has dropped unused rows."""
        return self._index.labels_held

    def forget_labels(self, kept: Collection[int]) -> None:
        """Forget all labels except these."""
        self._labels = {number: label for number, label in self._labels.items() if number in kept}
        self._index.forget_labels(self._labels)
        self._filter = self._result_filter(self._index.policies.rules, self._labels)

    def know(self, labels: Mapping[int, Label]) -> None:
        self._labels |= labels
        self._index.know(labels)

    def kept(self, stream: str, labels: Sequence[int]) -> list[tuple[tuple[int, ...], Expr | None]]:
        """For pushdown: for each block that reads a stream, the labels that any view of it sees there, and the
        condition under which a tuple has a result. A windowed block has no condition: every tuple that a view sees
        matters to it."""
        found: list[tuple[tuple[int, ...], Expr | None]] = [
            (tuple(self._index.seen_by(block.target, stream, labels)), None)
            for block in self.program.blocks
            if any(isinstance(node, n.Source) and node.stream == stream for node in block.top.walk())
        ]
        for block in self.program.passing:
            _, conditions, own = block.passes
            if own == stream:
                seen = self._index.seen_by(block.target, stream, labels)
                # Every visible tuple advances the query's time, which windows and other queries follow.
                timed = any(query == block.query for query, _ in self.program.windowed) or any(
                    view.readers for view in self.views if view.running.name == block.query
                )
                found.append((tuple(seen), None if timed else self._condition(block, conditions)))
        return found

    def _condition(self, block: Block, conditions: frozenset[Expr]) -> Expr | None:
        """The condition that a tuple must meet to have a result for any view. None if a condition reads a labelled
        column, which is NULL for some views and not for others, or LEVEL, which is not a column."""
        (reading,) = self.running[block.query].query.blocks[block.number].readings
        differing = {LEVEL, *(name for name, _ in reading.stream.labels)}
        if not conditions or any(column.name in differing for x in conditions for column in x.columns):
            return None
        return normal.conjunction(sorted(conditions, key=str))

    # Saving and restoring ---------------------------------------------------------------------------------------------

    def save(self) -> tuple[PartitionStates, dict[str, Any]]:
        """The whole state, to be stored before the results of a batch are delivered."""
        rest = {"streams": list(self.program.streams), "arrived": self._arrived, "sights": self._index.plain()}
        partitions = self._executor.partitions
        if self._changed is not None:  # the partitions have not received the change yet
            partitions = {
                name: renumbered_visibility(partition, self._changed) for name, partition in partitions.items()
            }
        return partitions, rest

    def restore(
        self, partitions: PartitionStates, rest: Mapping[str, Any], kept: Collection[str] | None = None
    ) -> None:
        """Continue where another processor stopped, with the queries that both run (or only those in `kept`); other
        queries begin empty. The partitions may differ from those of the other processor."""
        self._arrived = rest["arrived"]
        known = self.running if kept is None else {name: self.running[name] for name in kept}
        self._index.restore(rest["sights"], known)
        self._executor.restore(fitted(gathered(partitions), tuple(rest["streams"]), self.program, self.schema))

    @property
    def views(self) -> list[View]:
        return list(self._index.views)

    # Batches ----------------------------------------------------------------------------------------------------------

    def feed(self, tables: Sequence[TupleBatch]) -> None:
        """Set the tuples of all tables that queries read: they are there at every instant."""
        fed = tuple(x for x in tables if x.stream in self.program.streams)
        if list(map(id, fed)) != list(map(id, self._fed)):
            self._fed, self._tables = fed, None

    def _there(self) -> pa.Table | None:
        """The tuples of tables in their order, with visibility rows that stay theirs."""
        if self._fed and self._tables is None:
            found = [
                self._table(x, np.arange(len(x.times)), self._index.of_table(x.stream, x.labels))
                for x in sorted(self._fed, key=lambda x: x.stream)
            ]
            self._tables = pa.concat_tables(found).combine_chunks()
        return self._tables

    def batch(
        self,
        arrivals: Sequence[TupleBatch],
        *,
        last: bool = False,
        clock: int | None = None,
        moments: Moments | None = None,
    ) -> list[ResultBatch]:
        """Process the next tuples, which arrive at the time `clock`; with `last`, all tuples that wait become final.
        `moments` says what else there is of the batch; None: these tuples are all.

        Return the results of all subscribers, in order, under the current rights (`delivered_results` turns them into
        single results).
        """
        if len(self._index) > self._most_rows:
            self.forget_visibilities()
        tables = self._there()
        coming = sum(len(x.times) for x in arrivals)
        if self._changed is not None:
            self._executor.renumber_visibility(self._changed)
            self._changed = None
        metering.begin(self._index, coming, self._executor)
        table = self._entered(arrivals, clock, moments or Moments(coming, last=last))
        visibility = metering.with_cutoffs(self.views, self._index.batch(last=last), table, tables, self._executor)
        found = self._executor.run(table, visibility, tables)
        for view in self.views:
            budget = visibility.budgets.get(view.columns[0])
            view.scratch.spent = budget.spent if budget else 0
        owners = {column: view for view in self._index.views for column in view.columns}
        for batch in (batch for batch in found if batch.exceeded):
            for view in (owners[column] for column in batch.views):
                self.end(view, batch.exceeded)
        going_on = [view for view in self._index.views if not view.ended]
        result_batches = self._filter.result_batches(going_on, metering.within_limits(going_on, found))
        for view in (view for view in going_on if view.scratch.ending):
            self.end(view, view.scratch.ending)
        ended, self._ended = self._ended, []
        words = (end_notice(view, self._index.policies.rules) for view in ended)
        return [*result_batches, *(word for word in words if word.subscribers)]

    @property
    def fates(self) -> Mapping[str, Fate]:
        """What became of the tuples of the last batch, by the source they came from."""
        return self._index.fates

    def _entered(self, given: Sequence[TupleBatch], clock: int | None, moments: Moments) -> pa.Table:
        """The arriving tuples with their visibility rows, in the order of their arrival. Tuples that no view sees are
        dropped before anything is computed."""
        arrivals = [x for x in in_moments(given) if x.stream in self.program.streams]
        when = [x.moments for x in arrivals if x.moments is not None]
        together = when[0] if len(when) == 1 else np.concatenate([np.empty(0, np.int64), *when])
        order = None if len(when) <= 1 else np.argsort(together, kind="stable")
        arrived = self._arrived + np.arange(len(together))
        if order is not None:
            arrived[order] = arrived.copy()
            together = together[order]
        batch = replace(moments, first=self._arrived, of_arrivals=together)
        visibilities = self._index.arrive(arrivals, batch, clock)
        self._arrived += len(together)
        if not arrivals:
            return self.schema.empty_table()
        numbers = np.split(arrived, np.cumsum([len(x.times) for x in arrivals])[:-1])
        tables = [
            self._table(x, own, rows, self._rows_seen(rows))
            for x, own, rows in zip(arrivals, numbers, visibilities, strict=True)
        ]
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        return table if order is None else table.sort_by(ARRIVAL)

    def is_due(self, floors: Mapping[int, Mapping[str, int]]) -> bool:
        """Whether something that is held could be final with these watermarks of streams, by view (its identity): a
        tuple that waits, or the next slide of a window."""
        moving = [x for x in self.views if not x.ended and x.windowed]
        ahead = [(x.passed, x.watermark_with(floors[id(x)]), x.slides) for x in moving]
        spans = [span for span in ahead if span[1] > span[0]]
        if not spans:
            return False
        times = np.concatenate([x.table.column(TIME).to_numpy() for x in self._executor.partitions.values()])
        latest = int(times.max(initial=NO_TIME))
        return any(
            bool(((times >= since) & (times < until)).any())
            or any((min(until, latest + held) - 1) // slide * slide >= since for slide, held in slides)
            for since, until, slides in spans
        )

    def _rows_seen(self, visibilities: Ints) -> Ints | None:
        """The tuples that any view sees; None: all of them."""
        seen = self._index.seen(visibilities)
        return None if seen is None or seen.all() else np.flatnonzero(seen)

    def _table(self, arrivals: TupleBatch, arrived: Ints, visibilities: Ints, rows: Ints | None = None) -> pa.Table:
        """Tuples in the schema of partitions: all of them, or only `rows`."""
        known = {
            TIME: arrivals.times,
            ARRIVAL: arrived,
            LABEL: self._same.spelt_out(arrivals.labels),
            VISIBILITY: visibilities,
        }
        size = len(visibilities) if rows is None else len(rows)
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
