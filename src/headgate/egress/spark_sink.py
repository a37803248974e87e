"""A sink that writes results to any format that Spark can write, given the format's name and options.

All results are rows of one table with the same `COLUMNS`, whatever their queries: `value` is the JSON line that a file
sink would write, and `key` stays the same if a result is written again. A crash can leave results whose writing was not
recorded; they are written again with the same keys, so that a reader who needs each result once can drop duplicates. An
external system may take any time, so no change of rights waits for it: the decision is made when writing begins.
Results are numbered one by one, separately for each subscriber and stream, so numbers reveal nothing of others, and not
where batches end.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

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
        "number": pa.int64(),
        "time": pa.timestamp("us", "UTC"),
        "label": pa.string(),
        "value": pa.string(),
    }
)


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
        self._words = Counter[str]()
        self._begin()

    def _begin(self) -> None:
        """Starts a new history with a name of its own. When the state is deleted, numbers begin again under another
        name."""
        self._history = secrets.token_hex(8)
        self._numbers: dict[str, tuple[int, int]] = {}
        """How many results and how many notices have a number, by place."""
        self._begun: dict[str, tuple[int, int]] = {}
        """The same before the batch in delivery."""

    def state(self, results: Sequence[ResultBatch] = (), rejected: Sequence[RejectedRows] = ()) -> dict[str, Any]:  # noqa: ARG002
        return {self.name: {"history": self._history, "numbers": dict(self._numbers), "begun": dict(self._begun)}}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:  # noqa: ARG002
        known = states.get(self.name)
        if known is None:
            self._begin()
        else:
            self._history = known["history"]
            self._numbers = {place: (rows, words) for place, (rows, words) in known["numbers"].items()}
            self._begun = {place: (rows, words) for place, (rows, words) in known["begun"].items()}

    def stage(self, version: int, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows] = ()) -> None:  # noqa: ARG002
        """Every computed result gets its number now, whether or not it will be permitted at delivery: fewer results may
        be permitted when they are written again, and their keys must still be the same."""
        coming = [(address_of(self._addresses, x, name).path, x) for x in results for name in x.subscribers]
        sizes = [(path, len(x), int(bool(x.word))) for path, x in coming]
        sizes += [(self._addresses.of_rejected(x.stream), len(rejected_lines(x)), 0) for x in rejected]
        self._begun = {place: self._numbers.get(place, (0, 0)) for place in (file_path(path) for path, _, _ in sizes)}
        for path, rows, words in sizes:
            before = self._numbers.get(file_path(path), (0, 0))
            self._numbers[file_path(path)] = before[0] + rows, before[1] + words

    def staged(self, version: int) -> list[ResultBatch]:  # noqa: ARG002
        return []

    def prepare(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows], *, as_staged: bool) -> None:  # noqa: ARG002
        self._words = Counter[str]()
        self._ready = [
            self._results(name, result_batch) for result_batch in results for name in result_batch.subscribers
        ]
        self._ready += self._rejected(rejected)

    def publish(self, verify: Verify) -> None:
        """The decision is final here; `complete` writes the results as soon as the catalog is no longer held."""
        verify()

    def complete(self) -> None:
        tables, self._ready = self._ready, []
        if not tables:
            return
        try:
            frame = frame_of(self._spark(), pa.concat_tables(tables).combine_chunks()).coalesce(1)
            self._shaped(frame).write.format(self._format).options(**self._options).mode("append").save()
        except Exception as error:
            raise StoreError(
                f"cannot write results as `{self._format}`: {kind_of(error)}",
                hint="solve this and run again: nothing is lost",
            ) from None

    def _shaped(self, frame: DataFrame) -> DataFrame:
        """The rows as the format takes them."""
        return frame

    def _place(self, path: tuple[str, ...], size: int) -> dict[str, pa.Array]:  # noqa: ARG002
        """Further columns of as many rows: where the format puts what belongs to this path."""
        return {}

    def retain(self, now: CatalogSnapshot) -> None:
        """Keeps all numbers: a user who subscribes again must not get the same numbers again."""

    def _results(self, subscriber: str, result_batch: ResultBatch) -> pa.Table:
        address = address_of(self._addresses, result_batch, subscriber)
        lines = lines_of(result_batch, address)
        places = np.arange(len(result_batch)) if result_batch.places is None else result_batch.places
        numbers: list[int | None] = (places + self._begun[file_path(address.path)][0] + 1).tolist()
        times = pa.array(result_batch.times, pa.timestamp("ms", "UTC"))
        labels = pa.array(shown_kinds(result_batch.kinds, address.named), pa.string()).take(
            pa.array(result_batch.labels)
        )
        if result_batch.word:
            numbers, times, labels = [None], pa.nulls(1, times.type), pa.nulls(1, labels.type)
        who = (address.path[0], address.level, address.stream or address.path[-1])
        return self._table(address.path, who, numbers, times, labels, lines)

    def _rejected(self, rejected: Sequence[RejectedRows]) -> list[pa.Table]:
        """Rejected rows, for the owners of streams."""
        by_stream: dict[str, list[str]] = {}
        for part in rejected:
            by_stream.setdefault(part.stream, []).extend(rejected_lines(part))
        tables = []
        for stream, lines in by_stream.items():
            path, size = self._addresses.of_rejected(stream), len(lines)
            nothing = pa.nulls(size, pa.string())
            before = self._begun[file_path(path)][0]
            numbers = list(range(before + 1, before + size + 1))
            tables.append(self._table(path, (path[0], "", path[-1]), numbers, nothing, nothing, lines))
        return tables

    def _table(
        self,
        path: tuple[str, ...],
        who: tuple[str, str, str],
        numbers: Sequence[int | None],
        times: pa.Array,
        labels: pa.Array,
        lines: list[str],
    ) -> pa.Table:
        place, size = file_path(path), len(lines)
        columns = [
            [f"{self._history}/{place}/{self._notice(place) if x is None else x}" for x in numbers],
            *([word] * size for word in who),
            numbers,
            times.cast(COLUMNS.field("time").type),
            labels,
            lines,
        ]
        arrays = [pa.array(x, field.type) for x, field in zip(columns, COLUMNS, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=COLUMNS)
        for name, column in self._place(path, size).items():
            table = table.append_column(name, column)
        return table

    def _notice(self, place: str) -> str:
        """The key of the next notice of this batch at a place. Notices are numbered apart from results."""
        self._words[place] += 1
        return f"notice {self._begun[place][1] + self._words[place]}"
