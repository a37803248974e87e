"""Detects files that change after they were read, and source folders that disappear.

Spark reads a file once, by its name, and reports nothing if it grows later or if its folder is gone: tuples would be
missing silently. Spark's log beside its checkpoint lists the files that were read, with their modification times. Only
local files are checked.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headgate.errors import SourceError
from headgate.ingress.text_files import shown

MOST = 10_000
"""Files of a stream that are checked: the ones read last."""


def vanished(stream: str, path: str | None) -> SourceError | None:
    """An error if the source path of a stream is gone. Paths that are not local, or have a glob, are not checked."""
    if path is None or (here := local_path(path)) is None or any(x in here for x in "*?[{") or os.path.exists(here):
        return None
    return SourceError(f"cannot read stream {stream} any further: `{here}` is missing")


def local_path(path: str) -> str | None:
    """The path on this machine; None if the source is elsewhere."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    return parts.path if parts.scheme else path


class ReadFiles:
    """The files that were read of one stream, from Spark's log in the folder of its checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._log = checkpoint / "sources" / "0"
        self._known: set[str] = set()
        self._times: dict[str, int] = {}

    def changed(self) -> list[str]:
        """The files that changed since they were read, or since this method last returned them."""
        self._follow()
        found = []
        for path, time in self._times.items():
            with suppress(OSError):
                now = os.stat(path).st_mtime_ns // 1_000_000
                if now > time:
                    found.append(path)
                    self._times[path] = now
        return found

    def _follow(self) -> None:
        there = [x for x in self._log.glob("*") if not x.name.startswith(".")]
        self._known &= {x.name for x in there}  # Spark removes old ones
        new = [x for x in there if x.name not in self._known]
        for file in sorted(new, key=lambda x: int(x.name.partition(".")[0])):
            with suppress(OSError, ValueError, KeyError, TypeError):  # Spark may change the format
                for line in file.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    address = urlsplit(entry["path"])
                    if address.scheme == "file" and not address.netloc:
                        self._times.setdefault(unquote(address.path), int(entry["timestamp"]))
            self._known.add(file.name)
        for path in list(self._times)[: max(0, len(self._times) - MOST)]:
            del self._times[path]


def changed_message(path: str) -> str:
    return (
        f"file `{shown(path)}` changed after it was read: what it holds now is not read; write new tuples to new files"
    )
