"""Streams as Spark reads them, and batches of them as processors take them: times, labels, values (ingress).

Labels are read once for each different text, however many tuples carry it; what cannot be read is for nobody. Tuples
without an event time, or too far ahead of the clock, are refused and kept for the stream's owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from headgate.engine.kernels.codes import codes
from headgate.engine.kernels.rows import Ints
from headgate.engine.processor import Arrivals
from headgate.errors import HeadgateError
from headgate.labels import FALSE, PUBLIC, Label, Rules
from headgate.labels.text import parse_label, parse_level, parse_roles
from headgate.plan.expressions import Type

SPARK: dict[Type, t.DataType] = {
    Type.BOOLEAN: t.BooleanType(),
    Type.INT: t.IntegerType(),
    Type.BIGINT: t.LongType(),
    Type.FLOAT: t.FloatType(),
    Type.DOUBLE: t.DoubleType(),
    Type.STRING: t.StringType(),
    Type.TIMESTAMP: t.TimestampType(),
    Type.DATE: t.DateType(),
}
"""How columns of each type are read."""

READERS: dict[str, Callable[[str], Label]] = {
    "LABEL": parse_label,
    "ROLES": lambda text: Label(roles=parse_roles(text)),
    "LEVEL": lambda text: Label(levels=frozenset({parse_level(text)})),
}


@dataclass(frozen=True)
class StreamSource:
    """A stream and where it comes from. `labels` are the columns that hold labels, by what they hold."""

    name: str
    columns: tuple[tuple[str, Type], ...]
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    event_time: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: Label = PUBLIC
    skew: int | None = None

    @property
    def schema(self) -> t.StructType:
        return t.StructType([t.StructField(name, SPARK[type_]) for name, type_ in self.columns])


@dataclass(frozen=True)
class Refused:
    """A tuple that did not come in, and why."""

    stream: str
    reason: str
    values: Mapping[str, object]


def read_stream(spark: SparkSession, source: StreamSource) -> DataFrame:
    reader = spark.readStream.format(source.format).options(**dict(source.options))
    if source.format != "rate":
        reader = reader.schema(source.schema)
    return reader.load().select(*(F.col(f"`{name.replace('`', '``')}`") for name, _ in source.columns))


class Ingress:
    """Batches of one stream become arrivals; numbers of labels come from `number`."""

    def __init__(self, source: StreamSource, rules: Rules, number: Callable[[Label], int]) -> None:
        self._source = source
        self._rules = rules
        self._number = number
        self._known: dict[tuple[str | None, ...], int] = {}
        self.unreadable = 0

    def take(self, batch: pa.Table, now: int) -> tuple[Arrivals, list[Refused]]:
        """`now` is the time of arrival, in milliseconds."""
        times = self._times(batch, now)
        fine = times.is_valid()
        refused = [self._refused(row, "it has no event time") for row in batch.filter(pc.invert(fine)).to_pylist()]
        if self._source.skew is not None:
            ahead = pc.fill_null(pc.greater(times, now + self._source.skew), False)
            refused += [
                self._refused(row, "its event time is too far ahead") for row in batch.filter(ahead).to_pylist()
            ]
            fine = pc.and_(fine, pc.invert(ahead))
        batch, times = batch.filter(fine), times.filter(fine)
        columns = {name: _finite(batch.column(name).combine_chunks()) for name, _ in self._source.columns}
        moments = np.asarray(times.to_numpy(zero_copy_only=False), np.int64)
        return Arrivals(self._source.name, moments, self._labels(batch), columns), refused

    def _times(self, batch: pa.Table, now: int) -> pa.Array:
        if self._source.event_time is None:
            return pa.array(np.full(batch.num_rows, now), pa.int64())
        column = batch.column(self._source.event_time).combine_chunks()
        return pc.divide(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)

    def _labels(self, batch: pa.Table) -> Ints:
        """One number for each tuple; only one of each kind of text is read."""
        if not self._source.labels:
            return np.full(batch.num_rows, self._numbered(()))
        columns = [batch.column(name).combine_chunks() for name in self._source.labels.values()]
        _, first, kind = np.unique(codes(columns, null_is_a_value=True), return_index=True, return_inverse=True)
        texts = zip(*(column.take(pa.array(first)).to_pylist() for column in columns), strict=True)
        return np.array([self._numbered(row) for row in texts], np.int64)[kind]

    def _numbered(self, texts: tuple[str | None, ...]) -> int:
        if texts not in self._known:
            self._known[texts] = self._number(self._read(texts))
        return self._known[texts]

    def _read(self, texts: tuple[str | None, ...]) -> Label:
        """The label of a tuple: its stream's policy, what it brings, and where it comes from."""
        label = Label(self._source.policy.roles, self._source.policy.levels, frozenset({self._source.name}))
        try:
            for kind, text in zip(self._source.labels, texts, strict=True):
                label = self._rules.combine(label, READERS[kind](text or ""))
            return self._rules.normal(label)
        except HeadgateError:
            self.unreadable += 1
            return Label(FALSE)

    def _refused(self, row: Mapping[str, object], reason: str) -> Refused:
        return Refused(self._source.name, reason, row)


def _finite(column: pa.Array) -> pa.Array:
    """What is no finite number is NULL, and there is one zero (SPEC.md, 4.1)."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), pc.add(column, pa.scalar(0.0, column.type)), None)
