"""Results as Parquet files, one more for each subscriber and query with every batch that has something for it.

A batch is written in a folder of its own, which is no reader's, before it counts, and gets its place when it goes out:
so results are written once, however many they are. What a reader sees is numbered for that reader alone, so that
numbers tell of nobody else; whose a file is stands beside it, not in it, as queries have numbers among all objects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.engine.demand import Demand
from headgate.engine.egress import Parcel
from headgate.engine.ingress import Refused
from headgate.engine.outfolder import OutFolder, known_file, new_file
from headgate.engine.sinks import Addresses, FileSink, file_path
from headgate.labels.plain import labels_of, plain_labels

_STAGED = ".staged"
_TIME, _LABEL, _BLOCK = "headgate_time", "headgate_label", "headgate_block"
_REPEATED = [_LABEL, _BLOCK]


class ParquetSink:
    keeps = True

    def __init__(self, folder: Path, addresses: Addresses) -> None:
        self._folder = OutFolder(folder)
        self.name = f"parquet {self._folder.mark()}"
        self._addresses = addresses
        self._lines = FileSink(folder, addresses)
        self._numbers: dict[str, int] = {}
        self._staged: dict[tuple[str, str], str] = {}
        self._version = 0
        with self._folder.said(_STAGED), self._folder.inside(_STAGED):
            pass

    def state(self, results: Sequence[Parcel] = (), refused: Sequence[Refused] = ()) -> dict[str, dict[str, int]]:
        coming = (self._place(name, parcel.query) for parcel in results for name in parcel.subscribers)
        beginning = dict.fromkeys(coming, 0)
        lines = self._lines.state([x for x in results if x.word], refused)
        return {"numbers": beginning | self._numbers, "lines": lines}

    def restore(self, state: Mapping[str, dict[str, int]] | None) -> None:
        """Of what was to go out nothing is left but what is staged."""
        self._numbers = dict(state["numbers"]) if state else {}
        for place, number in self._numbers.items():
            here = self._folder.inside(place, make=False)
            with self._folder.said(place), suppress(FileNotFoundError), here as folder:
                _clear(folder, number)
        self._lines.restore(state["lines"] if state else None)

    # Before a batch counts --------------------------------------------------------------------------------------------

    def stage(self, version: int, results: Sequence[Parcel], refused: Sequence[Refused] = ()) -> None:  # noqa: ARG002
        self._staged = {}
        work: list[tuple[pa.Table, Parcel, str]] = []
        for parcel in (x for x in results if not x.word):
            table = self._table(parcel)
            for subscriber in parcel.subscribers:
                name = f"{version:015}-{len(work)}.parquet"
                self._staged[subscriber, parcel.query] = name
                work.append((table, parcel, name))
        with self._folder.said(_STAGED), self._folder.inside(_STAGED) as here:
            for old in os.listdir(here):
                os.unlink(old, dir_fd=here)
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(lambda x: _write(x[0], x[1], x[2], here), work))
            self._note(version, here)

    def staged(self, version: int) -> list[Parcel]:
        """What was staged for a version that counts, after a restart."""
        with self._folder.said(_STAGED), self._folder.inside(_STAGED) as here:
            noted = _noted(_index(version), here)
            parcels = [
                _parcel(_read(name, here), _read_labels(name, here), subscriber, query)
                for name, subscriber, query in noted
            ]
        self._version = version
        self._staged = {(subscriber, query): name for name, subscriber, query in noted}
        return parcels

    # When it goes out -------------------------------------------------------------------------------------------------

    def write(self, results: Sequence[Parcel], refused: Sequence[Refused], *, as_staged: bool) -> None:
        """`as_staged`: all of it, as it is; otherwise only these results, of what was staged."""
        with self._folder.said(_STAGED), self._folder.inside(_STAGED) as waiting:
            if not as_staged:
                self._leave(results, waiting)
            for key, name in self._staged.items():
                place = self._place(*key)
                with self._folder.said(place), self._folder.inside(place) as here:
                    self._let_out(place, here, name, waiting)
        self._staged = {}
        self._lines.write([x for x in results if x.word], refused, as_staged=False)

    def _leave(self, results: Sequence[Parcel], waiting: int) -> None:
        """Of what was staged only these. A crash leaves all of it, or these."""
        allowed = {(name, parcel.query): parcel for parcel in results if not parcel.word for name in parcel.subscribers}
        before = list(self._staged.items())
        self._staged = {key: f"left-{name}" for key, name in before if key in allowed}
        for key, name in self._staged.items():
            _write(self._table(allowed[key]), allowed[key], name, waiting)
        self._note(self._version, waiting)
        for _, name in before:
            os.unlink(name, dir_fd=waiting)
            os.unlink(_labels(name), dir_fd=waiting)

    def _note(self, version: int, waiting: int) -> None:
        """Which files are staged, for whom and of which query."""
        self._version = version
        with open(new_file(f"{_index(version)}.new", waiting), "w", encoding="utf-8") as file:
            json.dump([(name, *key) for key, name in self._staged.items()], file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{_index(version)}.new", _index(version), src_dir_fd=waiting, dst_dir_fd=waiting)

    def _let_out(self, place: str, here: int, name: str, waiting: int) -> None:
        """What is staged stays until the next batch. Whatever has a number that was never given is not ours, or was
        forgotten with the state it belonged to."""
        number = self._numbers.get(place, 0) + 1
        if number == 1:
            _clear(here, 0)
        target = f"{number:09}.parquet"
        with suppress(FileNotFoundError):
            os.unlink(target, dir_fd=here)
        os.link(name, target, src_dir_fd=waiting, dst_dir_fd=here, follow_symlinks=False)
        self._numbers[place] = number

    def keep(self, now: Demand) -> None:
        """Numbers stay known, as lengths of files do."""

    def _place(self, subscriber: str, query: str) -> str:
        return file_path(self._addresses.of(subscriber, query).path)

    def _table(self, parcel: Parcel) -> pa.Table:
        names = self._addresses.of(parcel.subscribers[0], parcel.query).columns
        kinds = pa.array([str(label) for label in parcel.kinds], pa.string())
        labels = pa.DictionaryArray.from_arrays(pa.array(parcel.labels.astype(np.int32)), kinds)
        times = pa.array(parcel.times, pa.timestamp("ms", "UTC"))
        own = {_TIME: times, _LABEL: labels, _BLOCK: pa.array(parcel.blocks.astype(np.int8))}
        return pa.table([*own.values(), *parcel.values], names=[*own, *names])


def _index(version: int) -> str:
    return f"{version:015}.json"


def _noted(name: str, folder: int) -> list[tuple[str, str, str]]:
    """Those that are still there: what is no longer permitted was removed, and another folder has none."""
    there = frozenset(os.listdir(folder))
    if name not in there:
        return []
    with open(known_file(name, folder), encoding="utf-8") as file:
        return [(staged, subscriber, query) for staged, subscriber, query in json.load(file) if staged in there]


def _clear(folder: int, number: int) -> None:
    """Files with later numbers go."""
    for name in os.listdir(folder):
        stem, _, kind = name.partition(".")
        if kind == "parquet" and stem.isdigit() and int(stem) > number:
            os.unlink(name, dir_fd=folder)


def _labels(name: str) -> str:
    """The file beside staged results that holds their labels exactly. Those that go out are for people."""
    return f"{name}.labels"


def _write(table: pa.Table, parcel: Parcel, name: str, folder: int) -> None:
    kinds = {b"kinds": json.dumps(plain_labels(parcel.kinds)).encode()}
    exact = pa.table({"label": pa.array(parcel.labels.astype(np.int32))}).replace_schema_metadata(kinds)
    with open(new_file(_labels(name), folder), "wb") as file:
        with pa.ipc.new_file(file, exact.schema) as writer:
            writer.write_table(exact)
        file.flush()
        os.fsync(file.fileno())
    with open(new_file(f"{name}.new", folder), "wb") as file:
        # numbers as they are: dictionaries and statistics of results that are read as a whole cost more than they save
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


def _parcel(table: pa.Table, labels: pa.Table, subscriber: str, query: str) -> Parcel:
    return Parcel(
        (subscriber,),
        query,
        table.column(2).to_numpy().astype(np.int64),
        table.column(0).cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy(),
        tuple(column.combine_chunks() for column in table.columns[3:]),
        labels.column(0).to_numpy().astype(np.int64),
        tuple(labels_of(json.loads(labels.schema.metadata[b"kinds"]))),
    )
