"""The query graph: one processor for each stage, where later stages read the results of earlier ones.

It follows the catalog snapshot. Queries come and go without disturbing the state of others, rights of subscribers
change, and labels keep their numbers for as long as the state exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headgate.egress.filter import ResultFilter
from headgate.execution.executors import Executor, Partitions
from headgate.execution.partitions import PartitionName, PartitionStates
from headgate.execution.processor import Processor
from headgate.execution.results import end_notice
from headgate.execution.stages import Stages, consumer_of, first_subscriber
from headgate.execution.tasks.step import TaskRefusal
from headgate.expressions.sql.types import ARROW
from headgate.ingress.pushdown import MOST_LISTED, Pushdown
from headgate.ingress.splits import Split
from headgate.labels import Clearance, Label, Rules
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.times import NO_TIME
from headgate.model.tuples import TupleBatch, in_moments
from headgate.model.view import View, ViewScratch
from headgate.operators.partition import StoredPartition
from headgate.operators.profile import Step, continued
from headgate.operators.program import Program
from headgate.operators.segments import Write
from headgate.plan.analysis import StepCounts, ViewCounts
from headgate.plan.secure import Mode
from headgate.recovery.saved_counts import SavedCounts
from headgate.visibility.dictionary import Dictionary
from headgate.visibility.index import ArrivalMasks
from headgate.visibility.watermarks import Moments, ProducerWatermarks

Found = TypeVar("Found")
Make = Callable[[Sequence[ContinuousQuery], Program, pa.Schema], Executor]


class QueryGraph:
    """`make` makes the executor of a program."""

    def __init__(self, make: Make, limits: Limits | None = None) -> None:
        self._make = make
        self._limits = limits
        self._snapshot = CatalogSnapshot()
        self._stages = Stages.of(self._snapshot)
        self._processors: list[Processor] = []
        self._known: list[int] = []
        self._views: dict[tuple[str, str], View] = {}
        self._saved = SavedCounts()
        self._before: dict[tuple[str, str], dict[str, Step]] = {}
        """What was counted by earlier processors, by subscriber and query."""
        self._moved = False
        """Whether a catalog snapshot came since the last batch, or time passed: then watermarks may have moved."""
        self.dictionary = Dictionary()
        self.unseen, self.late = 0, 0
        """Of the last batch: tuples that nobody sees, and tuples that came too late."""
        self.warned: list[tuple[str, str, str]] = []
        """Of the last batch: subscribers whose query nears a limit, the query, and a warning."""

    # Catalog snapshots ------------------------------------------------------------------------------------------------

    def update(self, snapshot: CatalogSnapshot) -> None:
        """Takes a new catalog snapshot."""
        stages = Stages.of(snapshot)
        if stages.stages != self._stages.stages:
            self._rebuild(snapshot, stages, *self._state())
        self._set_rules(snapshot)
        self._snapshot, self._stages = snapshot, stages
        self._update_subscribers()

    def feed(self, tables: Mapping[str, TupleBatch]) -> None:
        """Feeds the tuples of all tables that could be read to every processor."""
        self._add_labels()
        for processor in self._processors:
            processor.feed([tables[name] for name in sorted(tables)])

    def _set_rules(self, snapshot: CatalogSnapshot) -> None:
        """Applies new rules. What a stream's owner requires now also protects the tuples that came before."""
        stricter = snapshot.descriptors != self._snapshot.descriptors and self.dictionary.protect(snapshot.protected)
        for number, processor in enumerate(self._processors):
            if stricter:
                processor.add_labels(self.dictionary.labels)
                self._known[number] = self.dictionary.next
            processor.set_rules(snapshot.rules, anew=stricter)

    def _rebuild(
        self, snapshot: CatalogSnapshot, stages: Stages, partitions: Partitions, plain: Sequence[Mapping[str, Any]]
    ) -> None:
        """Makes new processors, which continue with the state of the same queries; a query whose meaning differs from
        the saved one of its name starts empty. Counts go on from those of the last save: what a batch counted before it
        failed does not count."""
        self._processors = [self._processor(queries, snapshot.rules) for queries in stages.stages]
        self._known = [0] * len(self._processors)
        self._add_labels()
        for number, (processor, rest) in enumerate(zip(self._processors, plain, strict=False)):
            means = {name: query.meaning for name, query in processor.running.items()}
            kept = frozenset(name for name, meant in rest["queries"].items() if means.get(name) == meant)
            own: Any = {
                (group.partition(" ")[2], x): c for (group, x), c in partitions.items() if _stage(group) == number
            }
            processor.restore(own, rest, kept)
        for processor in self._processors:
            processor.decide_anew()
        self._views = {
            (name, view.running.name): view
            for processor in self._processors
            for view in processor.views
            for name in view.clearances
        }
        self._before = self._saved.for_queries(stages.running)

    def profile(self, query: str, subscriber: str | None = None) -> list[ViewCounts]:
        """What was done for the views of a query: all, or the one that serves this subscriber."""
        views: dict[int, list[tuple[str, str]]] = {}
        for key, view in self._views.items():
            if query in (key[1], self._stages.running[key[1]].base) and subscriber in (None, key[0]):
                views.setdefault(id(view), []).append(key)
        if not views:
            return []
        counted = self._processor_of(next(iter(views.values()))[0][1]).counted()
        return [self._view_counts(keys, counted(self._views[keys[0]])) for keys in views.values()]

    def _view_counts(self, keys: Sequence[tuple[str, str]], now: Mapping[str, Step]) -> ViewCounts:
        """A consumer is named as the subscriber it reads for."""
        steps = continued(self._before.get(keys[0], {}), now)
        names = dict.fromkeys(first_subscriber(name) for name, _ in keys)
        return ViewCounts(
            tuple(names), {x: StepCounts(y.taken, y.given, y.held, y.nanoseconds) for x, y in steps.items()}
        )

    def _processor(self, queries: Sequence[ContinuousQuery], rules: Rules) -> Processor:
        make = partial(self._make, queries)
        return Processor(queries, rules, make, ResultFilter, self._limits)

    def _update_subscribers(self) -> None:
        self._add_labels()
        current = {(x.name, x.query): x.clearance for x in self._stages.subscribers}
        for key in [key for key in self._views if key not in current]:
            self._processor_of(key[1]).leave(self._views.pop(key), key[0])
        coming: dict[tuple[str, Clearance | None], list[str]] = {}
        changed: dict[tuple[int, Clearance | None], list[tuple[str, str]]] = {}
        for (name, query), clearance in current.items():
            known = self._views.get((name, query))
            if known is None:
                coming.setdefault((query, clearance), []).append(name)
            elif known.clearances.get(name) != clearance:
                changed.setdefault((id(known), clearance), []).append((name, query))
        for (query, clearance), names in coming.items():
            self._subscribe(query, dict.fromkeys(names, clearance))
        for (_, clearance), keys in changed.items():
            self._change(keys, clearance)
        self._open()

    def _open(self) -> None:
        """Decides which inputs hold the watermarks of views back (SPEC.md, 4.3): source streams that their subscribers
        may read, and outputs of views that have such inputs themselves."""
        self._moved = True
        closed: dict[int, dict[str, set[str]]] = {}
        for processor in self._processors:
            processor.declare(self._declared)
            for view in processor.views:
                view.readers = tuple(name for name in view.clearances if consumer_of(name) is not None)
                processor.open(view, closed.get(id(view), {}))
                for name in view.readers:
                    key = consumer_of(name)
                    if key in self._views and not (view.own[name].open if name in view.own else view.open):
                        own = closed.setdefault(id(self._views[key]), {})
                        own.setdefault(key[0], set()).add(view.running.output)

    @property
    def _declared(self) -> dict[str, Label]:
        """The label that all tuples of a stream have at least. Every stream is a source of its own tuples."""
        streams = {*self._snapshot.descriptors, *self._stages.producers}
        return {name: self._snapshot.protected(Label(sources=frozenset({name}))) for name in streams}

    def _subscribe(self, query: str, clearances: Mapping[str, Clearance | None]) -> None:
        """Subscribers who come together with the same rights share one view. All subscribers of a cumulative query
        do, and of a query that remembers nothing those with the same rights, whenever they come."""
        processor = self._processor_of(query)
        running = (x for x in processor.views if x.running.name == query and not x.ended)
        if self._stages.running[query].mode == Mode.CUMULATIVE:
            view = next(running, None)
            if view is not None:
                processor.change(view, clearances)
        else:
            view = next((x for x in running if _remembers_nothing(x) and _is_alike(x, clearances)), None)
            if view is not None:
                self._join(processor, view, clearances)
        if view is None:
            view = processor.subscribe(query, clearances)
        self._views |= {(name, query): view for name in clearances}

    def _join(self, processor: Processor, view: View, clearances: Mapping[str, Clearance | None]) -> None:
        """Adds subscribers to a view that has their rights. They are not told what it counted before."""
        counted = processor.counted()(view)
        for name in clearances:
            self._before[name, view.running.name] = {x: Step().less(step) for x, step in counted.items()}
        view.clearances |= clearances

    def _change(self, keys: Sequence[tuple[str, str]], clearance: Clearance | None) -> None:
        """Changes the rights of some subscribers of one view; if they are not all of its subscribers, they move to a
        view of their own."""
        names, view = [name for name, _ in keys], self._views[keys[0]]
        processor = self._processor_of(view.running.name)
        if view.running.mode == Mode.EXACT and len(names) < len(view.clearances):
            view = processor.split_view(view, names)
            self._views |= dict.fromkeys(keys, view)
        processor.change(view, dict.fromkeys(names, clearance))

    def _processor_of(self, query: str) -> Processor:
        return self._processors[self._stages.running[query].stage]

    def _add_labels(self) -> None:
        for number, processor in enumerate(self._processors):
            new = self.dictionary.new_since(self._known[number])
            processor.add_labels({x: self.dictionary.labels[x] for x in new})
            self._known[number] = self.dictionary.next

    def pushdown(self, stream: str, labels: Mapping[tuple[str | None, ...], int]) -> Pushdown:
        """The columns and rows that the next batch of a stream needs, as of now; `labels` gives the numbers of
        labels."""
        self._add_labels()
        reading = [x for x in self._processors if stream in x.program.streams]
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
        self._add_labels()
        arrival_masks: dict[str, ArrivalMasks] = {}
        results: list[ResultBatch] = []
        views = [view for processor in self._processors for view in processor.views]
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
            for result_batch in sorted(found, key=lambda x: self._stages.running[x.query].output):
                mine = tuple(name for name in result_batch.subscribers if consumer_of(name) is None)
                if mine:
                    results.append(result_batch if mine == result_batch.subscribers else result_batch.to(mine))
                coming += self._consumer_tuples(result_batch)
            self._charge(processor.views)
            self._warn(processor)
            for view in processor.views:
                self._report_watermarks(view, batch.producers)
            self._add_labels()
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
        """Whether tasks can read the next batch of a stream. Queries over queries need its tuples beside the driver."""
        reading = [x for x in self._processors if stream in x.program.streams]
        return len(self._processors) == 1 and len(reading) == 1 and reading[0].reads_splits()

    def split_batch(
        self,
        stream: str,
        labels: Mapping[tuple[str | None, ...], int],
        splits: Sequence[Split],
        now: int,
        floors: Mapping[str, int],
    ) -> tuple[list[ResultBatch], int] | TaskRefusal:
        """The results of tuples that tasks read, and how many tuples there were; or why they did not."""
        self._add_labels()
        (processor,) = self._processors
        for view in processor.views:
            view.scratch = ViewScratch()
        descriptor = self._snapshot.descriptors[stream]
        found = processor.split_batch(descriptor, self.pushdown(stream, labels), splits, now, floors)
        if isinstance(found, TaskRefusal):
            return found
        results, summaries = found
        self.warned = []
        self._warn(processor)
        self._moved = False
        self.unseen, self.late = sum(x.unseen for x in summaries), 0
        return sorted(results, key=lambda x: self._stages.running[x.query].output), sum(x.tuples for x in summaries)

    def pass_time(self, floors: Mapping[str, int]) -> None:
        """Takes the watermarks that the clock gives streams, when this makes nothing final. The next batch begins with
        them."""
        for processor in self._processors:
            processor.pass_time(floors)
        self._moved = self._moved or bool(floors)

    def is_due(self, floors: Mapping[str, int]) -> bool:
        """Whether a batch without tuples, with these watermarks of streams, would make anything final."""
        known: dict[int, dict[str, int]] = {}
        for processor in self._processors:
            given = {id(view): {**floors, **known.get(id(view), {})} for view in processor.views}
            if processor.is_due(given):
                return True
            for view in processor.views:
                for key in map(consumer_of, view.readers):
                    if key is not None and key in self._views:
                        own = known.setdefault(id(self._views[key]), {})
                        own[view.running.output] = view.watermark_with(given[id(view)])
        return False

    def _report_watermarks(self, producer: View, watermarks: ProducerWatermarks) -> None:
        """Tells the views that read the results of this one how its watermark moved. They do not look beyond the moment
        at which it ended."""
        for name in producer.readers:
            key = consumer_of(name)
            view = self._views.get(key) if key else None
            if view is None or key is None or producer.scratch.timeline is None:
                continue
            own = producer.scratch.timelines.get(name, producer.scratch.timeline)
            timeline = producer.scratch.timeline if view.running.mode == Mode.CUMULATIVE else own
            end = producer.scratch.ended_at
            marks, alone = (x.marks if end is None else x.until(end).marks for x in (timeline, own))
            watermarks.marks.setdefault(id(view), {})[producer.running.output] = marks
            watermarks.own.setdefault((id(view), key[0]), {})[producer.running.output] = alone

    def forget_labels(self, held: Collection[int]) -> bool:
        """When due, forgets all labels except these and those of tuples in the state; returns whether it was due."""
        if not self.dictionary.is_forgetting_due:
            return False
        self._add_labels()
        for processor in self._processors:
            processor.forget_visibilities()
        self.dictionary.forget({*held, *(x for processor in self._processors for x in processor.labels_held)})
        for processor in self._processors:
            processor.forget_labels(self.dictionary.labels)
        return True

    def _charge(self, producers: Sequence[View]) -> None:
        """Charges the work of a producer query's views to the views of the consumer queries they feed. The limits that
        it comes near to are near for these too."""
        for producer in producers:
            keys = (consumer_of(name) for name in producer.clearances)
            for view in {id(x): x for key in keys if key and (x := self._views.get(key))}.values():
                view.scratch.spent += producer.scratch.spent
                view.scratch.near |= producer.scratch.near

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
            self._processor_of(key[1]).end(self._views[key], reason)

    def ended(self) -> list[ResultBatch]:
        """The notices of views that have ended already."""
        rules = self._snapshot.rules
        words = (end_notice(view, rules) for x in self._processors for view in x.views if view.ended)
        own = (word.to(tuple(name for name in word.subscribers if consumer_of(name) is None)) for word in words)
        return [word for word in own if word.subscribers]

    def _consumer_tuples(self, result_batch: ResultBatch) -> Iterator[TupleBatch]:
        """The results that consumer queries receive, as tuples of the producer query's output stream."""
        keys = (consumer_of(name) for name in result_batch.subscribers)
        views = {id(view): view for key in keys if key and (view := self._views.get(key))}
        if result_batch.ended:
            moment = self._views[result_batch.subscribers[0], result_batch.query].last_moment
            for view in views.values():  # it ends after it has processed its last input
                view.end_with(moment, result_batch.ended)
        if result_batch.ended or not views:
            return
        running = self._stages.running[result_batch.query]
        source = Label(sources=frozenset({running.output}))
        combine = self._snapshot.rules.combine
        numbers = np.array([self.dictionary.number(combine(kind, source)) for kind in result_batch.kinds], np.int64)
        columns = {
            name: column.cast(ARROW[type_])
            for (name, type_), column in zip(running.query.columns, result_batch.values, strict=True)
        }
        yield TupleBatch(
            running.output,
            result_batch.times,
            numbers[result_batch.labels],
            columns,
            tuple(views.values()),
            result_batch.moments,
        )

    @property
    def held(self) -> int:
        """How many tuples it keeps."""
        return sum(processor.held for processor in self._processors)

    # Saved state ------------------------------------------------------------------------------------------------------

    def save(self, write: Write) -> tuple[dict[PartitionName, dict[str, Any]], list[dict[str, Any]]]:
        """Writes what changed since the last call, except the labels. Returns the records of partitions, and the rest
        as plain values."""
        return self._each(lambda processor: processor.save(write))

    def _state(self) -> tuple[PartitionStates, list[dict[str, Any]]]:
        """Everything except the labels, in memory."""
        return self._each(lambda processor: processor.state())

    def _each(
        self, of: Callable[[Processor], tuple[Mapping[PartitionName, Found], dict[str, Any]]]
    ) -> tuple[dict[PartitionName, Found], list[dict[str, Any]]]:
        partitions: dict[PartitionName, Found] = {}
        plain = []
        counted = [processor.counted() for processor in self._processors]
        before = {key: steps for key, steps in self._before.items() if key in self._views}
        self._saved = SavedCounts(before, counted, dict(self._views), self._stages.running)
        for number, processor in enumerate(self._processors):
            own, rest = of(processor)
            partitions |= {(f"{number} {group}", x): partition for (group, x), partition in own.items()}
            rest["queries"] = {name: query.meaning for name, query in processor.running.items()}
            plain.append(rest)
        return partitions, plain

    def restore(
        self,
        partitions: Mapping[PartitionName, StoredPartition],
        plain: Sequence[Mapping[str, Any]],
        snapshot: CatalogSnapshot,
    ) -> None:
        """Continues from the saved state of another query graph, or returns to an own one; the dictionary knows its
        labels."""
        self._snapshot, self._stages = CatalogSnapshot(), Stages.of(snapshot)
        self._rebuild(snapshot, self._stages, partitions, plain)
        self._add_labels()
        self._set_rules(snapshot)
        self._snapshot = snapshot
        self._update_subscribers()


def _stage(group: str) -> int:
    return int(group.partition(" ")[0])


def _remembers_nothing(view: View) -> bool:
    """Whether what a view gives depends only on the tuples that come: no windows, no other query that follows its time,
    no count of results for a limit."""
    own = all(consumer_of(name) is None for name in view.clearances)
    return own and not view.windowed and view.second == NO_TIME


def _is_alike(view: View, clearances: Mapping[str, Clearance | None]) -> bool:
    """Whether subscribers have the rights of a view."""
    own = all(consumer_of(name) is None for name in clearances)
    return own and {*view.clearances.values()} == {*clearances.values()}
