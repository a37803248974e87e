"""The engine's state on disk: one folder for each version, written completely and then renamed; the newest counts.

INVARIANT: a batch is committed when the folder of its version has its final name. An interruption before that leaves
the previous version, from which the batch is done again; an unfinished folder is never read.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from headgate.errors import StoreError
from headgate.execution.partitions import PartitionName, PartitionStates
from headgate.labels import Label
from headgate.labels.plain import labels_of, plain_labels
from headgate.model.results import Recipient, ResultBatch
from headgate.operators.partition import PartitionState, ViewGroup

FORMAT = 3
"""The format of the state. Every change of what is written here or in what is saved raises it."""
KEPT = 2
_TUPLES, _HELD, _RESULTS, _REST = "tuples{}.arrow", "held.arrow", "results.arrows", "state.json"
_OUT, _TABLES, _LABELS = "out.json", "tables", "labels"


@dataclass(frozen=True)
class Saved:
    """What an engine needs to continue: its partition states, everything else as plain JSON, and the results of the
    version."""

    version: int
    partitions: PartitionStates
    rest: Mapping[str, Any]
    results: Sequence[ResultBatch] = ()


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
        """Writes a version; afterwards it is the newest, even after a crash."""
        with self._reporting():
            self._save(saved)

    def note_out(self, version: int, sinks: Mapping[str, Any]) -> None:
        """Records that the results of this version are out, and the state from which sinks continue. If the record is
        lost they are delivered again, so nothing waits for the disk."""
        new = self._folder / f"{_OUT}~"
        with self._reporting():
            with _opened(new) as file:
                file.write(json.dumps({"version": version, "sinks": sinks}).encode())
            new.rename(self._folder / _OUT)

    def save_table(self, file: str, table: pa.Table) -> None:
        """Writes the content of a table under this name, for later versions."""
        folder = self._folder / _TABLES
        with self._reporting():
            folder.mkdir(exist_ok=True, mode=0o700)
            _write(folder / file, _ipc(table))
            _sync(folder)

    def save_labels(self, file: str, labels: Mapping[int, Label]) -> None:
        """Writes labels by number under this name, for later versions."""
        plain = {"numbers": list(labels)} | plain_labels(labels.values())
        folder = self._folder / _LABELS
        with self._reporting():
            folder.mkdir(exist_ok=True, mode=0o700)
            _write(folder / file, json.dumps(plain).encode())
            _sync(folder)

    def labels(self, file: str) -> dict[int, Label]:
        try:
            plain = json.loads((self._folder / _LABELS / file).read_text())
            return dict(zip(plain["numbers"], labels_of(plain), strict=True))
        except (OSError, ValueError, LookupError, TypeError):
            raise self._damaged(self._folder / _LABELS / file) from None

    def forget_labels(self, kept: Collection[str]) -> None:
        """Removes all files of labels except these."""
        with self._reporting():
            for path in (self._folder / _LABELS).glob("*"):
                if path.name not in kept:
                    path.unlink()

    def table(self, file: str) -> pa.Table:
        try:
            return _read(self._folder / _TABLES / file)
        except (OSError, ValueError, pa.ArrowException):
            raise self._damaged(self._folder / _TABLES / file) from None

    def forget_tables(self, kept: set[str]) -> None:
        """Removes all files of tables except these."""
        with self._reporting():
            for path in (self._folder / _TABLES).glob("*"):
                if path.name not in kept:
                    path.unlink()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot write the state to `{self._folder}`: {error.strerror}",
                hint="solve this and run again: nothing is lost",
            ) from None

    def _check_format(self, found: object) -> None:
        if isinstance(found, int) and found != FORMAT:
            older = "an older" if found < FORMAT else "a newer"
            raise StoreError(
                f"cannot read the state in `{self._folder}`: {older} version of Headgate wrote it "
                f"(format {found}, this version reads {FORMAT})",
                hint="use that version, or read everything again with --fresh",
            )

    def _damaged(self, path: Path) -> StoreError:
        hint = "put back a copy of the whole folder above it, or read everything again with --fresh"
        return StoreError(f"cannot read the state in `{path}`: it is damaged", hint=hint)

    def out(self, version: int) -> Mapping[str, Any] | None:
        """The state of the sinks after the results of this version; None if these may not be out."""
        try:
            noted = json.loads((self._folder / _OUT).read_text())
            return noted["sinks"] if noted["version"] == version else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _save(self, saved: Saved) -> None:
        target, new = self._folder / f"{saved.version:015}", self._folder / f"{saved.version:015}.new"
        new.mkdir(mode=0o700)
        groups: dict[str, list[int]] = {}
        partitions = list(saved.partitions.items())
        for number, ((group, _), _) in enumerate(partitions):
            groups.setdefault(group, []).append(number)
        for number, own in enumerate(groups.values()):  # partitions of a group share their columns, and so one file
            _write_table(new / _TUPLES.format(number), pa.concat_tables([partitions[x][1].table for x in own]))
        _write_table(new / _HELD, _held_table([partition for _, partition in partitions]))
        plain = [_plain_partition(*partition) for partition in partitions]
        _write(new / _RESULTS, b"".join(written := [_ipc(_result_table(x)) for x in saved.results]))
        result_batches = [_plain_results(x, len(size)) for x, size in zip(saved.results, written, strict=True)]
        whole = {"format": FORMAT, "cells": plain, "rest": dict(saved.rest), "results": result_batches}
        _write(new / _REST, json.dumps(whole).encode())
        _sync(new)
        new.rename(target)
        _sync(self._folder)
        for version in self.versions()[:-KEPT]:
            shutil.rmtree(self._folder / f"{version:015}")

    def _load(self, version: int) -> Saved:
        folder = self._folder / f"{version:015}"
        try:
            whole, held = json.loads((folder / _REST).read_text()), _read(folder / _HELD)
            self._check_format(whole.get("format", 1) if "rest" in whole else FORMAT)
            groups = dict.fromkeys(partition["share"] for partition in whole["cells"])
            tables = {group: _read(folder / _TUPLES.format(number)) for number, group in enumerate(groups)}
            results = _result_batches(whole["results"], (folder / _RESULTS).read_bytes())
            classes = _classes(whole["cells"], held)
            partitions, begins = {}, dict.fromkeys(groups, 0)
            for partition, own in zip(whole["cells"], classes, strict=True):
                group, size = partition["share"], partition["size"]
                partitions[group, partition["number"]] = PartitionState(
                    tables[group].slice(begins[group], size).combine_chunks(), own
                )
                begins[group] += size
            return Saved(version, partitions, whole["rest"], results)
        except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
            raise self._damaged(folder) from None


def _plain_partition(name: PartitionName, partition: PartitionState) -> dict[str, Any]:
    classes = [{"views": list(c.views), "last": dict(c.last)} for c in partition.classes]
    return {"share": name[0], "number": name[1], "size": partition.table.num_rows, "classes": classes}


def _held_table(partitions: Sequence[PartitionState]) -> pa.Table:
    parts = [
        (at, number, key, places)
        for at, partition in enumerate(partitions)
        for number, c in enumerate(partition.classes)
        for key, places in c.held.items()
    ]
    sizes = [len(places) for *_, places in parts]
    places = np.concatenate([np.empty(0, np.int64), *(held for *_, held in parts)])
    return pa.table(
        {
            "cell": pa.array(np.repeat([at for at, *_ in parts], sizes), pa.int32()),
            "class": pa.array(np.repeat([number for _, number, _, _ in parts], sizes), pa.int32()),
            "window": pa.array(np.repeat(np.array([key for _, _, key, _ in parts], object), sizes), pa.string()),
            "place": pa.array(places, pa.int64()),
        }
    )


def _classes(partitions: list[dict[str, Any]], held: pa.Table) -> list[tuple[ViewGroup, ...]]:
    """The view groups of each partition."""
    found: list[list[dict[str, list[int]]]] = [[{} for _ in partition["classes"]] for partition in partitions]
    columns = (held.column(name).to_pylist() for name in ("cell", "class", "window", "place"))
    for at, number, window, place in zip(*columns, strict=True):
        found[at][number].setdefault(window, []).append(place)
    return [
        tuple(
            ViewGroup(
                tuple(x["views"]), {key: np.array(places, np.int64) for key, places in windows.items()}, x["last"]
            )
            for x, windows in zip(partition["classes"], own, strict=True)
        )
        for partition, own in zip(partitions, found, strict=True)
    ]


def _result_table(result_batch: ResultBatch) -> pa.Table:
    known = [pa.array(x, pa.int64()) for x in (result_batch.blocks, result_batch.times, result_batch.labels)]
    arrays = [*known, *result_batch.values]
    return pa.table(arrays, names=[str(number) for number in range(len(arrays))])


def _plain_results(result_batch: ResultBatch, size: int) -> dict[str, Any]:
    kinds, names = plain_labels(result_batch.kinds), list(result_batch.subscribers)
    found = {"subscribers": names, "query": result_batch.query, "kinds": kinds, "size": size, "word": result_batch.word}
    return found | ({"outgoing": plain_outgoing(result_batch.outgoing)} if result_batch.outgoing else {})


def plain_outgoing(out: Recipient) -> list[Any]:
    return [out.user, out.level, out.stream, list(out.columns), sorted(out.roles)]


def outgoing_of(plain: list[Any]) -> Recipient:
    user, level, stream, columns, roles = plain
    return Recipient(user, level, stream, tuple(columns), frozenset(roles))


def _result_batches(plain: list[dict[str, Any]], content: bytes) -> list[ResultBatch]:
    found, begin = [], 0
    for x in plain:
        table = pa.ipc.open_file(pa.BufferReader(content[begin : begin + x["size"]])).read_all()
        begin += x["size"]
        (blocks, times, labels), values = (c.to_numpy() for c in table.columns[:3]), table.columns[3:]
        kinds = tuple(labels_of(x["kinds"]))
        arrays = tuple(column.combine_chunks() for column in values)
        out = outgoing_of(x["outgoing"]) if "outgoing" in x else None
        names, words = tuple(x["subscribers"]), x["word"]
        found.append(ResultBatch(names, x["query"], blocks, times, arrays, labels, kinds, outgoing=out, **words))
    if begin != len(content):
        raise ValueError("there is more than there should be")
    return found


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _read(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.BufferReader(path.read_bytes())).read_all()


def _opened(path: Path) -> BinaryIO:
    """Opens a new file that only this user may read; removes any that had this name."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _write(path: Path, content: bytes) -> None:
    with _opened(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _write_table(path: Path, table: pa.Table) -> None:
    """Writes directly from memory, without a copy: state may be large."""
    with _opened(path) as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
