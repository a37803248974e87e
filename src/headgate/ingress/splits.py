"""Splits of a batch of Parquet files: each is read by a task of its own, which opens the file itself. The driver only
asks for the sizes of files."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from headgate.errors import SourceError
from headgate.ingress.parquet_reader import Files, in_order_of_time, local_paths, opened_paths
from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.spark_reader import DecodedBatch
from headgate.model.stream import StreamDescriptor

TARGET = 8 << 20
"""The size of a split, in bytes, as far as row groups allow."""


@dataclass(frozen=True)
class Split:
    """A part of a file: of its row groups those from `part / parts` to `(part + 1) / parts`. `number` is its place in
    the order of arrival, `size` about how many bytes it has."""

    number: int
    path: str
    part: int
    parts: int
    size: int = 0

    def files(self, descriptor: StreamDescriptor) -> Files | None:
        """Opens its file; None if Arrow cannot read it as the stream needs it."""
        found = opened_paths(descriptor, [self.path])
        if found is None:
            return None
        count = found.opened[0].metadata.num_row_groups
        groups = range(self.part * count // self.parts, (self.part + 1) * count // self.parts)
        return Files(descriptor, found.opened, found.paths, groups=[list(groups)])

    def decoded(
        self, descriptor: StreamDescriptor, pushdown: Pushdown, now: int, register: RegisterLabels
    ) -> DecodedBatch | None:
        """Reads its tuples; None: it must be read whole, or has labels that are not known, which are registered."""
        with suppress(SourceError, OSError):
            files = self.files(descriptor)
            return None if files is None else files.decoded(pushdown, now, register)
        return None


def splits_of(addresses: Sequence[str]) -> list[Split] | None:
    """The splits of files by their addresses, as Spark writes them, in order of arrival; None if tasks cannot read
    them."""
    here = local_paths(addresses)
    if here is None or any("=" in path for path, _ in here):
        return None
    paths, notes = in_order_of_time(here)
    found: list[Split] = []
    for path in paths:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        parts = max(1, -(-status.st_size // TARGET))
        found += [Split(len(found) + part, path, part, parts, status.st_size // parts) for part in range(parts)]
    return None if notes else found


def tasks_for(splits: Sequence[Split], cores: int) -> int:
    """How many tasks read these splits: small ones are read together, and all cores have equally many tasks."""
    wanted = -(-sum(split.size for split in splits) // TARGET)
    return max(1, min(len(splits), -(-wanted // cores) * cores))
