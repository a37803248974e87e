"""A sink of Parquet files: each batch adds one file for each subscriber and query that has results in it.

A batch is written to a staging folder, which readers do not use, before it is committed, and is linked to its final
place at delivery: so results are written once, however many they are. Files are numbered for each reader separately, so
that numbers reveal nothing of others. An index beside the staged files says whose they are, not the files themselves,
because queries are numbered among all objects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.egress.folder import ResultFolder, known_file, new_file
from headgate.egress.sinks import Address, Addresses, FileSink, Sink, Verify, file_path, shown_kinds
from headgate.errors import StoreError
from headgate.labels.plain import labels_of, plain_labels
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot

_STAGED = ".staged"
_MAGIC = b"PAR1"
_TIME, _LABEL, _BLOCK = "headgate_time", "headgate_label", "headgate_block"
_REPEATED = [_LABEL, _BLOCK]


class ParquetSink(Sink):
    """Notices and rejected rows go to files of JSON lines, as in `FileSink`."""

    keeps = True

    def __init__(self, folder: Path, addresses: Addresses) -> None:
        self._folder = ResultFolder(folder)
        self.place = str(folder)
        self._addresses = addresses
        self._lines = FileSink(self._folder, addresses)
        self._numbers: dict[str, int] = {}
        self._staged: dict[tuple[str, str], str] = {}
        self._ready: dict[tuple[str, str], str] = {}
        with self._folder.reporting(_STAGED), self._folder.inside(_STAGED):
            pass

    @property
    def name(self) -> str:
        return f"parquet {self._folder.name}"

    def claim(self, owner: str) -> None:
        self._folder.claim(owner)

    def let_go(self) -> None:
        self._folder.let_go()

    def warnings(self) -> list[str]:
        return self._lines.warnings()

    def state(self, results: Sequence[ResultBatch] = (), refused: Sequence[RejectedRows] = ()) -> dict[str, Any]:
        coming = (self._place(name, x.query) for x in results if not x.word for name in x.subscribers)
        beginning = dict.fromkeys(coming, 0)
        return {self.name: beginning | self._numbers, **self._lines.state([x for x in results if x.word], refused)}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        """Removes everything of the batch in delivery except its staged files."""
        self._numbers = dict(states.get(self.name) or {})
        for place, number in self._numbers.items():
            here = self._folder.inside(place, make=False)
            with self._folder.reporting(place), suppress(FileNotFoundError), here as folder:
                gone = _clear(folder, number)
                bad = _damaged(folder)
                if out:
                    self._warn(place, gone, "was not written here, and is removed")
                self._warn(place, bad, "is not what was written: it was cut or changed")
        self._lines.restore(states, out=out)

    def _warn(self, place: str, names: Sequence[str], what: str) -> None:
        self._folder.warnings += [f"the file of results `{place}/{x}` in `{self.place}` {what}" for x in names]

    # Before a batch is committed
    # Before a batch is committed --------------------------------------------------------------------------------------

    def stage(self, version: int, results: Sequence[ResultBatch], refused: Sequence[RejectedRows] = ()) -> None:  # noqa: ARG002
        if self._folder.was_replaced():
            self._numbers = {}
            self._lines.begin_anew()
        self._staged = {}
        work: list[tuple[pa.Table, ResultBatch, str]] = []
        for result_batch in (x for x in results if not x.word):
            tables: dict[frozenset[str] | None, pa.Table] = {}
            for subscriber in result_batch.subscribers:
                address = self._addresses.of(subscriber, result_batch.query)
                if address.named not in tables:
                    tables[address.named] = _table(result_batch, address)
                table = tables[address.named]
                name = f"{version:015}-{len(work)}.parquet"
                self._staged[subscriber, result_batch.query] = name
                work.append((table, result_batch, name))
        with self._folder.reporting(_STAGED), self._folder.inside(_STAGED) as here:
            for old in os.listdir(here):
                os.unlink(old, dir_fd=here)
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(lambda x: _write(x[0], x[1], x[2], here), work))
            _note(_index(version), [(name, *key) for key, name in self._staged.items()], here)

    def staged(self, version: int) -> list[ResultBatch]:
        """After a restart: the results staged for a committed version."""
        with self._folder.reporting(_STAGED), self._folder.inside(_STAGED) as here:
            noted = _noted(_index(version), here, self.place)
            result_batches = [
                _result_batch(_read(name, here), _read_labels(name, here), subscriber, query)
                for name, subscriber, query in noted
            ]
        self._staged = {(subscriber, query): name for name, subscriber, query in noted}
        return result_batches

    # Delivery
    # Delivery ---------------------------------------------------------------------------------------------------------

    def prepare(self, results: Sequence[ResultBatch], refused: Sequence[RejectedRows], *, as_staged: bool) -> None:
        """`as_staged`: every staged file as it is; otherwise only these results. Staged files stay unchanged, because
        rights may have to be applied to them again."""
        self._ready = dict(self._staged)
        if not as_staged:
            with self._folder.reporting(_STAGED), self._folder.inside(_STAGED) as waiting:
                self._leave(results, waiting)
        self._lines.prepare([x for x in results if x.word], refused, as_staged=False)

    def _leave(self, results: Sequence[ResultBatch], waiting: int) -> None:
        allowed = {
            (name, result_batch.query): result_batch
            for result_batch in results
            if not result_batch.word
            for name in result_batch.subscribers
        }
        self._ready = {key: f"left-{name}" for key, name in self._ready.items() if key in allowed}
        for key, name in self._ready.items():
            _write(_table(allowed[key], self._addresses.of(*key)), allowed[key], name, waiting)

    def publish(self, verify: Verify) -> None:
        with self._folder.reporting(_STAGED), self._folder.inside(_STAGED) as waiting:
            for key, name in list(self._ready.items()):
                verify()
                place = self._place(*key)
                with self._folder.reporting(place), self._folder.inside(place) as here:
                    self._let_out(place, here, name, waiting)
                del self._ready[key], self._staged[key]
        self._lines.publish(verify)

    def complete(self) -> None:
        self._staged, self._ready = {}, {}
        self._lines.complete()

    def _let_out(self, place: str, here: int, name: str, waiting: int) -> None:
        """Links a staged file to its place; the staged file stays until the next batch. A file with a number that was
        never assigned is not ours, or belonged to a state that was deleted."""
        number = self._numbers.get(place, 0) + 1
        if number == 1:
            _clear(here, 0)
        target = f"{number:09}.parquet"
        with suppress(FileNotFoundError):
            os.unlink(target, dir_fd=here)
        os.link(name, target, src_dir_fd=waiting, dst_dir_fd=here, follow_symlinks=False)
        self._numbers[place] = number

    def keep(self, now: CatalogSnapshot) -> None:
        """Keeps all numbers, as `FileSink` keeps the sizes of files."""

    def _place(self, subscriber: str, query: str) -> str:
        return file_path(self._addresses.of(subscriber, query).path)


def _table(result_batch: ResultBatch, address: Address) -> pa.Table:
    kinds = pa.array(shown_kinds(result_batch.kinds, address.named), pa.string())
    labels = pa.DictionaryArray.from_arrays(pa.array(result_batch.labels.astype(np.int32)), kinds)
    times = pa.array(result_batch.times, pa.timestamp("ms", "UTC"))
    own = {_TIME: times, _LABEL: labels, _BLOCK: pa.array(result_batch.blocks.astype(np.int8))}
    return pa.table([*own.values(), *result_batch.values], names=[*own, *address.columns])


def _index(version: int) -> str:
    return f"{version:015}.json"


def _note(name: str, known: list[tuple[str, str, str]], folder: int) -> None:
    """Writes which files are staged, for which subscriber and query."""
    with open(new_file(name, folder), "w", encoding="utf-8") as file:
        json.dump(known, file)
        file.flush()
        os.fsync(file.fileno())


def _noted(name: str, folder: int, place: str) -> list[tuple[str, str, str]]:
    """Reads which files are staged. A missing file is an error: its results would be lost for ever."""
    there = frozenset(os.listdir(folder))
    noted: list[tuple[str, str, str]] = []
    if name in there:
        with open(known_file(name, folder), encoding="utf-8") as file:
            noted = [(staged, subscriber, query) for staged, subscriber, query in json.load(file)]
    files = (file for staged, _, _ in noted for file in (staged, _labels(staged)))
    missing = sorted({name, *files} - there)
    if missing:
        raise StoreError(
            f"cannot continue: unpublished results are missing in `{place}`: `{_STAGED}/{missing[0]}`",
            hint="put the folder back as it was, or read everything again with --fresh",
        )
    return noted


def _clear(folder: int, number: int) -> list[str]:
    """Removes files with later numbers and returns their names."""
    later = [name for name in _numbered(folder) if int(name.partition(".")[0]) > number]
    for name in later:
        os.unlink(name, dir_fd=folder)
    return later


def _damaged(folder: int) -> list[str]:
    """The files that do not begin and end with Parquet's magic bytes."""
    found = []
    for name in _numbered(folder):
        with open(known_file(name, folder), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 2 * len(_MAGIC) or {os.pread(file.fileno(), 4, at) for at in (0, size - 4)} != {_MAGIC}:
                found.append(name)
    return found


def _numbered(folder: int) -> list[str]:
    parts = ((name, *name.partition(".")) for name in sorted(os.listdir(folder)))
    return [name for name, stem, _, kind in parts if kind == "parquet" and stem.isdigit()]


def _labels(name: str) -> str:
    """The file beside staged results that holds their exact labels. Labels in delivered files are for people."""
    return f"{name}.labels"


def _write(table: pa.Table, result_batch: ResultBatch, name: str, folder: int) -> None:
    kinds = {b"kinds": json.dumps(plain_labels(result_batch.kinds)).encode()}
    exact = pa.table({"label": pa.array(result_batch.labels.astype(np.int32))}).replace_schema_metadata(kinds)
    with open(new_file(_labels(name), folder), "wb") as file:
        with pa.ipc.new_file(file, exact.schema) as writer:
            writer.write_table(exact)
        file.flush()
        os.fsync(file.fileno())
    with open(new_file(f"{name}.new", folder), "wb") as file:
        # plain encoding: these files are read whole, so dictionaries and statistics cost more than they save
        pq.write_table(table, file, compression="snappy", use_dictionary=_REPEATED, write_statistics=False)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{name}.new", name, src_dir_fd=folder, dst_dir_fd=folder)


def _read(name: str, folder: int) -> pa.Table:
    with open(known_file(name, folder), "rb") as file:
        return pq.ParquetFile(file).read()


def _read_labels(name: str, folder: int) -> pa.Table:
    with open(known_file(_labels(name), folder), "rb") as file:
        return pa.ipc.open_file(pa.BufferReader(file.read())).read_all()


def _result_batch(table: pa.Table, labels: pa.Table, subscriber: str, query: str) -> ResultBatch:
    return ResultBatch(
        (subscriber,),
        query,
        table.column(2).to_numpy().astype(np.int64),
        table.column(0).cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy(),
        tuple(column.combine_chunks() for column in table.columns[3:]),
        labels.column(0).to_numpy().astype(np.int64),
        tuple(labels_of(json.loads(labels.schema.metadata[b"kinds"]))),
    )
