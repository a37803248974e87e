"""The shares of a running plan: blocks that are dealt alike, with the cells among which their tuples are dealt."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Bools, Ints
from headgate.execution.compile import compile_program, part_of, read_by
from headgate.execution.partitioning import HashPartitioning, together
from headgate.model.query import ContinuousQuery
from headgate.operators.program import LABEL, STREAM, Program
from headgate.plan.binding import LEVEL

_PRIME, _FACTOR = 2_147_483_647, 1_327_217_885
_FINE, _FAR = 1024.0, 2.0**43


@dataclass(frozen=True)
class PartitionGroup:
    """Blocks, the columns they read, and by which keys their tuples are
    partitioned; None: by none, they stay in one partition."""

    deal: HashPartitioning | None
    program: Program
    schema: pa.Schema

    @property
    def name(self) -> str:
        return str(self.deal or "")

    def targets(self) -> frozenset[tuple[str, int]]:
        return frozenset((block.query, block.number) for block in self.program.blocks)

    def partition_numbers(self, table: pa.Table, levels: Mapping[int, str], partitions: int) -> Ints:
        """In which cell each tuple of a table belongs; tuples of streams that the share does not read, in any."""
        numbers = np.zeros(table.num_rows, np.int64)
        streams = table.column(STREAM).to_numpy()
        for stream, column in self.deal.columns if self.deal else ():
            own: Bools = streams == self.program.streams.index(stream)
            chosen = table.filter(pa.array(own))
            numbers[own] = partition_of(self._keys(chosen, stream, column, levels), partitions)
        return numbers

    def _keys(self, table: pa.Table, stream: str, column: str, levels: Mapping[int, str]) -> pa.Array:
        if column != LEVEL:
            return table.column(self.program.columns[stream, column]).combine_chunks()
        labels = table.column(LABEL).combine_chunks().dictionary_encode()
        return pa.array([levels[number] for number in labels.dictionary.to_pylist()], pa.string()).take(labels.indices)


def partition_groups(running: Iterable[ContinuousQuery]) -> tuple[PartitionGroup, ...]:
    """All blocks with windows of these queries, in as few shares as there are ways to deal them. Each share has the
    numbers of streams that all of them together have."""
    queries = list(running)
    program, schema = compile_program(queries)
    blocks = {
        (query.name, number): block
        for query in queries
        for number, block in enumerate(query.query.blocks)
        if not block.stateless
    }
    return tuple(
        PartitionGroup(
            deal, *part_of(program, schema, names, {column for name in names for column in read_by(blocks[name])})
        )
        for deal, names in together(blocks)
    )


def partition_of(keys: pa.Array, partitions: int) -> Ints:
    """A cell for each value, the same in every process: equal values have equal cells, NULL is in the first.

    Every value is a whole number w, and its cell is `pmod(pmod(w, 2147483647L) * 1327217885L, 2147483647L) * cells DIV
    2147483647L`, which no BIGINT makes overflow, and which spreads numbers that follow each other (the factor is the
    golden section of the prime) as well as those with a common factor. So that Spark can deal tuples out itself, just
    as it is done here, w of a key k in Spark SQL is `CAST(k AS BIGINT)` of whole numbers and BOOLEAN,
    `crc32(encode(k, 'UTF-8'))` of a STRING, `unix_micros(k)` of a TIMESTAMP, `unix_date(k)` of a DATE, each with
    COALESCE(..., 0L), and `FLOOR(GREATEST(LEAST(COALESCE(CAST(k AS DOUBLE), 0D), 8796093022208D), -8796093022208D) *
    1024)` of FLOAT and DOUBLE, since LEAST passes over NULL.
    """
    whole = _whole_numbers(keys)
    return np.asarray(np.mod(np.mod(whole, _PRIME) * _FACTOR, _PRIME) * partitions // _PRIME, np.int64)


def _whole_numbers(keys: pa.Array) -> Ints:
    """Equal for equal values (-0.0 is 0.0, an INT is the BIGINT), 0 for NULL."""
    kind = keys.type
    if pa.types.is_string(kind):
        encoded = keys.dictionary_encode()
        sums = [zlib.crc32(text.encode()) for text in encoded.dictionary.to_pylist()]
        places: Ints = encoded.indices.fill_null(len(sums)).to_numpy(zero_copy_only=False)
        return np.array([*sums, 0], np.int64)[places]
    if pa.types.is_floating(kind):
        numbers = keys.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        return np.asarray(np.floor(np.clip(numbers, -_FAR, _FAR) * _FINE), np.int64)
    if pa.types.is_date(kind):
        keys = keys.cast(pa.int32())
    return np.asarray(keys.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
