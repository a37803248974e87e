"""The state of a processor on disk: one folder for each version, written whole and then named; the newest one counts.

A batch is done when the folder of its version has its name. Whatever is interrupted before that leaves the version
before it, and is done again from there; nothing is read that was not finished.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.engine.kernels.cell import Cell, Class
from headgate.errors import StoreError

KEPT = 2
_TUPLES, _HELD, _REST = "tuples.arrow", "held.arrow", "state.json"


@dataclass(frozen=True)
class Saved:
    """What a processor needs to go on: its cell, and everything else as plain JSON."""

    version: int
    cell: Cell
    rest: Mapping[str, Any]


class StateFolder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for unfinished in folder.glob("*.new"):
            shutil.rmtree(unfinished)

    def versions(self) -> list[int]:
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())

    def newest(self) -> Saved | None:
        versions = self.versions()
        return self._load(versions[-1]) if versions else None

    def save(self, saved: Saved) -> None:
        """Afterwards this version is the newest, whatever happens."""
        target, new = self._folder / f"{saved.version:015}", self._folder / f"{saved.version:015}.new"
        new.mkdir(mode=0o700)
        held = _held_table(saved.cell)
        classes = [{"views": list(c.views), "last": dict(c.last)} for c in saved.cell.classes]
        _write(new / _TUPLES, _ipc(saved.cell.table))
        _write(new / _HELD, _ipc(held))
        _write(new / _REST, json.dumps({"classes": classes, "rest": dict(saved.rest)}).encode())
        _sync(new)
        new.rename(target)
        _sync(self._folder)
        for version in self.versions()[:-KEPT]:
            shutil.rmtree(self._folder / f"{version:015}")

    def _load(self, version: int) -> Saved:
        folder = self._folder / f"{version:015}"
        try:
            table, held = _read(folder / _TUPLES), _read(folder / _HELD)
            whole = json.loads((folder / _REST).read_text())
        except (OSError, ValueError, pa.ArrowException):
            raise StoreError(f"the state in `{folder}` is damaged", hint="restore it, or start without it") from None
        return Saved(version, Cell(table, _classes(whole["classes"], held)), whole["rest"])


def _held_table(cell: Cell) -> pa.Table:
    parts = [(number, key, places) for number, c in enumerate(cell.classes) for key, places in c.held.items()]
    sizes = [len(places) for _, _, places in parts]
    places = np.concatenate([np.empty(0, np.int64), *(held for _, _, held in parts)])
    return pa.table(
        {
            "class": pa.array(np.repeat([number for number, _, _ in parts], sizes), pa.int32()),
            "window": pa.array(np.repeat(np.array([key for _, key, _ in parts], object), sizes), pa.string()),
            "place": pa.array(places, pa.int64()),
        }
    )


def _classes(plain: list[dict[str, Any]], held: pa.Table) -> tuple[Class, ...]:
    found: list[dict[str, list[int]]] = [{} for _ in plain]
    columns = (held.column(name).to_pylist() for name in ("class", "window", "place"))
    for number, window, place in zip(*columns, strict=True):
        found[number].setdefault(window, []).append(place)
    return tuple(
        Class(tuple(x["views"]), {key: np.array(places, np.int64) for key, places in windows.items()}, x["last"])
        for x, windows in zip(plain, found, strict=True)
    )


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _read(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.BufferReader(path.read_bytes())).read_all()


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
