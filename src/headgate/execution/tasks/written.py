"""Results in files, on their way from the tasks that computed them to those that put them into a reader's order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.columns.narrow import above, offsets, widened
from headgate.columns.sorting import Ints
from headgate.model.results import BlockResults, Written
from headgate.storage import Storage

WORTH_IT = 10_000
"""From so many results on they are written: fewer pass the driver in less time than a job takes."""


_KEYS = "keys"


def file_name(key: str, number: int) -> str:
    """`key` is that of an attempt; it begins with its run."""
    return f"{key}-results-{number}.arrow"


def is_results_of(run: str, file: str) -> bool:
    return file.startswith(f"{run}-") and "-results-" in file


def to_file(storage: Storage, file: str, results: BlockResults) -> BlockResults:
    """Write results to a file that need not survive a crash: it is read in the same batch. Their sets of labels stay,
    with how often each occurs."""
    numbers = {"labels": widened(results.labels), "time": results.time}
    # mostly the first key is the time itself
    numbers |= {f"order{x}": key for x, key in enumerate(results.order) if key is not results.time}
    narrow = {name: offsets(column) for name, column in numbers.items()}
    columns = {name: pa.array(distances) for name, (_, distances) in narrow.items()}
    columns |= {f"value{x}": column for x, column in enumerate(results.values)}
    least = {name: str(first) for name, (first, _) in narrow.items()}
    table = pa.table(columns).replace_schema_metadata(least | {_KEYS: str(len(results.order))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    storage.write(file, sink.getvalue(), durable=False)
    counts = np.bincount(numbers["labels"], minlength=len(results.sets))
    nothing = np.empty(0, np.int64)
    place = Written(storage, file, tuple(counts.tolist()))
    return replace(results, time=nothing, values=(), labels=nothing, order=(), written=place)


def read_back(results: BlockResults) -> BlockResults:
    """The results themselves, wherever they are."""
    found = opened(results)
    return results if found is None else found.rows(0, len(results))


def opened(results: BlockResults) -> WrittenRows | None:
    """What is in the file of results; None if they are in none."""
    place = results.written
    if place is None:
        return None
    return WrittenRows(results, pa.ipc.open_file(place.storage.read(place.file)).read_all())


class WrittenRows:
    """Results in a file. Only what is asked for is brought back to 64 bits."""

    def __init__(self, results: BlockResults, table: pa.Table) -> None:
        self._results = results
        self._table = table
        self._known = {name.decode(): int(value) for name, value in table.schema.metadata.items()}

    def times(self) -> Ints:
        return self._numbers("time", self._table)

    def rows(self, first: int, end: int) -> BlockResults:
        """The results from place `first` to before place `end`."""
        table, known = self._table.slice(first, end - first), self._known
        time, names = self._numbers("time", table), [f"order{x}" for x in range(known[_KEYS])]
        return replace(
            self._results,
            time=time,
            values=tuple(table.column(x).combine_chunks() for x in table.column_names if x.startswith("value")),
            labels=self._numbers("labels", table),
            order=tuple(self._numbers(name, table) if name in known else time for name in names),
            written=None,
        )

    def _numbers(self, name: str, table: pa.Table) -> Ints:
        return above(self._known[name], table.column(name).to_numpy())
