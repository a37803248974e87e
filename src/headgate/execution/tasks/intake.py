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
from headgate.execution.tasks.step import (
    STATELESS,
    DerivedSplit,
    Intake,
    Outcome,
    ResultIntake,
    SplitStep,
    TaskPlan,
    TaskRefusal,
)
from headgate.ingress.splits import Split
from headgate.model.tuples import TupleBatch
from headgate.visibility.splits import MayBeLate, SplitSummary, SplitTimes, summed_up

Part = tuple[SplitSummary, bytes]
"""What a split has for one partition: the summary of the whole split, and tuples as bytes (none: nothing)."""


def read_split(
    plan: TaskPlan, intake: Intake | ResultIntake, split: Split | DerivedSplit
) -> Mapping[PartitionName, Part]:
    """The parts of a split, by partition. Every partition gets the summary."""
    if isinstance(split, Split):
        assert isinstance(intake, Intake)  # noqa: S101
        return _read_source(plan, intake, split)
    arrivals = split.tuples()
    rows = _by_label(arrivals.labels, split.rows)
    return _divided(plan, intake.levels, arrivals, rows, SplitSummary(split.number, len(rows)))


def _read_source(plan: TaskPlan, intake: Intake, split: Split) -> Mapping[PartitionName, Part]:
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
    return _divided(plan, intake.levels, arrivals, rows, summary)


def _divided(
    plan: TaskPlan, levels: Mapping[int, str], arrivals: TupleBatch, rows: Ints, summary: SplitSummary
) -> Mapping[PartitionName, Part]:
    """The tuples with these visibility rows among the partitions, without those that nobody sees (-1)."""
    kept, schema = np.flatnonzero(rows >= 0), plan.schema_of(arrivals.stream)
    table = entering_table(plan.program, schema, arrivals, np.arange(len(rows)), rows, kept)
    parts = plan.parts(table, levels)
    if plan.program.stateless:
        parts[STATELESS, summary.split % plan.partitions] = table
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
    step, before = given.step, given.before
    if refused is None and before is not None:
        index = pickle.loads(before.index)  # noqa: S301
        try:
            index.arrive_splits(before.stream, SplitTimes(splits), before.floors)
            step = replace(step, visibility=index.batch(), identities=index.identities)
        except MayBeLate:
            refused = TaskRefusal(driver="a tuple may be late")
    if refused is not None:
        return Outcome(name, None, (), refused=refused)
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
    for summary, blob in parts:
        if blob:
            found.append(unpacked_part(blob, schema, first))
        first += summary.tuples
    return pa.concat_tables(found).combine_chunks()


def label_texts(intake: Intake, split: Split) -> set[tuple[str | None, ...]]:
    """The label texts of a split that have no number yet; of a split that cannot be read, none."""
    return {texts for texts in split.label_texts(intake.descriptor) if texts not in intake.pushdown.labels}
