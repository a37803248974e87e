"""A sink that writes results to any format that Spark can write, given the format's name and options.

All results are rows of one table with the same `COLUMNS`, whatever their queries: `value` is the JSON line that a file
sink would write, and `key` stays the same if a result is written again. A crash can leave results whose writing was not
recorded; they are written again with the same keys, so that a reader who needs each result once can drop duplicates. An
external system may take any time, so no change of rights waits for it: the decision is made when writing begins.
Batches are numbered separately for each subscriber and stream, so numbers reveal nothing of others.
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
"""The row number of a notice, which is written instead of results."""


class SparkSink(Sink):
    """The operator of the engine chooses format and options, because Spark writes with the operator's own rights."""

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
        """Starts a new history with a name of its own. When the state is deleted, numbers begin again under another
        name."""
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
        """Every computed batch gets its number now, whether or not it will be permitted at delivery: fewer results may
        be permitted when they are written again, and their keys must still be the same."""
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
        """The decision is final here; `complete` writes the results as soon as the catalog is no longer held."""
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
                f"cannot write results as `{self._format}`: {kind_of(error)}",
                hint="solve this and run again: nothing is lost",
            ) from None

    def keep(self, now: CatalogSnapshot) -> None:
        """Keeps all numbers: a user who subscribes again must not get the same numbers again."""

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
        """Rejected rows, for the owners of streams; several reasons of one stream form one batch."""
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
