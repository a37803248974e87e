"""What a view hands on to the views of later stages that read its results: tuples, watermarks and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from headgate.egress.result_splits import HandedOn
from headgate.execution.processor import Processor
from headgate.execution.stages import consumer_of
from headgate.labels import Label
from headgate.model.query import ContinuousQuery
from headgate.model.results import ResultBatch
from headgate.model.view import View
from headgate.plan.secure import Mode
from headgate.recovery.stage_processors import StageProcessors
from headgate.visibility.watermarks import ProducerWatermarks, follow

Views = Mapping[tuple[str, str], View]
"""The views, by subscriber and query."""


def _consumers(names: Iterable[str], views: Views) -> list[View]:
    """The views that read through these consumers."""
    keys = (consumer_of(name) for name in names)
    return list({id(view): view for key in keys if key and (view := views.get(key))}.values())


def open_inputs(processors: StageProcessors, views: Views, declared: Mapping[str, Label]) -> None:
    """Decides which inputs hold the watermarks of views back (SPEC.md, 4.3): source streams that their subscribers may
    read, and outputs of views that have such inputs themselves. `declared` are the labels that all tuples of a stream
    have at least."""
    closed: dict[int, dict[str, set[str]]] = {}
    for processor in processors:
        processor.declare(declared)
        for view in processor.views:
            view.readers = tuple(name for name in view.clearances if consumer_of(name) is not None)
            processor.open(view, closed.get(id(view), {}))
            for name in view.readers:
                key = consumer_of(name)
                if key and key in views and not (view.own[name].open if name in view.own else view.open):
                    own = closed.setdefault(id(views[key]), {})
                    own.setdefault(key[0], set()).add(view.running.output)


def is_due(processors: StageProcessors, views: Views, floors: Mapping[str, int]) -> bool:
    """Whether a batch without tuples, with these watermarks of streams, would make anything final."""
    known: dict[int, dict[str, int]] = {}
    for processor in processors:
        given = {id(view): {**floors, **known.get(id(view), {})} for view in processor.views}
        if processor.is_due(given):
            return True
        for view in processor.views:
            for consumer in _consumers(view.readers, views):
                own = known.setdefault(id(consumer), {})
                own[view.running.output] = view.watermark_with(given[id(view)])
    return False


def hand_watermarks(producer: View, views: Views, watermarks: ProducerWatermarks) -> None:
    """Tells the views that read the results of this one how its watermark moved. They do not look beyond the moment at
    which it ended."""
    for name in producer.readers:
        key = consumer_of(name)
        view = views.get(key) if key else None
        if view is None or key is None or producer.scratch.timeline is None:
            continue
        own = producer.scratch.timelines.get(name, producer.scratch.timeline)
        timeline = producer.scratch.timeline if view.running.mode == Mode.CUMULATIVE else own
        end = producer.scratch.ended_at
        marks, alone = (x.marks if end is None else x.until(end).marks for x in (timeline, own))
        watermarks.marks.setdefault(id(view), {})[producer.running.output] = marks
        watermarks.own.setdefault((id(view), key[0]), {})[producer.running.output] = alone


def need_no_moments(processors: StageProcessors, views: Views) -> bool:
    """Whether results go on to the next stage without the moments at which they come. It is so if each view that reads
    results reads one output only, and is no further than that: then it takes them in their order, none is late, and its
    watermark is that of the view that makes them."""
    producers = [view for processor in processors for view in processor.views if view.readers and not view.ended]
    if any(view.running.mode != Mode.EXACT for view in producers):
        return False
    fed = [(view, producer) for producer in producers for view in _consumers(producer.readers, views)]
    reading = [view for number, processor in enumerate(processors) if number for view in processor.views]
    return (
        all(view.ended or len(view.timed) == 1 for view in reading)
        and all(view.ended or view.passed <= producer.passed for view, producer in fed)
        and len({id(view) for view, _ in fed}) == len(fed)
    )


def follow_producers(processor: Processor, views: Views) -> None:
    """Tells the views that read the results of this stage how far its watermarks have come."""
    for producer in (view for view in processor.views if not view.ended):
        for view in _consumers(producer.readers, views):
            follow(view, producer.running.output, producer.passed)


def charge(producers: Sequence[View], views: Views) -> None:
    """Charges the work of a producer query's views to the views of the consumer queries they feed. The limits that it
    comes near to are near for these too."""
    for producer in producers:
        for view in _consumers(producer.clearances, views):
            view.scratch.spent += producer.scratch.spent
            view.scratch.near |= producer.scratch.near


def handed_on(
    result_batch: ResultBatch, views: Views, running: ContinuousQuery, number: Callable[[Label], int]
) -> list[HandedOn]:
    """The results that consumer queries receive as tuples of the producer query's output stream, if they are any.
    `number` numbers the label that a tuple has whose result has this one."""
    readers = _consumers(result_batch.subscribers, views)
    if result_batch.ended:
        moment = views[result_batch.subscribers[0], result_batch.query].last_moment
        for view in readers:  # it ends after it has processed its last input
            view.end_with(moment, result_batch.ended)
    if result_batch.ended or not readers:
        return []
    numbers = tuple(number(kind) for kind in result_batch.kinds)
    return [HandedOn(running.output, running.query.columns, result_batch, numbers, tuple(readers))]
