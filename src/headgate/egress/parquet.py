"""A sink of Parquet files, in a folder for each subscriber and query.

A batch is written to a staging folder, which readers do not use, before it is committed, and is linked to its final
place at delivery. `parquet_files` says how results are cut into files: by the reader's own results, so that names,
sizes and contents reveal nothing of others. An index beside the staged files says whose they are, not the files
themselves, because queries are numbered among all objects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.egress import parquet_files as files
from headgate.egress.folder import ResultFolder, known_file, new_file
from headgate.egress.gathered import GatheredBatch
from headgate.egress.parquet_staging import (
    STAGED,
    StagedFile,
    StagedFiles,
    Staging,
    labels_file,
    stage_files,
    stage_there,
    together,
)
from headgate.egress.sinks import Addresses, FileSink, Sink, Verify, file_path
from headgate.errors import StoreError
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch, Workers
from headgate.model.snapshot import CatalogSnapshot

Key = tuple[str, str]
"""A subscriber and a query."""


class ParquetSink(Sink):
    """Notices and rejected rows go to files of JSON lines, as in `FileSink`."""

    keeps = True

    def __init__(self, folder: Path, addresses: Addresses) -> None:
        self._folder = ResultFolder(folder)
        self.place = str(folder)
        self._addresses = addresses
        self._lines = FileSink(self._folder, addresses)
        self._rows: dict[str, int] = {}
        """How many rows are published, by place."""
        self._version = 0
        self._staged: dict[Key, list[StagedFile]] = {}
        self._ready: dict[Key, list[StagedFile]] = {}
        self._out: dict[Key, int] = {}
        """How many of the results that were computed in the batch are published or are not to be."""
        with self._folder.reporting(STAGED), self._folder.inside(STAGED):
            pass

    @property
    def name(self) -> str:
        return f"parquet {self._folder.name}"

    def claim(self, owner: str, epoch: int = 0) -> None:
        self._folder.claim(owner, epoch)

    def let_go(self) -> None:
        self._folder.let_go()

    def warnings(self) -> list[str]:
        return self._lines.warnings()

    def state(self, results: Sequence[ResultBatch] = (), rejected: Sequence[RejectedRows] = ()) -> dict[str, Any]:
        coming = (self._place(name, x.query) for x in results if not x.word for name in x.subscribers)
        beginning = dict.fromkeys(coming, 0)
        return {self.name: beginning | self._rows, **self._lines.state([x for x in results if x.word], rejected)}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        """Removes everything of the batch in delivery except its staged files."""
        self._rows = dict(states.get(self.name) or {})
        for place, rows in self._rows.items():
            here = self._folder.inside(place, make=False)
            with self._folder.reporting(place), suppress(FileNotFoundError), here as folder, self._folder.change():
                gone, bad = files.remove_after(rows, folder), files.damaged(folder)
                if out:
                    self._warn(place, gone, "was not written here, and is removed")
                else:
                    files.shorten(rows, folder)
                self._warn(place, bad, "is not what was written: it was cut or changed")
        self._lines.restore(states, out=out)

    def _warn(self, place: str, names: Sequence[str], what: str) -> None:
        self._folder.warnings += [f"the file of results `{place}/{x}` in `{self.place}` {what}" for x in names]

    # Before a batch is committed --------------------------------------------------------------------------------------

    def stage(self, version: int, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows] = ()) -> None:  # noqa: ARG002
        if self._folder.was_replaced():
            self._rows = {}
            self._lines.begin_anew()
        self._version, self._staged, self._out = version, {}, {}
        here: list[tuple[Key, pa.Table, ResultBatch, str]] = []
        there: dict[Key, tuple[Workers, Staging]] = {}
        tables: dict[tuple[int, frozenset[str] | None], pa.Table] = {}
        for number, (result_batch, subscriber) in enumerate(
            (x, subscriber) for x in results if len(x) for subscriber in x.subscribers
        ):
            address = self._addresses.of(subscriber, result_batch.query)
            key, name = (subscriber, result_batch.query), f"{version:015}-{number}"
            if isinstance(result_batch, GatheredBatch) and result_batch.workers.on_this_machine:
                place, folder = file_path(address.path), self._folder.path.resolve()
                work = Staging(result_batch.gathering, folder, place, address, self._rows.get(place, 0), name)
                there[key] = result_batch.workers, work
            else:
                alike = id(result_batch), address.named
                if alike not in tables:
                    tables[alike] = files.table_of(result_batch, address)
                here.append((key, tables[alike], result_batch, name))
        with self._folder.reporting(STAGED), self._folder.inside(STAGED) as waiting:
            for old in (x for x in os.listdir(waiting) if x < f"{version:015}"):  # later ones are a successor's
                os.unlink(old, dir_fd=waiting)

            def staged(work: tuple[Key, pa.Table, ResultBatch, str]) -> StagedFiles:
                key, table, result_batch, name = work
                files.write_labels(result_batch.labels, result_batch.kinds, labels_file(name), waiting)
                found = self._stage_files(key, table, name, np.arange(len(result_batch)), waiting)
                return replace(found, labels=(labels_file(name),))

            with ThreadPoolExecutor(2) as threads:
                found = {key: done for (key, *_), done in zip(here, threads.map(staged, here), strict=True)}
            found |= _staged_there(there)
            for key, done in found.items():
                self._go_on_after(key, done)
            self._staged = {key: list(done.parts) for key, done in found.items()}
            noted = [(list(x.labels), *key, [astuple(y) for y in x.parts]) for key, x in found.items()]
            _note(_index(version), noted, waiting)

    def _stage_files(self, key: Key, table: pa.Table, name: str, places: Ints, waiting: int) -> StagedFiles:
        place = self._place(*key)
        return stage_files(self._folder, place, self._rows.get(place, 0), table, name, places, waiting)

    def _go_on_after(self, key: Key, done: StagedFiles) -> None:
        """The reader's rows are those before the staged ones; more than there were, if the last file was lost."""
        place = self._place(*key)
        if done.rows:
            self._rows[place] = done.rows
        if done.lost is not None:
            self._warn(place, [done.lost[0]], done.lost[1])

    def staged(self, version: int) -> list[ResultBatch]:
        """After a restart: the results staged for a committed version."""
        self._version, self._staged, self._out, found = version, {}, {}, list[ResultBatch]()
        with self._folder.reporting(STAGED), self._folder.inside(STAGED) as here:
            for names, subscriber, query, plain in _noted(_index(version), here, self.place):
                parts = self._staged[subscriber, query] = [StagedFile(*x) for x in plain]
                rows = files.joined([files.read(x.name, here).slice(x.start % files.ROWS) for x in parts])
                labels = pa.concat_tables(files.read_labels(name, here) for name in names)
                found.append(files.result_batch_of(rows, labels, subscriber, query))
        return found

    # Delivery ---------------------------------------------------------------------------------------------------------

    def prepare(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows], *, as_staged: bool) -> None:
        """`as_staged`: every staged file as it is; otherwise only these results. Staged files stay unchanged, because
        rights may have to be applied to them again."""
        self._ready = {
            key: [x for x in parts if x.until > self._out.get(key, 0)] for key, parts in self._staged.items()
        }
        if not (as_staged and all(self._continue(key, parts) for key, parts in self._ready.items())):
            with self._folder.reporting(STAGED), self._folder.inside(STAGED) as waiting:
                self._leave(results, waiting)
        self._lines.prepare([x for x in results if x.word], rejected, as_staged=False)

    def _continue(self, key: Key, parts: Sequence[StagedFile]) -> bool:
        """Whether these files begin where the published ones end."""
        return not parts or parts[0].start == self._rows.get(self._place(*key), 0)

    def _leave(self, results: Sequence[ResultBatch], waiting: int) -> None:
        self._ready = {}
        for result_batch in (x for x in results if not x.word):
            places = np.arange(len(result_batch)) if result_batch.places is None else result_batch.places
            for key in ((name, result_batch.query) for name in result_batch.subscribers):
                rows = np.flatnonzero(places >= self._out.get(key, 0))
                table = files.table_of(result_batch, self._addresses.of(*key)).take(pa.array(rows))
                done = self._stage_files(
                    key, table, f"{self._version:015}-left-{len(self._ready)}", places[rows], waiting
                )
                self._go_on_after(key, done)
                self._ready[key] = list(done.parts)

    def publish(self, verify: Verify) -> None:
        with self._folder.reporting(STAGED), self._folder.inside(STAGED) as waiting:
            for key, parts in list(self._ready.items()):
                place = self._place(*key)
                while parts:
                    verify()
                    with self._folder.reporting(place), self._folder.inside(place) as here, self._folder.change():
                        self._let_out(place, here, parts[0], waiting)
                    self._out[key] = parts.pop(0).until
                del self._ready[key]
        self._lines.publish(verify)

    def complete(self) -> None:
        self._staged, self._ready, self._out = {}, {}, {}
        self._lines.complete()

    def _let_out(self, place: str, here: int, part: StagedFile, waiting: int) -> None:
        """Links a staged file to its place, instead of the one that had fewer rows; the staged file stays until the
        next batch. A file with a number that was never assigned is not ours, or belonged to a state that was
        deleted."""
        if part.start == 0:
            files.remove_after(0, here)
        coming = ".coming"
        with suppress(FileNotFoundError):
            os.unlink(coming, dir_fd=here)
        os.link(part.name, coming, src_dir_fd=waiting, dst_dir_fd=here, follow_symlinks=False)
        os.rename(coming, files.file_of(part.start), src_dir_fd=here, dst_dir_fd=here)
        self._rows[place] = part.start + part.rows

    def retain(self, now: CatalogSnapshot) -> None:
        """Keeps all numbers, as `FileSink` keeps the sizes of files."""

    def _place(self, subscriber: str, query: str) -> str:
        return file_path(self._addresses.of(subscriber, query).path)


Note = tuple[list[str], str, str, list[Any]]
"""The files of their labels, whose the results are (subscriber and query), and their parts."""


def _index(version: int) -> str:
    return f"{version:015}.json"


def _staged_there(work: Mapping[Key, tuple[Workers, Staging]]) -> dict[Key, StagedFiles]:
    """What tasks stage of results that are not here."""
    if not work:
        return {}
    workers = next(iter(work.values()))[0]
    shares = [(key, share) for key, (_, own) in work.items() for share in own.shared(workers.at_once)]
    done = workers.each(f"stage the results of {len(work)} readers", stage_there, [share for _, share in shares])
    found: dict[Key, list[StagedFiles]] = {}
    for (key, _), staged in zip(shares, done, strict=True):
        found.setdefault(key, []).append(staged)
    return {key: together(cuts) for key, cuts in found.items()}


def _note(name: str, known: Sequence[Note], folder: int) -> None:
    """Writes which files are staged, for which subscriber and query."""
    with open(new_file(name, folder), "w", encoding="utf-8") as file:
        json.dump(known, file)
        file.flush()
        os.fsync(file.fileno())


def _noted(name: str, folder: int, place: str) -> list[Note]:
    """Reads which files are staged. A missing file is an error: its results would be lost for ever."""
    there = frozenset(os.listdir(folder))
    noted: list[Note] = []
    if name in there:
        with open(known_file(name, folder), encoding="utf-8") as file:
            noted = [(labels, subscriber, query, parts) for labels, subscriber, query, parts in json.load(file)]
    staged_files = (x for labels, _, _, parts in noted for x in (*labels, *(part[0] for part in parts)))
    missing = sorted({name, *staged_files} - there)
    if missing:
        raise StoreError(
            f"cannot continue: unpublished results are missing in `{place}`: `{STAGED}/{missing[0]}`",
            hint="put the folder back as it was, or read everything again with --fresh",
        )
    return noted
