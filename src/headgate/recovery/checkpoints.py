"""Copies of Spark's checkpoints in the state, for a state that more than one machine can reach.

Spark numbers batches in its checkpoint, and the state says which of them are done: one is of no use without the other.
A version holds the few files of each checkpoint from which Spark goes on. They are written once and never changed, so a
version writes only the new ones. A process that continues puts them where its own Spark looks for them.

INVARIANT: a copy is a state that a crash could have left. Spark writes sources, then offsets, then commits; files are
looked for in the opposite order, so that whatever a file depends on is found too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from headgate.recovery.state import StateFolder

_KEPT = 3
"""How many of the last entries of a log are kept: the clock of a batch is looked up two batches later."""


class Checkpoints:
    """The checkpoints in a folder, each in a folder of its own."""

    def __init__(self, folder: Path, states: StateFolder) -> None:
        self._folder, self._states = folder, states
        self._written: dict[str, tuple[str, int]] = {}
        """By the path of a file: the file of the state that holds it, and its size."""

    def save(self, version: int) -> dict[str, list[str | int]]:
        """Writes new files for the next version; returns where all are."""
        found: dict[str, Path] = {}
        if self._folder.exists():
            for checkpoint in sorted(x for x in self._folder.iterdir() if x.is_dir()):
                found |= {str(path.relative_to(self._folder)): path for path in _needed(checkpoint)}
        new: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for name, path in found.items():
            try:
                sizes[name] = path.stat().st_size
                if self._written.get(name, ("", -1))[1] != sizes[name]:
                    new[name] = path.read_text(encoding="utf-8")
                    sizes[name] = path.stat().st_size
            except FileNotFoundError:  # Spark removes old entries
                sizes.pop(name, None)
                new.pop(name, None)
        if new:
            self._states.save_checkpoint(f"{version}", new)
        known = self._written | {name: (f"{version}", sizes[name]) for name in new}
        self._written = {name: known[name] for name in sizes}
        return {name: list(x) for name, x in self._written.items()}

    def restore(self, plain: Mapping[str, list[str | int]]) -> None:
        """Puts the files where Spark looks for them, in place of those that are there."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._written = {name: (str(file), int(size)) for name, (file, size) in plain.items()}
        contents: dict[str, Mapping[str, str]] = {}
        for name, (file, _) in self._written.items():
            if file not in contents:
                contents[file] = self._states.checkpoint(file)
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_text(contents[file][name], encoding="utf-8")


def _needed(checkpoint: Path) -> Iterator[Path]:
    for log in ("commits", "offsets"):
        yield from _numbered(checkpoint / log)[-_KEPT:]
    for source in sorted((checkpoint / "sources").glob("*")):
        entries = _numbered(source)
        whole = max((n for n, path in enumerate(entries) if path.suffix == ".compact"), default=0)
        yield from entries[whole:]
    if (checkpoint / "metadata").exists():
        yield checkpoint / "metadata"


def _numbered(log: Path) -> list[Path]:
    found = [
        path for path in log.glob("*") if path.name.partition(".")[0].isdigit() and path.suffix in ("", ".compact")
    ]
    return sorted(found, key=lambda path: (int(path.name.partition(".")[0]), path.name))
