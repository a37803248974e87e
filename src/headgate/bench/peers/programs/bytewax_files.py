"""Parquet for bytewax, which has no connector of its own for it: a source and a sink."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

FLUSH = 100_000  # rows of one reader that are written together

Convert = Callable[[pa.RecordBatch], list[Any]]


class Part(StatefulSourcePartition):
    """Some files, in order, a batch at a time; its state is the number of batches read."""

    def __init__(self, files: list[str], columns: list[str], size: int, convert: Convert, done: int) -> None:
        batches = (
            batch for file in files for batch in pq.ParquetFile(file).iter_batches(batch_size=size, columns=columns)
        )
        for _ in range(done):
            next(batches)
        self._batches, self._convert, self._done = batches, convert, done

    def next_batch(self) -> Iterable[Any]:
        batch = next(self._batches)  # its StopIteration tells bytewax that the part has ended
        self._done += 1
        return self._convert(batch)

    def snapshot(self) -> int:
        return self._done


class Files(FixedPartitionedSource):
    """Each part is read in order, different parts at the same time."""

    def __init__(self, parts: list[list[str]], columns: list[str], size: int, convert: Convert) -> None:
        self._parts = {f"{number:03}": files for number, files in enumerate(parts)}
        self._columns, self._size, self._convert = columns, size, convert

    def list_parts(self) -> list[str]:
        return list(self._parts)

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:  # noqa: ARG002
        return Part(self._parts[for_part], self._columns, self._size, self._convert, resume_state or 0)


class Writers(StatelessSinkPartition):
    """One worker's files: one for each reader who has results on this worker."""

    def __init__(self, out: Path, readers: list[str], schema: pa.Schema, worker: int) -> None:
        self._out, self._readers, self._schema, self._worker = out, readers, schema, worker
        self._rows: list[list[Any]] = [[] for _ in readers]
        self._writers: dict[int, pq.ParquetWriter] = {}

    def write_batch(self, items: list[Any]) -> None:
        """Items are (position of the reader, row), or (position, table) where whole batches are handled."""
        for reader, row in items:
            rows = self._rows[reader]
            if isinstance(row, pa.RecordBatch):
                self._writer(reader).write_batch(row)
                continue
            rows.append(row)
            if len(rows) >= FLUSH:
                self._flush(reader)

    def close(self) -> None:
        for reader, rows in enumerate(self._rows):
            if rows:
                self._flush(reader)
        for writer in self._writers.values():
            writer.close()

    def _flush(self, reader: int) -> None:
        columns = zip(*self._rows[reader], strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer(reader).write_batch(pa.record_batch(arrays, self._schema))
        self._rows[reader] = []

    def _writer(self, reader: int) -> pq.ParquetWriter:
        if reader not in self._writers:
            folder = self._out / f"reader={self._readers[reader]}"
            folder.mkdir(parents=True, exist_ok=True)
            self._writers[reader] = pq.ParquetWriter(folder / f"part-{self._worker}.parquet", self._schema)
        return self._writers[reader]


class ReaderFiles(DynamicSink):
    """Every worker writes its own results."""

    def __init__(self, out: str, readers: list[str], columns: dict[str, str]) -> None:
        self._out, self._readers = Path(out), readers
        self._schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns.items()])

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Writers:  # noqa: ARG002
        return Writers(self._out, self._readers, self._schema, worker_index)
