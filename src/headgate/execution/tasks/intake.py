"""Ingress in tasks: reads a split, labels its tuples, drops those that nobody sees, and divides the rest among the
partitions. Then, in the tasks that have the parts of all splits: the visibility of the batch from the summaries."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.execution.entering import entering_table
from headgate.execution.partitions import PartitionName
from headgate.execution.tasks import worker
from headgate.execution.tasks.blobs import packed_part, unpacked_part
from headgate.execution.tasks.step import STATELESS, Intake, Outcome, SplitStep, TaskPlan, TaskRefusal
from headgate.ingress.splits import Split
from headgate.model.tuples import TupleBatch
from headgate.visibility.splits import MayBeLate, SplitSummary, SplitTimes, summed_up
from headgate.visibility.watermarks import Moments

Part = tuple[SplitSummary, bytes]
"""What a split has for one partition: the summary of the whole split, and tuples as bytes (none: nothing)."""


def read_split(plan: TaskPlan, intake: Intake, split: Split) -> Mapping[PartitionName, Part]:
    """The parts of a split, by partition. Every partition gets the summary."""
    unknown: list[tuple[str | None, ...]] = []
    decoded = split.decoded(intake.descriptor, intake.pushdown, intake.now, lambda texts: unknown.extend(texts))
    if decoded is None:
        new = tuple(texts for texts in unknown if texts not in intake.pushdown.labels)
        summary = SplitSummary(split.number, unknown=new, unfit="" if new else "it must be read whole")
        return dict.fromkeys(plan.names, (summary, b""))
    arrivals = decoded.arrivals
    rows = _by_label(arrivals.labels, intake.rows)
    kept = np.flatnonzero(rows >= 0)
    seen = TupleBatch(arrivals.stream, arrivals.times[kept], arrivals.labels[kept], {})
    summary = replace(summed_up(split.number, seen, decoded.tuples, intake.now), rejected=tuple(decoded.rejected))
    table = entering_table(plan.program, plan.schema_of(arrivals.stream), arrivals, np.arange(len(rows)), rows, kept)
    parts = plan.parts(table, intake.levels)
    if plan.program.stateless:
        parts[STATELESS, split.number % plan.partitions] = table
    return {
        name: (summary, packed_part(parts[name]) if name in parts and parts[name].num_rows else b"")
        for name in plan.names
    }


def _by_label(labels: Ints, rows: Mapping[int, int]) -> Ints:
    """The visibility row of each tuple; -1 if nobody sees it."""
    found = np.full(max(int(labels.max(initial=-1)), max(rows, default=-1)) + 2, -1, np.int64)
    for label, row in rows.items():
        found[label] = row
    return found[labels]


def advance_parts(plan: TaskPlan, given: SplitStep, name: PartitionName, parts: Iterable[Part]) -> Outcome:
    """Advance one partition by its parts of all splits; or refuse the batch, as all partitions do."""
    own = sorted(parts, key=lambda part: part[0].split)
    splits = [summary for summary, _ in own]
    refused = _refused(splits)
    if refused is None:
        index = pickle.loads(given.index)  # noqa: S301
        try:
            index.arrive_splits(given.stream, SplitTimes(splits), Moments(0, floors=given.floors))
        except MayBeLate:
            refused = TaskRefusal(driver="a tuple may be late")
    if refused is not None:
        return Outcome(name, None, (), refused=refused)
    step = replace(given.step, visibility=index.batch(), identities=index.identities)
    arriving = _arriving(plan, given, name, own)
    outcome = worker.advance(plan, step, name, arriving, files=True)
    came = arriving.num_rows, sum(len(blob) for _, blob in own)
    return replace(outcome, splits=splits if name == plan.names[0] else (), came=came)


def _refused(splits: Sequence[SplitSummary]) -> TaskRefusal | None:
    for x in splits:
        if x.unfit:
            return TaskRefusal(driver=x.unfit)
    unknown = frozenset(texts for x in splits for texts in x.unknown)
    return TaskRefusal(unknown) if unknown else None


def _arriving(plan: TaskPlan, given: SplitStep, name: PartitionName, parts: Sequence[Part]) -> pa.Table:
    """The arriving tuples of one partition. Their arrival numbers go on from split to split."""
    schema = plan.schema if name[0] == STATELESS else plan.group(name[0]).schema
    found, first = [schema.empty_table()], given.arrived
    stream = plan.program.streams.index(given.stream)
    for summary, blob in parts:
        if blob:
            found.append(unpacked_part(blob, schema, stream, first))
        first += summary.tuples
    return pa.concat_tables(found).combine_chunks()


def label_texts(intake: Intake, split: Split) -> set[tuple[str | None, ...]]:
    """The label texts of a split that have no number yet; of a split that cannot be read, none."""
    return {texts for texts in split.label_texts(intake.descriptor) if texts not in intake.pushdown.labels}
