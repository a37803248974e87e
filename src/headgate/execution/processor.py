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
from headgate.execution.entering import entering_table
from headgate.execution.executors import Executor
from headgate.execution.partitions import PartitionName, PartitionStates, renumbered_visibility
from headgate.execution.results import end_notice
from headgate.execution.tasks.adaptive import AdaptiveExecutor
from headgate.execution.tasks.executor import TaskExecutor
from headgate.execution.tasks.step import DerivedSplit, GivenResults, Intake, Outcome, TaskRefusal
from headgate.ingress.pushdown import Pushdown
from headgate.ingress.splits import Split
from headgate.labels import Clearance, Label, Rules
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.results import BlockResults, ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch, in_moments
from headgate.model.view import View
from headgate.model.visibility import HIDDEN, Visibility
from headgate.operators.partition_state import StoredPartition
from headgate.operators.profile import Step
from headgate.operators.program import ARRIVAL, Block, Program
from headgate.operators.segments import Write
from headgate.plan import nodes as n
from headgate.plan import normal
from headgate.plan.expressions import Expr
from headgate.plan.reserved import LEVEL
from headgate.plan.secure import Mode
from headgate.visibility.index import ArrivalMasks, VisibilityIndex
from headgate.visibility.splits import SplitSummary, SplitTimes
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
        if isinstance(self._executor, TaskExecutor | AdaptiveExecutor):
            self._executor.index = self._index
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
        self.warned: list[tuple[View, str]] = []
        """The views that came near to a limit with the last batch, each with a warning."""

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

    def _renumber_partitions(self) -> None:
        if self._changed is not None:
            self._executor.renumber_visibility(self._changed)
            self._changed = None

    def split_view(self, view: View, subscribers: Collection[str]) -> View:
        """Move some subscribers of a view into a view of their own, which keeps all that the view has seen."""
        return self._index.split_view(view, subscribers)

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

    def set_rules(self, rules: Rules, *, anew: bool = False) -> None:
        """Replace the rules (levels, semantics of sources, meanings of labels) and decide everything anew."""
        if anew or rules != self._index.policies.rules:
            self._index.policies.rules = rules
            self._filter = self._result_filter(rules, self._labels)
            self.decide_anew()

    def declare(self, labels: Mapping[str, Label]) -> None:
        """Take the label that all tuples of a stream have at least, by stream, from the declarations of streams."""
        self._index.declare(labels)

    def open(self, view: View, closed: Mapping[str, Collection[str]]) -> None:
        """Decide anew which streams hold the watermark of a view back. `closed` are outputs of which nothing can come,
        by subscriber."""
        self._index.open(view, closed)

    def decide_anew(self) -> None:
        """Decide visibility anew: views lose what they have seen under other rules and may not see under the current
        ones."""
        for view in self.views:
            self.change(view, {})

    def forget_visibilities(self) -> None:
        """Forget the visibility rows that no tuple has any more: every new label and every change of rights adds
        some."""
        used = self._executor.visibilities()
        self._renumber(self._index.retain_rows(used if self._changed is None else self._changed[used]))
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

    def add_labels(self, labels: Mapping[int, Label]) -> None:
        self._labels |= labels
        self._index.add_labels(labels)

    def kept(self, stream: str, labels: Sequence[int]) -> list[tuple[tuple[int, ...], Expr | None]]:
        """For pushdown: for each block that reads a stream, the labels that any view of it sees there, and the
        condition under which a tuple has a result. A windowed block has no condition: every tuple that a view sees
        matters to it."""
        found: list[tuple[tuple[int, ...], Expr | None]] = [
            (tuple(self._index.seen_by(block.target, stream, labels)), None)
            for block in self.program.blocks
            if any(isinstance(node, n.Source) and node.stream == stream for node in block.top.walk())
        ]
        for block in self.program.stateless:
            _, select, own = block.passes
            if own.stream == stream:
                seen = self._index.seen_by(block.target, stream, labels)
                # Every visible tuple advances the query's time, which windows and other queries follow.
                timed = any(query == block.query for query, _ in self.program.windowed) or any(
                    view.readers for view in self.views if view.running.name == block.query
                )
                found.append((tuple(seen), None if timed or select is None else self._condition(block, select)))
        return found

    def _condition(self, block: Block, select: n.Select) -> Expr | None:
        """The condition that a tuple must meet to have a result for any view. None if a condition reads a labelled
        column, which is NULL for some views and not for others, or LEVEL, which is not a column."""
        (reading,) = self.running[block.query].query.blocks[block.number].readings
        differing = {LEVEL, *(name for name, _ in reading.stream.labels)}
        if any(column.name in differing for x in select.conditions for column in x.columns):
            return None
        return normal.conjunction(sorted(select.conditions, key=str))

    # Saving and restoring ---------------------------------------------------------------------------------------------

    def save(self, write: Write) -> tuple[dict[PartitionName, dict[str, Any]], dict[str, Any]]:
        """Write what changed since the last call, before the results of a batch are delivered. Returns the records of
        the partitions, and the rest as plain values."""
        identities = self._index.identities
        if self._changed is not None:  # the partitions have not received the change yet
            identities = np.append(identities, -1)[self._changed]
        return self._executor.save(write, identities), self._rest()

    def state(self) -> tuple[PartitionStates, dict[str, Any]]:
        """The whole state, in memory, for a processor of other queries."""
        partitions = self._executor.partitions
        if self._changed is not None:
            partitions = {
                name: renumbered_visibility(partition, self._changed) for name, partition in partitions.items()
            }
        return partitions, self._rest()

    def _rest(self) -> dict[str, Any]:
        return {"streams": list(self.program.streams), "arrived": self._arrived, "sights": self._index.plain()}

    def restore(
        self,
        partitions: PartitionStates | Mapping[PartitionName, StoredPartition],
        rest: Mapping[str, Any],
        kept: Collection[str] | None = None,
    ) -> None:
        """Continue where another processor stopped, with the queries that both run (or only those in `kept`); other
        queries begin empty. The partitions may differ from those of the other processor. The labels are known."""
        self._arrived = rest["arrived"]
        known = self.running if kept is None else {name: self.running[name] for name in kept}
        self._index.restore(rest["sights"], known)
        visibility = self._index.after_batch()
        self._executor.restore(partitions, tuple(rest["streams"]), visibility, self._index.numbers_of)

    @property
    def held(self) -> int:
        """How many tuples it keeps."""
        return len(self._executor)

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
        self._renumber_partitions()
        metering.begin(self._index, coming, self._executor)
        table = self._entered(arrivals, clock, moments or Moments(coming, last=last))
        visibility = metering.with_cutoffs(self.views, self._index.batch(last=last), table, tables, self._executor)
        found = self._executor.run(table, visibility, tables)
        return self._judged(visibility, found)

    def _judged(self, visibility: Visibility, found: Sequence[BlockResults]) -> list[ResultBatch]:
        """The results of a batch for all subscribers: what the views' limits and rights permit."""
        for view in self.views:
            metering.note_use(view, visibility.budgets.get(view.columns[0]))
        owners = {column: view for view in self._index.views for column in view.columns}
        for batch in (batch for batch in found if batch.exceeded):
            for view in (owners[column] for column in batch.views):
                self.end(view, batch.exceeded)
        going_on = [view for view in self._index.views if not view.ended]
        result_batches = self._filter.result_batches(going_on, metering.within_limits(going_on, found))
        for view in (view for view in going_on if view.scratch.ending):
            self.end(view, view.scratch.ending)
        self.warned = [(view, x) for view in going_on if not view.ended for x in metering.warnings(view)]
        ended, self._ended = self._ended, []
        words = (end_notice(view, self._index.policies.rules) for view in ended)
        return [*result_batches, *(word for word in words if word.subscribers)]

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """What tasks did with each partition in the last batch."""
        return self._tasks.outcomes if self._tasks is not None else ()

    def delivered(self) -> None:
        """The results of the last batch are delivered: files of them may go."""
        if self._tasks is not None:
            self._tasks.delivered()

    # Batches that tasks read ------------------------------------------------------------------------------------------

    @property
    def _tasks(self) -> TaskExecutor | None:
        """The executor in tasks, if the next batch runs there."""
        if isinstance(self._executor, AdaptiveExecutor):
            return self._executor.in_tasks
        return self._executor if isinstance(self._executor, TaskExecutor) else None

    def choose_executor(self, size: int) -> None:
        """Decide where a batch of so many bytes runs, if that is open."""
        if isinstance(self._executor, AdaptiveExecutor):
            self._renumber_partitions()
            self._executor.choose_executor(size)

    def reads_splits(self) -> bool:
        """Whether tasks can read the next batch: they know no moments, and no limits of the owner's roles."""
        return self._tasks is not None and not any(
            view.mixed or view.running.limited for view in self.views if not view.ended
        )

    def split_batch(
        self,
        descriptor: StreamDescriptor,
        pushdown: Pushdown,
        splits: Sequence[Split],
        now: int,
        floors: Mapping[str, int],
    ) -> tuple[list[ResultBatch], Sequence[SplitSummary]] | TaskRefusal:
        """Process the next tuples of a stream, which tasks read. Returns the results and what there was; or why tasks
        did not take the batch, and then nothing has changed."""
        executor, index = self._tasks, self._index
        assert executor is not None  # noqa: S101
        if len(index) > self._most_rows:
            self.forget_visibilities()
        tables = self._there()
        self._renumber_partitions()
        metering.begin(index, 0, executor)
        rows = index.rows_of_labels(descriptor.name, sorted(set(pushdown.labels.values())))
        seen = {label: row for label, row in rows.items() if (index.table[row] != HIDDEN).any()}
        sent = replace(pushdown, snapshot=CatalogSnapshot(), keep=None)
        intake = Intake(descriptor, sent, now, seen, index.levels)
        if descriptor.labels and not pushdown.labels:
            unknown = executor.label_texts(intake, splits)
            if unknown:
                return TaskRefusal(frozenset(unknown))
        outcomes = executor.run_splits(intake, splits, tables, self._arrived, floors)
        refused = next((x.refused for x in outcomes if x.refused is not None), None)
        if refused is not None:
            return refused
        summaries = next(x.splits for x in outcomes if x.splits or not splits)
        index.arrive_splits(descriptor.name, SplitTimes(summaries), floors)
        self._arrived += sum(x.tuples for x in summaries)
        visibility = index.batch()
        return self._judged(visibility, executor.take(outcomes, visibility)), summaries

    def results_batch(self, given: Sequence[GivenResults]) -> list[ResultBatch]:
        """Process the results of earlier stages, which tasks read. The views know the watermarks of the outputs that
        they read already (`watermarks.follow`)."""
        executor, index = self._tasks, self._index
        assert executor is not None  # noqa: S101
        if len(index) > self._most_rows:
            self.forget_visibilities()
        tables = self._there()
        self._renumber_partitions()
        metering.begin(index, 0, executor)
        splits: list[DerivedSplit] = []
        for x in given:
            splits += x.splits(index.rows_of_results(x.stream, x.labels, x.views), len(splits))
        visibility, arrived = index.batch(), self._arrived
        self._arrived += sum(map(len, given))
        return self._judged(visibility, executor.run_results(splits, visibility, tables, arrived))

    def counted(self) -> Callable[[View], dict[str, Step]]:
        """What the steps of the plan did for each view, by their names, from the start of this processor to now."""
        found, copied = self._executor.counted(), self._index.copied
        return lambda view: {
            name: step for column in view.columns for name, step in found(copied.get(column, column)).items()
        }

    def profile(self, view: View) -> dict[str, Step]:
        return self.counted()(view)

    @property
    def arrival_masks(self) -> Mapping[str, ArrivalMasks]:
        """What became of the tuples of the last batch, by the source they came from."""
        return self._index.arrival_masks

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

    def pass_time(self, floors: Mapping[str, int]) -> None:
        """Take the watermarks that the clock gives streams."""
        self._index.pass_time(floors)

    def is_due(self, floors: Mapping[int, Mapping[str, int]]) -> bool:
        """Whether something that is held could be final with these watermarks of streams, by view (its identity): a
        tuple that waits, or the next slide of a window."""
        moving = [x for x in self.views if not x.ended and x.windowed]
        ahead = [(x.passed, x.watermark_with(floors[id(x)]), x.slides) for x in moving]
        spans = [span for span in ahead if span[1] > span[0]]
        if not spans:
            return False
        latest = self._executor.latest
        return any(
            self._executor.waits(since, until)
            or any((min(until, latest + held) - 1) // slide * slide >= since for slide, held in slides)
            for since, until, slides in spans
        )

    def _rows_seen(self, visibilities: Ints) -> Ints | None:
        """The tuples that any view sees; None: all of them."""
        seen = self._index.seen(visibilities)
        return None if seen is None or seen.all() else np.flatnonzero(seen)

    def _table(self, arrivals: TupleBatch, arrived: Ints, visibilities: Ints, rows: Ints | None = None) -> pa.Table:
        """Tuples in the schema of partitions: all of them, or only `rows`."""
        spelt_out = self._same.spelt_out
        return entering_table(self.program, self.schema, arrivals, arrived, visibilities, rows, spelt_out)
