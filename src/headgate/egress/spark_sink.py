"""Results into whatever Spark can write to, by the name of a format and its options.

All results are rows of one table with the same `COLUMNS`, whatever their queries: the line that a file would have is
the `value`, and the `key` is one that a result keeps if it has to be written again. A crash may leave results whose
writing was not noted; they are written once more with the same keys, so that whoever must have them once can drop what
repeats. How long somebody else's system takes nobody knows, so no right waits for it: what is written is decided about
when the writing begins. Batches are numbered for each subscriber and stream apart: numbers tell nobody of others.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.egress.sinks import Addresses, Sink, Verify, address_of, file_path, lines_of, rejected_lines, shown_kinds
from headgate.errors import StoreError
from headgate.ingress.sources import kind_of
from headgate.ingress.spark import frame_of
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot

COLUMNS = pa.schema(
    {
        "key": pa.string(),
        "user": pa.string(),
        "level": pa.string(),
        "stream": pa.string(),
        "batch": pa.int64(),
        "row": pa.int64(),
        "time": pa.timestamp("us", "UTC"),
        "label": pa.string(),
        "value": pa.string(),
    }
)
WORD = -1
"""The row of what is said instead of results."""


class SparkSink(Sink):
    """Which format and which options is decided by whoever runs the engine, as its own rights are used."""

    name = "spark"
    keeps = False

    def __init__(
        self, spark: Callable[[], SparkSession], format_: str, options: Mapping[str, str], addresses: Addresses
    ) -> None:
        self._spark = spark
        self._format = format_
        self._options = options
        self._addresses = addresses
        self._ready: list[pa.Table] = []
        self._begin()

    def _begin(self) -> None:
        """With a name of its own for all that is written until the state is forgotten: then numbers begin anew."""
        self._history = secrets.token_hex(8)
        self._numbers: dict[str, int] = {}

    def state(self, results: Sequence[ResultBatch] = (), refused: Sequence[RejectedRows] = ()) -> dict[str, Any]:  # noqa: ARG002
        return {self.name: {"history": self._history, "numbers": dict(self._numbers)}}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:  # noqa: ARG002
        known = states.get(self.name)
        if known is None:
            self._begin()
        else:
            self._history, self._numbers = known["history"], dict(known["numbers"])

    def stage(self, version: int, results: Sequence[ResultBatch], refused: Sequence[RejectedRows] = ()) -> None:  # noqa: ARG002
        """Everything that was computed gets its number now, permitted or not when it goes out: what is permitted may be
        less when it is written once more, and must not be taken for something else."""
        paths = {address_of(self._addresses, x, name).path for x in results for name in x.subscribers}
        for place in map(file_path, paths | {self._addresses.of_refused(x.stream) for x in refused}):
            self._numbers[place] = self._numbers.get(place, 0) + 1

    def staged(self, version: int) -> list[ResultBatch]:  # noqa: ARG002
        return []

    def prepare(self, results: Sequence[ResultBatch], refused: Sequence[RejectedRows], *, as_staged: bool) -> None:  # noqa: ARG002
        self._ready = [
            self._results(name, result_batch) for result_batch in results for name in result_batch.subscribers
        ]
        self._ready += self._refused(refused)

    def publish(self, verify: Verify) -> None:
        """It is decided; what is decided is written as soon as rights are not held any more."""
        verify()

    def complete(self) -> None:
        tables, self._ready = self._ready, []
        if not tables:
            return
        try:
            frame = frame_of(self._spark(), pa.concat_tables(tables).combine_chunks()).coalesce(1)
            frame.write.format(self._format).options(**self._options).mode("append").save()
        except Exception as error:
            raise StoreError(
                f"results cannot be written as `{self._format}` ({kind_of(error)})",
                hint="see to that and run again: nothing is lost",
            ) from None

    def keep(self, now: CatalogSnapshot) -> None:
        """Numbers stay known: whoever subscribes again must not use them again."""

    def _results(self, subscriber: str, result_batch: ResultBatch) -> pa.Table:
        address = address_of(self._addresses, result_batch, subscriber)
        lines = lines_of(result_batch, address)
        rows = np.arange(len(result_batch)) if result_batch.places is None else result_batch.places
        times = pa.array(result_batch.times, pa.timestamp("ms", "UTC"))
        labels = pa.array(shown_kinds(result_batch.kinds, address.named), pa.string()).take(
            pa.array(result_batch.labels)
        )
        if result_batch.word:
            rows, times, labels = np.array([WORD]), pa.nulls(1, times.type), pa.nulls(1, labels.type)
        who = (address.path[0], address.level, address.stream or address.path[-1])
        return self._table(address.path, who, rows.tolist(), times, labels, lines)

    def _refused(self, refused: Sequence[RejectedRows]) -> list[pa.Table]:
        """For the owners of streams; several reasons of one stream are one batch."""
        by_stream: dict[str, list[str]] = {}
        for part in refused:
            by_stream.setdefault(part.stream, []).extend(rejected_lines(part))
        tables = []
        for stream, lines in by_stream.items():
            path, size = self._addresses.of_refused(stream), len(lines)
            nothing = pa.nulls(size, pa.string())
            tables.append(self._table(path, (path[0], "", path[-1]), list(range(size)), nothing, nothing, lines))
        return tables

    def _table(
        self,
        path: tuple[str, ...],
        who: tuple[str, str, str],
        rows: list[int],
        times: pa.Array,
        labels: pa.Array,
        lines: list[str],
    ) -> pa.Table:
        place, size = file_path(path), len(lines)
        batch = self._numbers[place]
        columns = [
            [f"{self._history}/{place}/{batch}/{row}" for row in rows],
            *([word] * size for word in who),
            [batch] * size,
            rows,
            times.cast(COLUMNS.field("time").type),
            labels,
            lines,
        ]
        arrays = [pa.array(x, field.type) for x, field in zip(columns, COLUMNS, strict=True)]
        return pa.Table.from_arrays(arrays, schema=COLUMNS)
