"""Results as Parquet files, one more for each subscriber and query with every batch that has something for it.

A batch is written in a folder of its own, which is no reader's, before it counts, and gets its place when it goes out:
so results are written once, however many they are. What a reader sees is numbered for that reader alone, so that
numbers tell of nobody else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.engine.demand import Demand
from headgate.engine.egress import Parcel
from headgate.engine.ingress import Refused
from headgate.engine.sinks import Addresses, FileSink, file_path
from headgate.engine.state import NO_LIMIT
from headgate.labels.text import parse_any_label

_TIME, _LABEL, _BLOCK = "headgate_time", "headgate_label", "headgate_block"
_QUERY, _SUBSCRIBER = b"query", b"subscriber"
_REPEATED = [_LABEL, _BLOCK]


class ParquetSink:
    name = "parquet"
    keeps = True

    def __init__(self, folder: Path, addresses: Addresses) -> None:
        self._folder = folder
        self._addresses = addresses
        self._lines = FileSink(folder, addresses)
        self._numbers: dict[str, int] = {}
        self._staged: dict[tuple[str, str], Path] = {}
        self._waiting = folder / ".staged"
        self._waiting.mkdir(parents=True, exist_ok=True, mode=0o700)

    def state(self, results: Sequence[Parcel] = (), refused: Sequence[Refused] = ()) -> dict[str, dict[str, int]]:
        coming = (self._place(name, parcel.query) for parcel in results for name in parcel.subscribers)
        beginning = dict.fromkeys((str(path.relative_to(self._folder)) for path in coming), 0)
        lines = self._lines.state([x for x in results if x.word], refused)
        return {"numbers": beginning | self._numbers, "lines": lines}

    def restore(self, state: Mapping[str, dict[str, int]] | None) -> None:
        """Of what was to go out nothing is left but what is staged."""
        self._numbers = dict(state["numbers"]) if state else {}
        for place, number in self._numbers.items():
            for path in (self._folder / place).glob("*.parquet"):
                if path.stem.isdigit() and int(path.stem) > number:
                    path.unlink()
        self._lines.restore(state["lines"] if state else None)

    # Before a batch counts --------------------------------------------------------------------------------------------

    def stage(self, version: int, results: Sequence[Parcel]) -> None:
        for old in self._waiting.iterdir():
            old.unlink()
        self._staged = {}
        work: list[tuple[pa.Table, Path]] = []
        for parcel in (x for x in results if not x.word):
            table = self._table(parcel)
            for subscriber in parcel.subscribers:
                path = self._waiting / f"{version:015}-{len(work)}.parquet"
                self._staged[subscriber, parcel.query] = path
                known = {_QUERY: parcel.query.encode(), _SUBSCRIBER: subscriber.encode()}
                work.append((table.replace_schema_metadata(known), path))
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda x: _write(*x), work))

    def staged(self, version: int) -> list[Parcel]:
        """What was staged for a version that counts, after a restart."""
        files = sorted(self._waiting.glob(f"{version:015}-*.parquet"))
        found = [(path, pq.read_table(path)) for path in files]
        parcels = [_parcel(table) for _, table in found]
        self._staged = {(p.subscribers[0], p.query): path for p, (path, _) in zip(parcels, found, strict=True)}
        return parcels

    # When it goes out -------------------------------------------------------------------------------------------------

    def write(self, results: Sequence[Parcel], refused: Sequence[Refused], *, as_staged: bool) -> None:
        """`as_staged`: all of it, as it is; otherwise only these results, of what was staged."""
        if not as_staged:
            allowed = {(name, parcel.query): parcel for parcel in results for name in parcel.subscribers}
            for key, path in list(self._staged.items()):
                if key in allowed:
                    known = {_QUERY: key[1].encode(), _SUBSCRIBER: key[0].encode()}
                    _write(self._table(allowed[key]).replace_schema_metadata(known), path)
                else:
                    path.unlink()
                    del self._staged[key]
        for key, path in self._staged.items():
            target = self._place(*key)
            target.mkdir(parents=True, exist_ok=True, mode=0o700)
            place = str(target.relative_to(self._folder))
            number = self._numbers.get(place, 0) + 1
            (target / f"{number:09}.parquet").hardlink_to(path)  # what is staged stays until the next batch
            self._numbers[place] = number
        self._staged = {}
        self._lines.write([x for x in results if x.word], refused, as_staged=False)

    def keep(self, now: Demand) -> None:
        """Numbers stay known, as lengths of files do."""

    def _place(self, subscriber: str, query: str) -> Path:
        return self._folder / file_path(self._addresses.of(subscriber, query).path)

    def _table(self, parcel: Parcel) -> pa.Table:
        names = self._addresses.of(parcel.subscribers[0], parcel.query).columns
        kinds = pa.array([str(label) for label in parcel.kinds], pa.string())
        labels = pa.DictionaryArray.from_arrays(pa.array(parcel.labels.astype(np.int32)), kinds)
        times = pa.array(parcel.times, pa.timestamp("ms", "UTC"))
        own = {_TIME: times, _LABEL: labels, _BLOCK: pa.array(parcel.blocks.astype(np.int8))}
        columns = dict(zip(names, parcel.values, strict=True))
        return pa.table([*own.values(), *columns.values()], names=[*own, *columns])


def _write(table: pa.Table, path: Path) -> None:
    new = path.with_suffix(".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        # numbers as they are: dictionaries and statistics of results that are read as a whole cost more than they save
        pq.write_table(table, file, compression="snappy", use_dictionary=_REPEATED, write_statistics=False)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def _parcel(table: pa.Table) -> Parcel:
    known = table.schema.metadata
    labels = table.column(1).combine_chunks().dictionary_encode()
    kinds = tuple(parse_any_label(text, limit=NO_LIMIT) for text in labels.dictionary.to_pylist())
    return Parcel(
        (known[_SUBSCRIBER].decode(),),
        known[_QUERY].decode(),
        table.column(2).to_numpy().astype(np.int64),
        table.column(0).cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy(),
        tuple(column.combine_chunks() for column in table.columns[3:]),
        labels.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        kinds,
    )
