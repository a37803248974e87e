"""The folders of levels, and the operating-system users who may open them.

    levels/               everybody may pass, nobody may list
      levels.json         the number of each level and of each log
      0/  1/  ...         one for each level
        own/              of the processor: its state
        queue/            what the shepherd hands to it; it can only read
        outlet/           what the server keeps about its results; the server's alone
        names.json        the names of streams that it knows; the server's alone
      logs/0/  1/  ...    kernelized: the log of a level, for the processors of levels that dominate it

Where processors have no users of their own, everything is closed to all users but the server's.

The home folder above is closed to everybody but the server, so only processors get here, from the folder that they are
started in. INVARIANT: the server writes nothing into a folder that a processor may change: a link there could lead it
anywhere.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path

from headgate.labels import Level, parse_level

_FIRST, _HOMES, _EACH = 1_879_100_000, 200_000, 1_000
"""Numbers of users that no system gives out (systemd leaves them unused), how many home folders share them out, and
how many each has: half for levels, half for logs."""


@dataclass(frozen=True)
class Identity:
    """The operating-system user of a level, and the groups of the logs that it may read; None: the server's user."""

    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()


class LevelFolders:
    """`apart`: whether each level gets a user of its own; None: if this process may do that."""

    def __init__(self, folder: Path, *, apart: bool | None = None) -> None:
        self.folder = folder
        self._apart = os.geteuid() == 0 if apart is None else apart
        self._first = _FIRST + zlib.crc32(str(folder.resolve()).encode()) % _HOMES * _EACH
        self._lock = threading.RLock()
        self._made(folder, 0o711)
        self._made(folder / "logs", 0o711)
        self._list = folder / "levels.json"
        known = json.loads(self._list.read_text()) if self._list.exists() else {}
        self._levels: dict[str, int] = known.get("levels", {})
        self._logs: dict[str, int] = known.get("logs", {})

    @property
    def levels(self) -> list[str]:
        """The levels that have a folder, as text."""
        return list(self._levels)

    def number(self, level: Level) -> int:
        """The number of a level, which stays the same."""
        return self._number(self._levels, str(level))

    def log(self, levels: frozenset[Level]) -> int:
        """The number of the log of tuples with these levels. It is there when this returns."""
        with self._lock:
            number = self._number(self._logs, json.dumps(sorted(map(str, levels))))
            if not self.log_folder(number).exists():
                new = self._made(self.folder / "logs" / f"{number}~", 0o750)
                self._given(new, group=self._log_group(number))
                new.rename(self.log_folder(number))
            return number

    def logs(self) -> dict[int, frozenset[Level]]:
        """The levels of the tuples in each log."""
        return {number: frozenset(map(parse_level, json.loads(text))) for text, number in self._logs.items()}

    def log_folder(self, number: int) -> Path:
        return self.folder / "logs" / str(number)

    def of(self, level: Level) -> Path:
        """The folder of a level, with the folders in it."""
        number = self.number(level)
        folder = self._made(self.folder / str(number), 0o711)
        if not (folder / "own").exists():
            new = self._made(folder / "own~", 0o700)
            self._given(new, user=self._group(number), group=self._group(number))
            new.rename(folder / "own")
        self._given(self._made(folder / "queue", 0o750), group=self._group(number))
        return folder

    def identity(self, level: Level, logs: frozenset[int] = frozenset()) -> Identity:
        """`logs` are those that the processor may read."""
        if not self._apart:
            return Identity()
        number = self._group(self.number(level))
        return Identity(number, number, tuple(sorted(map(self._log_group, logs))))

    def close_to_others(self, file: Path, level: Level | None = None, log: int | None = None) -> None:
        """Lets the processor of a level, or those that may read a log, read a file, and nobody else."""
        group = self._group(self.number(level)) if level is not None else self._log_group(log or 0)
        self._given(file, group=group)
        file.chmod(0o640 if self._apart else 0o600)

    def _group(self, number: int) -> int:
        return self._first + number

    def _log_group(self, number: int) -> int:
        return self._first + _EACH // 2 + number

    def _made(self, folder: Path, mode: int) -> Path:
        """Processors that are not users of their own need no right that the server does not have."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode if self._apart else 0o700)
        return folder

    def _given(self, path: Path, *, user: int = -1, group: int) -> None:
        if self._apart:
            os.chown(path, user, group, follow_symlinks=False)

    def _number(self, known: dict[str, int], name: str) -> int:
        with self._lock:
            return known[name] if name in known else self._new_number(known, name)

    def _new_number(self, known: dict[str, int], name: str) -> int:
        if len(known) >= _EACH // 2:
            raise OSError(f"there are more than {_EACH // 2} levels with a processor of their own")
        known[name] = len(known)
        new = self._list.with_name("levels.json~")
        with open(new, "w") as file:
            file.write(json.dumps({"levels": self._levels, "logs": self._logs}))
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._list)
        return known[name]
