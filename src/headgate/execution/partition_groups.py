"""Partition groups: the blocks of a running plan that are partitioned by the same keys, and the hash function that
assigns their tuples to partitions."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Bools, Ints
from headgate.execution.compile import compile_program, read_by, subprogram
from headgate.execution.partitioning import HashPartitioning, together
from headgate.model.query import ContinuousQuery
from headgate.operators.program import LABEL, STREAM, Program
from headgate.plan.reserved import LEVEL

_PRIME, _FACTOR = 2_147_483_647, 1_327_217_885
_FINE, _FAR = 1024.0, 2.0**43


@dataclass(frozen=True)
class PartitionGroup:
    """Blocks that are partitioned alike.

    partitioning: the key column of each stream; None if there is none, and all tuples stay in one partition
    program: the blocks of the group
    schema: the columns that these blocks read
    """

    partitioning: HashPartitioning | None
    program: Program
    schema: pa.Schema

    @property
    def name(self) -> str:
        return str(self.partitioning or "")

    def targets(self) -> frozenset[tuple[str, int]]:
        return frozenset((block.query, block.number) for block in self.program.blocks)

    def partition_numbers(self, table: pa.Table, levels: Mapping[int, str], partitions: int) -> Ints:
        """The partition number of each tuple of a table. Tuples of streams that the group does not read may be in
        any."""
        numbers = np.zeros(table.num_rows, np.int64)
        streams = table.column(STREAM).to_numpy()
        for stream, column in self.partitioning.columns if self.partitioning else ():
            own: Bools = streams == self.program.streams.index(stream)
            if len(own) and own.all():
                return partition_of(self._keys(table, stream, column, levels), partitions)
            if own.any():
                chosen = table.filter(pa.array(own))
                numbers[own] = partition_of(self._keys(chosen, stream, column, levels), partitions)
        return numbers

    def _keys(self, table: pa.Table, stream: str, column: str, levels: Mapping[int, str]) -> pa.Array:
        if column != LEVEL:
            return table.column(self.program.columns[stream, column]).combine_chunks()
        labels = table.column(LABEL).combine_chunks().dictionary_encode()
        return pa.array([levels[number] for number in labels.dictionary.to_pylist()], pa.string()).take(labels.indices)


def partition_groups(running: Iterable[ContinuousQuery]) -> tuple[PartitionGroup, ...]:
    """Put the windowed blocks of these queries into as few partition groups as possible. Every group uses the stream
    numbers of the whole program."""
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
            partitioning,
            *subprogram(program, schema, names, {column for name in names for column in read_by(blocks[name])}),
        )
        for partitioning, names in together(blocks)
    )


def partition_of(keys: pa.Array, partitions: int) -> Ints:
    """Assign each value to a partition, the same in every process: equal values have equal partitions, NULL is in the
    first.

    Every value is mapped to a whole number w. Its partition is `pmod(pmod(w, 2147483647L) * 1327217885L, 2147483647L) *
    partitions DIV 2147483647L`. No BIGINT makes this overflow, and it spreads consecutive numbers (the factor is the
    golden section of the prime) as well as numbers with a common factor.

    The mapping can be written in Spark SQL, so that Spark can partition tuples in exactly the same way. For a key k, w
    is

    - `COALESCE(CAST(k AS BIGINT), 0L)` for whole numbers and BOOLEAN,
    - `COALESCE(crc32(encode(k, 'UTF-8')), 0L)` for STRING, `COALESCE(crc32(k), 0L)` for BINARY,
    - `COALESCE(unix_micros(k), 0L)` for TIMESTAMP, `COALESCE(unix_date(k), 0L)` for DATE,
    - `FLOOR(GREATEST(LEAST(COALESCE(CAST(k AS DOUBLE), 0D), 8796093022208D), -8796093022208D) * 1024)` for FLOAT and
      DOUBLE; the COALESCE is innermost because LEAST ignores NULL.
    """
    whole = _whole_numbers(keys)
    return np.asarray(np.mod(np.mod(whole, _PRIME) * _FACTOR, _PRIME) * partitions // _PRIME, np.int64)


def _whole_numbers(keys: pa.Array) -> Ints:
    """Map values to whole numbers: equal for equal values (-0.0 and 0.0, an INT and the same BIGINT), 0 for NULL."""
    kind = keys.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        encoded = keys.dictionary_encode()
        sums = [zlib.crc32(data) for data in encoded.dictionary.cast(pa.binary()).to_pylist()]
        places: Ints = encoded.indices.fill_null(len(sums)).to_numpy(zero_copy_only=False)
        return np.array([*sums, 0], np.int64)[places]
    if pa.types.is_floating(kind):
        numbers = keys.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        return np.asarray(np.floor(np.clip(numbers, -_FAR, _FAR) * _FINE), np.int64)
    if pa.types.is_date(kind):
        keys = keys.cast(pa.int32())
    return np.asarray(keys.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
