"""Splits of a batch of files: each is read by a task of its own, which opens its files itself. The driver only asks for
the sizes of files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from headgate.errors import SourceError
from headgate.ingress.parquet_reader import (
    MOST,
    Files,
    decoded_rows,
    in_order_of_time,
    kinds_of,
    local_paths,
    opened_paths,
)
from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.spark_reader import DecodedBatch
from headgate.ingress.text_files import local_file, read_files
from headgate.ingress.text_formats import Text
from headgate.model.stream import StreamDescriptor

TARGET = 8 << 20
"""The size of a split, in bytes, as far as files and row groups allow."""


@dataclass(frozen=True)
class Split:
    """Some files, in order of arrival; or a part of one Parquet file: of its row groups those from `part / parts` to
    `(part + 1) / parts`.

    number: its place in the order of arrival
    text: how its files are read if they are CSV or JSON lines
    size: about how many bytes it has
    """

    number: int
    paths: tuple[str, ...]
    part: int = 0
    parts: int = 1
    size: int = 0
    text: Text | None = None

    def decoded(
        self, descriptor: StreamDescriptor, pushdown: Pushdown, now: int, register: RegisterLabels
    ) -> DecodedBatch | None:
        """Reads its tuples; None: it must be read whole, or has labels that are not known, which are registered."""
        with suppress(SourceError, OSError):
            if self.text is not None:
                whole = read_files(self.text, [local_file(path) for path in self.paths])
                if whole.notes:
                    return None
                table = _labels_as_kinds(whole.table, descriptor)
                return decoded_rows(table, descriptor, pushdown, now, register, whole.rejected)
            files = self._files(descriptor)
            return None if files is None else files.decoded(pushdown, now, register)
        return None

    def label_texts(self, descriptor: StreamDescriptor) -> list[tuple[str | None, ...]]:
        """The different texts that the labels of its tuples are read from; none if it cannot be read."""
        with suppress(SourceError, OSError):
            if self.text is not None:
                table = _labels_as_kinds(read_files(self.text, [local_file(x) for x in self.paths]).table, descriptor)
                return kinds_of([table.column(name) for name in descriptor.labels.values()])[0]
            files = self._files(descriptor)
            return [] if files is None else files.label_texts()
        return []

    def _files(self, descriptor: StreamDescriptor) -> Files | None:
        """Opens its Parquet files; None if Arrow cannot read them as the stream needs them."""
        found = opened_paths(descriptor, self.paths)
        if found is None or self.parts == 1:
            return found
        count = found.opened[0].metadata.num_row_groups
        groups = range(self.part * count // self.parts, (self.part + 1) * count // self.parts)
        return Files(descriptor, found.opened, found.paths, groups=[list(groups)])


def _labels_as_kinds(table: pa.Table, descriptor: StreamDescriptor) -> pa.Table:
    """The table with its label columns as dictionaries."""
    for name in dict.fromkeys(descriptor.labels.values()):
        number = table.schema.get_field_index(name)
        table = table.set_column(number, name, table.column(number).dictionary_encode())
    return table


def splits_of(addresses: Sequence[str], text: Text | None = None) -> list[Split] | None:
    """The splits of files by their addresses, as Spark writes them, in order of arrival; None if tasks cannot read
    them. Files are Parquet unless `text` says how to read them."""
    here = local_paths(addresses)
    if here is None or (text is None and any("=" in path for path, _ in here)):
        return None
    paths, notes = in_order_of_time(here)
    statuses = [os.stat(path) for path in paths]
    if notes or not all(stat.S_ISREG(x.st_mode) for x in statuses):
        return None
    found: list[Split] = []
    for some, size in _together(paths, [x.st_size for x in statuses]):
        parts = 1 if text is not None or len(some) > 1 else max(1, -(-size // TARGET))
        found += [Split(len(found) + part, some, part, parts, size // parts, text) for part in range(parts)]
    return found


def _together(paths: Sequence[str], sizes: Sequence[int]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Consecutive files that are small enough to be read together, and their size."""
    some: list[str] = []
    whole = 0
    for path, size in zip(paths, sizes, strict=True):
        if some and (whole + size > TARGET or len(some) >= MOST):
            yield tuple(some), whole
            some, whole = [], 0
        some.append(path)
        whole += size
    if some:
        yield tuple(some), whole


class Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sized)


def balanced(splits: Sequence[S], cores: int) -> list[list[S]]:
    """The splits of each task, which are equally large as far as splits allow; no task for each core if there is little
    to read."""
    tasks = max(1, min(len(splits), cores, -(-sum(split.size for split in splits) // TARGET)))
    found, sizes = [list[S]() for _ in range(tasks)], [0] * tasks
    for split in sorted(splits, key=lambda x: -x.size):
        least = sizes.index(min(sizes))
        found[least].append(split)
        sizes[least] += split.size
    return found
