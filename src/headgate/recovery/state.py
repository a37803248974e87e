"""The engine's state: versions, each committed by one manifest that names all files it needs.

What a version writes follows what its batch changed: the tuples that came and are held, as segments; new labels;
results that are not out yet. Everything else is small and stands in the manifest, with the records of all partitions
(`Partition.save` in `operators/partition.py`).

INVARIANT: a batch is committed when the manifest of its version is there. An interruption before that leaves the
previous version, from which the batch is done again. Only files that a kept manifest names count; all others are
removed.

Versions are numbered so that no two processes write the same one: each begins above the first number of its epoch
(`headgate.fencing`). A process that was replaced may still finish writing a version; its number is below those of its
successor, and does not count, because the successor has recorded first which version it goes on from (its base).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from headgate.errors import StoreError
from headgate.execution.partitions import PartitionName
from headgate.labels import Label
from headgate.labels.plain import labels_of, plain_labels
from headgate.model.results import Recipient, ResultBatch
from headgate.operators.partition_state import StoredPartition, files_of
from headgate.storage import LocalStorage, Storage, read_table, write_table

FORMAT = 6
"""The format of the state. Every change of what is written here or in what is saved raises it."""
KEPT = 2
_MANIFEST, _SEGMENT, _RESULTS = "manifest-{:015}.json", "segment-{:015}-{}.arrow", "results-{:015}.arrows"
_OUT, _TABLE, _LABELS = "out-{:015}.json", "table-{}.arrow", "labels-{}.json"
_BASE, _CHECKPOINT = "base-{:015}.json", "checkpoint-{}.json"
OF_EPOCH = 1_000_000_000
"""How many versions an epoch has room for."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Saved:
    """What an engine needs to continue.

    partitions: the record of each partition, which names its segments
    rest: everything else, as plain values
    results: the results of the version
    """

    version: int
    partitions: Mapping[PartitionName, Mapping[str, Any]]
    rest: Mapping[str, Any]
    results: Sequence[ResultBatch] = ()


class StateFolder:
    """The versions in a storage, or in a folder. `epoch` is that of this process; `check` raises Fenced when it is
    over."""

    def __init__(self, place: Storage | Path, epoch: int = 0, check: Callable[[], None] = lambda: None) -> None:
        self._epoch, self._check = epoch, check
        self._storage = LocalStorage(place, together=True) if isinstance(place, Path) else place
        self._old = place if isinstance(place, Path) else None
        self._next = (0, 0)
        self._files: dict[int, set[str]] = {}
        """The files that each kept version needs."""
        self._uncommitted: set[str] = set()
        """Files that were written since the last version."""
        self._fault: StoreError | None = None
        try:
            self._open(self._storage.names())
        except StoreError as error:  # nothing is removed and nothing written, so that nothing is lost
            self._fault = error

    def _open(self, names: Sequence[str]) -> None:
        if self._old is not None and any(x.name.isdigit() for x in self._old.iterdir() if x.is_dir()):
            self._check_format(3)  # before format 4, each version was a folder
        for version in self._counting(names)[-KEPT:]:
            whole = self._manifest(version)
            self._check_format(whole.get("format", 1) if "rest" in whole else FORMAT)
            self._files[version] = self._reading(_MANIFEST.format(version), partial(_named, version, whole))
        delivered = max((int(name[4:19]) for name in names if name.startswith("out-")), default=0)
        if delivered > max(self._files, default=0):  # its manifest was there
            self._manifest(delivered)
        if self._epoch:
            base = json.dumps({"version": max(self._files, default=None)}).encode()
            self._writing(lambda: self._storage.commit(self._base, base))
        self._check()  # a successor may have begun from another version, and needs files that this one does not
        self._collect(names)

    def _counting(self, names: Sequence[str]) -> list[int]:
        """The newest version that counts, and those before it of the same process, in order."""
        versions = sorted(map(_version, filter(_is_manifest, names)))
        bases = sorted(int(name[5:20]) for name in names if name.startswith("base-") and name.endswith(".json"))
        newest = max(versions, default=None)
        if bases and (newest is None or bases[-1] > newest):  # its process has committed nothing
            name = _BASE.format(bases[-1])
            newest = self._reading(name, lambda: json.loads(self._storage.read(name).to_pybytes())["version"])
        if newest is None:
            return []
        return [x for x in versions if x < newest and x // OF_EPOCH == newest // OF_EPOCH] + [newest]

    @property
    def _base(self) -> str:
        return _BASE.format(self._epoch * OF_EPOCH)

    @property
    def next(self) -> int:
        """The number of the next version."""
        return max(max(self._files, default=0), self._epoch * OF_EPOCH) + 1

    def versions(self) -> list[int]:
        return sorted(self._files)

    # Reading ----------------------------------------------------------------------------------------------------------

    def newest(self) -> Saved | None:
        if self._fault is not None:
            raise self._fault
        if not self._files:
            return None
        version = max(self._files)
        whole = self._manifest(version)
        return self._reading(_MANIFEST.format(version), lambda: self._saved(version, whole))

    def _saved(self, version: int, whole: Mapping[str, Any]) -> Saved:
        partitions = {(x["group"], x["number"]): x["record"] for x in whole["partitions"]}
        for name in (name for record in partitions.values() for name in files_of(record)):
            self._reading(name, partial(_opened, self._storage, name))
        content = self._storage.read(_RESULTS.format(version)).to_pybytes() if whole["results"] else b""
        return Saved(version, partitions, whole["rest"], _result_batches(whole["results"], content))

    def stored(self, partitions: Mapping[PartitionName, Mapping[str, Any]]) -> dict[PartitionName, StoredPartition]:
        """Partitions of a kept version, with their segments."""
        return {name: StoredPartition(record, self._read) for name, record in partitions.items()}

    def out(self, version: int) -> Mapping[str, Any] | None:
        """The state of the sinks after the results of this version; None if these may not be out."""
        try:
            noted: Mapping[str, Any] = json.loads(self._storage.read(_OUT.format(version)).to_pybytes())
            return noted["sinks"]  # type: ignore[no-any-return]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def labels(self, file: str) -> dict[int, Label]:
        def read() -> dict[int, Label]:
            plain = json.loads(self._storage.read(_LABELS.format(file)).to_pybytes())
            return dict(zip(plain["numbers"], labels_of(plain), strict=True))

        return self._reading(_LABELS.format(file), read)

    def table(self, file: str) -> pa.Table:
        return self._read(_TABLE.format(file))

    def read(self, name: str) -> pa.Table:
        """A table that `write` has written for a kept version."""
        return self._read(name)

    def checkpoint(self, file: str) -> dict[str, str]:
        name = _CHECKPOINT.format(file)
        return self._reading(name, lambda: dict(json.loads(self._storage.read(name).to_pybytes())))

    def _read(self, name: str) -> pa.Table:
        return self._reading(name, lambda: read_table(self._storage, name))

    def _manifest(self, version: int) -> Mapping[str, Any]:
        name = _MANIFEST.format(version)

        def read() -> Mapping[str, Any]:
            whole = json.loads(self._storage.read(name).to_pybytes())
            return dict(whole)

        return self._reading(name, read)

    def _reading(self, name: str, read: Callable[[], Found]) -> Found:
        try:
            return read()
        except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
            hint = "put back a copy of the whole folder above it, or read everything again with --fresh"
            raise StoreError(f"cannot read the state in `{self._storage}/{name}`: it is damaged", hint=hint) from None

    def _check_format(self, found: object) -> None:
        if isinstance(found, int) and found != FORMAT:
            older = "an older" if found < FORMAT else "a newer"
            raise StoreError(
                f"cannot read the state in `{self._storage}`: {older} version of Headgate wrote it "
                f"(format {found}, this version reads {FORMAT})",
                hint="use that version, or read everything again with --fresh",
            )

    # Writing ----------------------------------------------------------------------------------------------------------

    def write(self, table: pa.Table) -> str:
        """Writes a table for the next version; returns its name."""
        version, number = self.next, self._next[1]
        number = number if self._next[0] == version else 0
        self._next = version, number + 1
        name = _SEGMENT.format(version, number)
        self._writing(lambda: write_table(self._storage, name, table))
        self._uncommitted.add(name)
        return name

    def save(self, saved: Saved) -> None:
        """Writes a version; afterwards it is the newest, even after a crash. Raises Fenced if another process has taken
        over; then it does not count."""
        if self._fault is not None:
            raise self._fault
        results = [_ipc(_result_table(x)) for x in saved.results]
        records = [{"group": name[0], "number": name[1], "record": x} for name, x in saved.partitions.items()]
        plain = [_plain_results(x, len(size)) for x, size in zip(saved.results, results, strict=True)]
        whole = {"format": FORMAT, "partitions": records, "rest": dict(saved.rest), "results": plain}
        if results:
            self._write(_RESULTS.format(saved.version), b"".join(results))
        content, name = json.dumps(whole).encode(), _MANIFEST.format(saved.version)
        if not self._writing(lambda: self._storage.commit(name, content)):
            raise StoreError(
                f"cannot write version {saved.version} of the state to `{self._storage}`: another process wrote it",
                hint="end all other processes that work there, and run again: nothing is lost",
            )
        self._check()
        before = set[str]().union(self._uncommitted, {self._base}, *self._files.values())
        self._files[saved.version] = _named(saved.version, whole)
        self._files = dict(sorted(self._files.items())[-KEPT:])
        self._uncommitted.clear()
        self._collect(before)

    def clear(self) -> None:
        """Deletes all versions. What a process that was replaced still commits does not count."""
        self._files, self._fault = {}, None
        base = json.dumps({"version": None}).encode()
        self._storage.delete([self._base])
        self._writing(lambda: self._storage.commit(self._base, base))  # the disk has it before anything else is deleted
        self._check()
        self._collect(self._storage.names())

    def note_out(self, version: int, sinks: Mapping[str, Any]) -> None:
        """Records that the results of this version are out, and the state from which sinks continue. If the record is
        lost they are delivered again, so nothing waits for the disk."""
        content = json.dumps({"sinks": sinks}).encode()
        self._writing(lambda: self._storage.write(_OUT.format(version), content, durable=False))

    def save_table(self, file: str, table: pa.Table) -> None:
        """Writes the content of a table under this name, for later versions."""
        self._write(_TABLE.format(file), _ipc(table))

    def save_labels(self, file: str, labels: Mapping[int, Label]) -> None:
        """Writes labels by number under this name, for later versions."""
        plain = {"numbers": list(labels)} | plain_labels(labels.values())
        self._write(_LABELS.format(file), json.dumps(plain).encode())

    def save_checkpoint(self, file: str, contents: Mapping[str, str]) -> None:
        """Writes files of Spark's checkpoints under this name, for later versions."""
        self._write(_CHECKPOINT.format(file), json.dumps(contents).encode())

    def _write(self, name: str, content: bytes) -> None:
        self._writing(lambda: self._storage.write(name, content))
        self._uncommitted.add(name)

    def _writing(self, write: Callable[[], Found]) -> Found:
        with self._reporting():
            return write()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._check()  # a successor removes what this process has not finished
            raise StoreError(
                f"cannot write the state to `{self._storage}`: {error.strerror}",
                hint="solve this and run again: nothing is lost",
            ) from None

    def _collect(self, names: Sequence[str] | set[str]) -> None:
        """Removes those of these files that no kept version needs."""
        begun = max(self._files, default=0) > self._epoch * OF_EPOCH
        needed = set[str]().union(() if begun else {self._base}, *self._files.values())
        with self._reporting():
            self._storage.delete(sorted(set(names) - needed))


def _opened(storage: Storage, name: str) -> None:
    """Checks that a table can be read, without reading it."""
    pa.ipc.open_file(storage.read(name))


def _is_manifest(name: str) -> bool:
    return name.startswith("manifest-") and name.endswith(".json")


def _version(manifest: str) -> int:
    return int(manifest.removeprefix("manifest-").removesuffix(".json"))


def _named(version: int, whole: Mapping[str, Any]) -> set[str]:
    """All files of a version, with its manifest."""
    rest = whole["rest"]
    return {
        _MANIFEST.format(version),
        _RESULTS.format(version),
        _OUT.format(version),
        *(name for x in whole["partitions"] for name in files_of(x["record"])),
        *(_TABLE.format(file) for file in rest.get("tables", {}).values()),
        *(_LABELS.format(file) for file in rest.get("labels", {}).get("files", ())),
        *(_CHECKPOINT.format(file) for file, _ in rest.get("checkpoints", {}).values()),
        *(_LABELS.format(file) for file in rest.get("live", {}).get("labels", ())),
        *rest.get("live", {}).get("files", ()),
    }


def _result_table(result_batch: ResultBatch) -> pa.Table:
    known = [pa.array(x, pa.int64()) for x in (result_batch.blocks, result_batch.times, result_batch.labels)]
    arrays = [*known, *result_batch.values]
    return pa.table(arrays, names=[str(number) for number in range(len(arrays))])


def _plain_results(result_batch: ResultBatch, size: int) -> dict[str, Any]:
    kinds, names = plain_labels(result_batch.kinds), list(result_batch.subscribers)
    found = {"subscribers": names, "query": result_batch.query, "kinds": kinds, "size": size, "word": result_batch.word}
    found |= {} if result_batch.place is None else {"place": result_batch.place}
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
        batch = ResultBatch(names, x["query"], blocks, times, arrays, labels, kinds, outgoing=out, **words)
        found.append(replace(batch, place=x.get("place")))
    if begin != len(content):
        raise ValueError("there is more than there should be")
    return found


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
