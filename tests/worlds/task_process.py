"""Tasks that run in this process, but receive and return everything as bytes, as in another one."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.execution.partitions import PartitionName
from headgate.execution.tasks import worker
from headgate.execution.tasks.intake import advance_parts, label_texts, read_split
from headgate.execution.tasks.step import DerivedSplit, Intake, Outcome, ResultIntake, SplitStep, TaskPlan, TaskStep
from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.records import Form
from headgate.ingress.splits import Split
from headgate.ingress.text_formats import Text
from headgate.ingress.validation import RawBatch
from headgate.model.stream import StreamDescriptor

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class FileBatch:
    """A batch in a Parquet file, which tasks read in so many parts; or, with `text`, in so many files of JSON lines."""

    table: pa.Table
    path: Path
    parts: int
    text: Text | None = None

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> None:
        pass

    def all_rows(self) -> RawBatch:
        return RawBatch(self.table)

    def size(self) -> int:
        return int(self.table.nbytes)

    def splits(self) -> list[Split]:
        self.path.parent.mkdir(exist_ok=True, parents=True)
        if self.text is not None:
            return [Split(part, paths, text=self.text) for part, paths in enumerate(self._json())]
        pq.write_table(self.table, self.path, row_group_size=max(1, self.table.num_rows // (self.parts + 1)))
        return [Split(part, (str(self.path),), part, self.parts) for part in range(self.parts)]

    def _json(self) -> Iterator[tuple[str, ...]]:
        """Two files for each part."""
        rows = self.table.to_pylist()
        each = -(-len(rows) // (2 * self.parts)) or 1
        for part in range(self.parts):
            paths = []
            for number in (2 * part, 2 * part + 1):
                path = self.path.with_name(f"{self.path.name}-{number}.json")
                some = rows[number * each : (number + 1) * each]
                path.write_text("".join(json.dumps(row, default=_as_json) + "\n" for row in some))
                paths.append(str(path))
            yield tuple(paths)


def as_json(table: pa.Table, descriptor: StreamDescriptor) -> Text | None:
    """How the tuples are read if they are written as JSON lines; None if JSON cannot write them."""
    for column, type_ in zip(table.columns, table.schema.types, strict=True):
        if pa.types.is_floating(type_) and not np.isfinite(column.drop_null().to_numpy()).all():
            return None
        if pa.types.is_binary(type_):
            return None
    return Text(descriptor, True, Form())


def _as_json(value: object) -> str:
    assert isinstance(value, dt.date)
    return value.isoformat()


class TasksHere:
    """Sometimes a task loses what it had in memory, or runs twice; only the second attempt counts then."""

    on_this_machine = True
    at_once = 3

    def __init__(self, seed: int = 0) -> None:
        self._rng = Random(seed)
        self.steps = 0
        self.cached = 0
        self.read = 0
        """Batches that tasks read and took."""
        self.handed_on = 0
        """How often tasks read what an earlier stage had made."""
        self.works = 0
        """How often results were staged for a reader."""

    def run(self, plan: TaskPlan, step: TaskStep, parts: Mapping[PartitionName, pa.Table]) -> list[Outcome]:
        return self._each(plan, worker.advance, step, parts)

    def run_splits(
        self, plan: TaskPlan, step: SplitStep, intake: Intake | ResultIntake, splits: Sequence[Split | DerivedSplit]
    ) -> list[Outcome]:
        read = [_sent(read_split(*_sent((plan, intake, split)))) for split in splits]
        parts = {name: [part[name] for part in read] for name in plan.names}
        found = self._each(plan, advance_parts, step, parts)
        if isinstance(intake, Intake):
            self.read += found[0].refused is None
        else:
            self.handed_on += 1
        return found

    def label_texts(self, intake: Intake, splits: Sequence[Split]) -> set[tuple[str | None, ...]]:
        return {texts for split in splits for texts in label_texts(intake, split)}

    def each(self, what: str, work: Callable[[T], U], items: Sequence[T]) -> list[U]:  # noqa: ARG002
        """Each item once, or twice, and then the second attempt counts."""
        self.works += len(items)
        return [[_sent(_sent(work)(_sent(x))) for _ in range(self._rng.choice((1, 1, 2)))][-1] for x in items]

    def _each(
        self, plan: TaskPlan, work: Callable[..., Outcome], step: object, parts: Mapping[PartitionName, Any]
    ) -> list[Outcome]:
        self.steps += 1
        found = []
        for name in plan.names:
            for _ in range(self._rng.choice((1, 1, 1, 2))):
                if self._rng.random() < 0.2:
                    worker._KEPT.clear()
                done = _sent(work(*_sent((plan, step, name, parts[name]))))
            found.append(done)
            self.cached += done.cached
        return found


def _sent(value: T) -> T:
    """As another process has it."""
    return pickle.loads(pickle.dumps(value))  # type: ignore[no-any-return]  # noqa: S301
