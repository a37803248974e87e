"""Results in files, on their way from the tasks that computed them to those that put them into a reader's order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.columns.narrow import widened
from headgate.model.results import BlockResults, Written
from headgate.storage import Storage

WORTH_IT = 10_000
"""From so many results on they are written: fewer pass the driver in less time than a job takes."""


def file_name(key: str, number: int) -> str:
    """`key` is that of an attempt; it begins with its run."""
    return f"{key}-results-{number}.arrow"


def is_results_of(run: str, file: str) -> bool:
    return file.startswith(f"{run}-") and "-results-" in file


def to_file(storage: Storage, file: str, results: BlockResults) -> BlockResults:
    """Write results to a file that need not survive a crash: it is read in the same batch. Their sets of labels stay,
    with how often each occurs."""
    columns = [results.labels, results.time, *results.order]
    names = ["labels", "time", *(f"order{x}" for x in range(len(results.order)))]
    names += [f"value{x}" for x in range(len(results.values))]
    table = pa.table([*map(pa.array, columns), *results.values], names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    storage.write(file, sink.getvalue(), durable=False)
    counts = np.bincount(widened(results.labels), minlength=len(results.sets))
    nothing = np.empty(0, np.int64)
    place = Written(storage, file, tuple(counts.tolist()))
    return replace(results, time=nothing, values=(), labels=nothing, order=(), written=place)


def read_back(results: BlockResults) -> BlockResults:
    """The results themselves, wherever they are."""
    if results.written is None:
        return results
    place = results.written
    table = pa.ipc.open_file(place.storage.read(place.file)).read_all()
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    numbers = {name: x.to_numpy() for name, x in columns.items() if not name.startswith("value")}
    return replace(
        results,
        time=numbers["time"],
        values=tuple(x for name, x in columns.items() if name.startswith("value")),
        labels=numbers["labels"],
        order=tuple(x for name, x in numbers.items() if name.startswith("order")),
        written=None,
    )
