"""The query graph: one processor for each stage, where later stages read the results of earlier ones.

It follows the catalog snapshot. Queries come and go without disturbing the state of others, rights of subscribers
change, and labels keep their numbers for as long as the state exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headgate.egress.filter import ResultFilter
from headgate.egress.result_splits import HandedOn
from headgate.execution.executors import Executor, Partitions
from headgate.execution.partitions import PartitionName
from headgate.execution.processor import Processor
from headgate.execution.results import end_notice
from headgate.execution.stages import Stages, consumer_of
from headgate.execution.tasks.step import TaskRefusal
from headgate.ingress.pushdown import MOST_LISTED, Pushdown
from headgate.ingress.splits import Split
from headgate.ingress.validation import malformed_together
from headgate.labels import Label
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.tuples import TupleBatch, in_moments
from headgate.model.view import ViewScratch
from headgate.operators.partition_state import StoredPartition
from headgate.operators.program import Program
from headgate.operators.segments import Write
from headgate.plan.analysis import ViewCounts
from headgate.recovery import consumers
from headgate.recovery.operator_counts import OperatorCounts
from headgate.recovery.stage_processors import StageProcessors
from headgate.recovery.view_assignment import ViewAssignment
from headgate.visibility.dictionary import Dictionary
from headgate.visibility.index import ArrivalMasks
from headgate.visibility.watermarks import Moments

Found = TypeVar("Found")
Make = Callable[[Sequence[ContinuousQuery], Program, pa.Schema], Executor]


class QueryGraph:
    """`make` makes the executor of a program; `dictionary` numbers labels (None: a new one)."""

    def __init__(self, make: Make, limits: Limits | None = None, dictionary: Dictionary | None = None) -> None:
        self._make = make
        self._limits = limits
        self.dictionary = dictionary or Dictionary()
        self._snapshot = CatalogSnapshot()
        self._processors = StageProcessors(Stages.of(self._snapshot), (), self.dictionary)
        self._counts = OperatorCounts()
        self._assignment = ViewAssignment(self._processors, self._counts)
        self._moved = False
        """Whether a catalog snapshot came since the last batch, or time passed: then watermarks may have moved."""
        self.unseen, self.late = 0, 0
        """Of the last batch: tuples that nobody sees, and tuples that came too late."""
        self.malformed: list[RejectedRows] = []
        """Of the last batch that tasks read: rows that are no tuples."""
        self.warned: list[tuple[str, str, str]] = []
        """Of the last batch: subscribers whose query nears a limit, the query, and a warning."""

    # Catalog snapshots ------------------------------------------------------------------------------------------------

    def update(self, snapshot: CatalogSnapshot) -> None:
        """Takes a new catalog snapshot."""
        stages = Stages.of(snapshot)
        if stages.stages != self._processors.stages.stages:
            self._rebuild(snapshot, stages, *self._saved(lambda processor: processor.state()))
        self._set_rules(snapshot)
        self._snapshot, self._processors.stages = snapshot, stages
        self._update_subscribers()

    def feed(self, tables: Mapping[str, TupleBatch]) -> None:
        """Feeds the tuples of all tables that could be read to every processor."""
        self._processors.add_labels()
        for processor in self._processors:
            processor.feed([tables[name] for name in sorted(tables)])

    def _set_rules(self, snapshot: CatalogSnapshot) -> None:
        """Applies new rules. What a stream's owner requires now also protects the tuples that came before."""
        stricter = snapshot.descriptors != self._snapshot.descriptors and self.dictionary.protect(snapshot.protected)
        self._processors.set_rules(snapshot.rules, anew=stricter)

    def _rebuild(
        self, snapshot: CatalogSnapshot, stages: Stages, partitions: Partitions, plain: Sequence[Mapping[str, Any]]
    ) -> None:
        """Makes new processors, which continue with the state of the same queries."""
        processors = [
            Processor(queries, snapshot.rules, partial(self._make, queries), ResultFilter, self._limits)
            for queries in stages.stages
        ]
        self._processors = StageProcessors(stages, processors, self.dictionary)
        self._processors.restore(partitions, plain)
        self._assignment = ViewAssignment(self._processors, self._counts)
        self._counts.go_on(stages.running)

    def _update_subscribers(self) -> None:
        self._processors.add_labels()
        self._assignment.update()
        self._moved = True
        consumers.open_inputs(self._processors, self._assignment.views, self._declared)

    @property
    def _declared(self) -> dict[str, Label]:
        """The label that all tuples of a stream have at least. Every stream is a source of its own tuples."""
        streams = {*self._snapshot.descriptors, *self._processors.stages.producers}
        return {name: self._snapshot.protected(Label(sources=frozenset({name}))) for name in streams}

    def profile(self, query: str, subscriber: str | None = None) -> list[ViewCounts]:
        """What was done for the views of a query: all, or the one that serves this subscriber."""
        return self._assignment.profile(query, subscriber)

    def pushdown(self, stream: str, labels: Mapping[tuple[str | None, ...], int]) -> Pushdown:
        """The columns and rows that the next batch of a stream needs, as of now; `labels` gives the numbers of
        labels."""
        self._processors.add_labels()
        reading = self._processors.reading(stream)
        columns = dict.fromkeys(name for x in reading for own, name in x.program.columns if own == stream)
        longest = (self._limits or Limits()).text
        pushdown = Pushdown(self._snapshot, tuple(columns), labels, longest=longest, epoch=self.dictionary.epoch)
        if len(labels) > MOST_LISTED or sum(len(x.program.stateless) for x in reading) > MOST_LISTED:
            return pushdown
        numbers = sorted(set(labels.values()))
        keep = tuple(dict.fromkeys(y for x in reading for y in x.kept(stream, numbers)))
        whole = {number for seen, condition in keep if condition is None for number in seen}
        if whole.issuperset(numbers) or len(keep) > MOST_LISTED:
            return pushdown
        return replace(pushdown, keep=keep)

    # Batches ----------------------------------------------------------------------------------------------------------

    def batch(
        self,
        arrivals: Sequence[TupleBatch],
        *,
        last: bool = False,
        clock: int | None = None,
        floors: Mapping[str, int] | None = None,
    ) -> list[ResultBatch]:
        """The results of these tuples for all subscribers; `clock` is when they arrived. With the `last` batch every
        open window becomes final. `floors` are the watermarks that the clock gives streams after these tuples."""
        self._processors.add_labels()
        arrival_masks: dict[str, ArrivalMasks] = {}
        results: list[ResultBatch] = []
        views, by_key = self._processors.views, self._assignment.views
        moved = self._moved and any(not view.ended and view.watermark() > view.passed for view in views)
        self._moved = False
        coming = in_moments(arrivals, first=int(moved))
        count = sum(len(x.times) for x in arrivals) + moved
        batch = Moments(count, floors=floors or {}, last=last)
        for view in views:
            view.scratch = ViewScratch()
        self.warned = []
        for processor in self._processors:
            own = [x for x in coming if x.stream in processor.program.streams]
            found = processor.batch(own, last=last, clock=clock, moments=batch)
            for stream, masks in processor.arrival_masks.items():
                arrival_masks[stream] = masks.with_(arrival_masks[stream]) if stream in arrival_masks else masks
            mine, handed = self._sorted_out(found)
            results += mine
            coming += [x.tuples() for x in handed]
            consumers.charge(processor.views, by_key)
            self._warn(processor)
            for view in processor.views:
                consumers.hand_watermarks(view, by_key, batch.producers)
            self._processors.add_labels()
        seen = sum(int(np.count_nonzero(masks.seen)) for masks in arrival_masks.values())
        self.unseen = sum(len(x.times) for x in arrivals) - seen
        self.late = sum(int(np.count_nonzero(masks.late)) for masks in arrival_masks.values())
        return results

    @property
    def work(self) -> dict[str, Any]:
        """Where the last batch ran, for the log: how many partitions ran in tasks, in which processes, how many of
        them were still in memory there, how many tuples came to them in how many bytes, and for how long they ran
        together."""
        done = [x for processor in self._processors for x in processor.outcomes]
        if not done:
            return {"tasks": 0}
        return {
            "tasks": len(done),
            "processes": " ".join(f"{process}={count}" for process, count in Counter(x.process for x in done).items()),
            "cached": sum(x.cached for x in done),
            "moved_tuples": sum(x.came[0] for x in done),
            "moved_bytes": sum(x.came[1] for x in done),
            "task_seconds": round(sum(x.seconds for x in done), 3),
        }

    def delivered(self) -> None:
        """The results of the last batch are delivered."""
        for processor in self._processors:
            processor.delivered()

    def choose_executor(self, size: int) -> None:
        """Decide where a batch of so many bytes runs."""
        for processor in self._processors:
            processor.choose_executor(size)

    def reads_splits(self, stream: str) -> bool:
        """Whether tasks can read the next batch of a stream, and all stages run there."""
        return (
            len(self._processors.reading(stream)) == 1
            and all(x.reads_splits() for x in self._processors)
            and consumers.need_no_moments(self._processors, self._assignment.views)
        )

    def split_batch(
        self,
        stream: str,
        labels: Mapping[tuple[str | None, ...], int],
        splits: Sequence[Split],
        now: int,
        floors: Mapping[str, int],
    ) -> tuple[list[ResultBatch], int] | TaskRefusal:
        """The results of tuples that tasks read, and how many tuples there were; or why they did not."""
        self._processors.add_labels()
        first, *later = self._processors
        for view in self._processors.views:
            view.scratch = ViewScratch()
        descriptor = self._snapshot.descriptors[stream]
        found = first.split_batch(descriptor, self.pushdown(stream, labels), splits, now, floors)
        if isinstance(found, TaskRefusal):
            return found
        computed, summaries = found
        self.warned = []
        self._warn(first)
        results, handed = self._sorted_out(computed)
        before = first
        for processor in later:
            consumers.charge(before.views, self._assignment.views)
            consumers.follow_producers(before, self._assignment.views)
            self._processors.add_labels()
            computed = processor.results_batch([x for x in handed if x.stream in processor.program.streams])
            self._warn(processor)
            own, more = self._sorted_out(computed)
            results += own
            handed += more
            before = processor
        self._moved = False
        self.unseen, self.late = sum(x.unseen for x in summaries), 0
        self.malformed = malformed_together([rows for x in summaries for rows in x.rejected])
        tuples = sum(x.tuples for x in summaries) + sum(map(len, self.malformed))
        return results, tuples

    def pass_time(self, floors: Mapping[str, int]) -> None:
        """Takes the watermarks that the clock gives streams, when this makes nothing final. The next batch begins with
        them."""
        for processor in self._processors:
            processor.pass_time(floors)
        self._moved = self._moved or bool(floors)

    def is_due(self, floors: Mapping[str, int]) -> bool:
        """Whether a batch without tuples, with these watermarks of streams, would make anything final."""
        return consumers.is_due(self._processors, self._assignment.views, floors)

    def forget_labels(self, held: Collection[int]) -> bool:
        """When due, forgets all labels except these and those of tuples in the state; returns whether it was due."""
        if not self.dictionary.is_forgetting_due:
            return False
        self._processors.forget_labels(set(held))
        return True

    def _warn(self, processor: Processor) -> None:
        """Those who read a view through another query are warned about with that one's view."""
        self.warned += [
            (name, view.running.name, why)
            for view, why in processor.warned
            for name in view.clearances
            if consumer_of(name) is None
        ]

    def end(self, keys: Collection[tuple[str, str]], reason: str) -> None:
        """Ends queries for these subscribers (by subscriber and query) with the next batch."""
        for key in keys:
            self._processors.of(key[1]).end(self._assignment.views[key], reason)

    def ended(self) -> list[ResultBatch]:
        """The notices of views that have ended already."""
        rules = self._snapshot.rules
        words = (end_notice(view, rules) for x in self._processors for view in x.views if view.ended)
        own = (word.to(tuple(name for name in word.subscribers if consumer_of(name) is None)) for word in words)
        return [word for word in own if word.subscribers]

    def _sorted_out(self, found: Sequence[ResultBatch]) -> tuple[list[ResultBatch], list[HandedOn]]:
        """Results of one stage, by output: those for subscribers, and those that later stages read."""
        results, handed = list[ResultBatch](), list[HandedOn]()
        for result_batch in sorted(found, key=lambda x: self._processors.stages.running[x.query].output):
            mine = tuple(name for name in result_batch.subscribers if consumer_of(name) is None)
            if mine:
                results.append(result_batch if mine == result_batch.subscribers else result_batch.to(mine))
            handed += self._handed_on(result_batch)
        return results, handed

    def _handed_on(self, result_batch: ResultBatch) -> list[HandedOn]:
        running = self._processors.stages.running[result_batch.query]
        source, rules = Label(sources=frozenset({running.output})), self._snapshot.rules

        def number(label: Label) -> int:
            return self.dictionary.number(rules.combine(label, source))

        return consumers.handed_on(result_batch, self._assignment.views, running, number)

    @property
    def held(self) -> int:
        """How many tuples it keeps."""
        return sum(processor.held for processor in self._processors)

    # Saved state ------------------------------------------------------------------------------------------------------

    def save(self, write: Write) -> tuple[dict[PartitionName, dict[str, Any]], list[dict[str, Any]]]:
        """Writes what changed since the last call, except the labels. Returns the records of partitions, and the rest
        as plain values."""
        return self._saved(lambda processor: processor.save(write))

    def _saved(
        self, of: Callable[[Processor], tuple[Mapping[PartitionName, Found], dict[str, Any]]]
    ) -> tuple[dict[PartitionName, Found], list[dict[str, Any]]]:
        self._counts.save(self._processors, self._assignment.views)
        return self._processors.saved(of)

    def restore(
        self,
        partitions: Mapping[PartitionName, StoredPartition],
        plain: Sequence[Mapping[str, Any]],
        snapshot: CatalogSnapshot,
    ) -> None:
        """Continues from the saved state of another query graph, or returns to an own one; the dictionary knows its
        labels."""
        self._snapshot = CatalogSnapshot()
        self._rebuild(snapshot, Stages.of(snapshot), partitions, plain)
        self._processors.add_labels()
        self._set_rules(snapshot)
        self._snapshot = snapshot
        self._update_subscribers()
