"""A sink for what only the owners of streams receive: rejected rows, and what becomes of subscriptions to their
streams."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headgate.egress.sinks import FileSink, file_name
from headgate.egress.version_results import is_for_subscriber
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch

_TAIL = 4 << 20
"""Bytes at the end of a file in which its last lines are looked for."""


MOST = 16 << 20
"""Bytes of one file, from which on its older half is removed."""


class OwnerFiles(FileSink):
    def stage(self, version: int, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows] = ()) -> None:
        super().stage(version, results, rejected)
        for path in [path for path, size in self._sizes.items() if size > MOST]:
            self._halve(path)

    def _halve(self, path: str) -> None:
        """Before the version is committed: its state records the new size. The newest lines stay whole whenever this is
        interrupted, because they are moved to where older ones are."""
        here = self._folder.file(path, make=False)
        with self._folder.reporting(path), suppress(FileNotFoundError), here as file, self._folder.change():
            kept = os.pread(file, MOST // 2, max(0, os.fstat(file).st_size - MOST // 2))
            kept = kept[kept.find(b"\n") + 1 :]
            os.pwrite(file, kept, 0)
            os.ftruncate(file, len(kept))
            os.fsync(file)
            self._sizes[path] = len(kept)

    def state(self, results: Sequence[ResultBatch] = (), rejected: Sequence[RejectedRows] = ()) -> dict[str, Any]:
        return super().state(_for_owners(results), rejected)

    def prepare(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows], *, as_staged: bool) -> None:
        super().prepare(_for_owners(results), rejected, as_staged=as_staged)


def _for_owners(results: Sequence[ResultBatch]) -> list[ResultBatch]:
    return [x for x in results if not is_for_subscriber(x)]


def last_lines(folder: Path, path: tuple[str, ...], most: int) -> list[Any]:
    """The newest lines of an owner's file, oldest first."""
    try:
        with open(folder / file_name(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = os.pread(file.fileno(), _TAIL, max(0, size - _TAIL))
    except FileNotFoundError:
        return []
    lines = content.split(b"\n")[:-1]
    whole = lines if size <= _TAIL else lines[1:]
    return [json.loads(line) for line in whole[-most:]]
