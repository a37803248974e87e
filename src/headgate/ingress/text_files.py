"""Reads files of CSV and JSON lines, so that where a row ends and what a line means is decided in one place.

Spark only lists the files and records which were read. Spark's own text readers begin a row at every line break, ignore
text after an object, and parse only the requested columns, so the same bytes would be different tuples for different
queries.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.sorting import Bools
from headgate.errors import SourceError
from headgate.expressions.sql.types import ARROW
from headgate.ingress import records
from headgate.ingress.json_lines import NO_OBJECT, TWICE, objects_of
from headgate.ingress.records import ByteSource, RecordChunk, pieces
from headgate.ingress.text_formats import Text
from headgate.ingress.validation import MOST_KEPT, NO_FORM, RawBatch, as_texts
from headgate.ingress.values import values_of, wrong_value
from headgate.model.rejected import MALFORMED, RejectedRows
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type

_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_WORKERS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class TextFile:
    """A file and a function that opens it, which may fail."""

    name: str
    open: Callable[[], AbstractContextManager[ByteSource]]


def local_file(path: str) -> TextFile:
    @contextmanager
    def opened() -> Iterator[ByteSource]:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its writer
            raise SourceError("it is not a regular file")
        with pa.OSFile(path) as file, unpacked(file, path) as stream:
            yield stream

    return TextFile(path, opened)


@contextmanager
def unpacked(file: pa.NativeFile, name: str) -> Iterator[ByteSource]:
    """The decompressed contents of a file; the ending of its name tells the compression."""
    packed = next((way for ending, way in _PACKED.items() if name.endswith(ending)), None)
    if packed is None:
        yield file
        return
    with pa.CompressedInputStream(file, packed) as stream:
        yield stream


@dataclass
class _Parts:
    """The parts that were read so far."""

    text: Text
    tables: list[pa.Table] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    rejected: int = 0

    def add(self, part: _Part) -> None:
        self.tables.append(part.table)
        self.kept += part.kept[: MOST_KEPT - len(self.kept)]
        self.rejected += part.rejected

    def all_rows(self, notes: Sequence[str]) -> RawBatch:
        schema = pa.schema([(name, ARROW[type_]) for name, type_ in self.text.columns])
        table = pa.concat_tables([schema.empty_table(), *self.tables])
        rows = [{MALFORMED: row} for row, _ in self.kept]
        details = [why for _, why in self.kept]
        bad = RejectedRows(self.text.descriptor.name, NO_FORM, rows, self.rejected - len(rows), details)
        return RawBatch(table, [bad] if self.rejected else [], notes)


@dataclass(frozen=True)
class _Part:
    """The tuples of a piece, how many of its records are rejected, and the first of these, each with its reason."""

    table: pa.Table
    rejected: int = 0
    kept: Sequence[tuple[str, str]] = ()


def read_files(text: Text, files: Sequence[TextFile]) -> RawBatch:
    """Reads all files, in this order. A file that is gone is reported in a note; a file that cannot be read raises an
    error that names it."""
    notes: list[str] = []
    parts = _Parts(text)
    for part in _side_by_side(_read, _all_pieces(text, files, notes)):
        parts.add(part)
    return parts.all_rows(notes)


@dataclass(frozen=True)
class _Job:
    """A piece of a file to be read, with the names of the file's columns, in order."""

    text: Text
    file: str
    piece: RecordChunk
    names: list[str]


def _all_pieces(text: Text, files: Sequence[TextFile], notes: list[str]) -> Iterator[_Job]:
    for file in files:
        try:
            with file.open() as stream:
                decoded = stream if text.encoding in ("utf-8", "UTF-8") else _Decoded(stream, text.encoding)
                names = [name for name, _ in text.columns]
                for number, piece in enumerate(pieces(decoded, text.form)):
                    if text.header and number == 0:
                        names, piece = _header(piece, names)
                    yield _Job(text, file.name, piece, names)
        except FileNotFoundError:
            notes.append(gone(file.name))
        except SourceError as error:
            raise unreadable(text.descriptor, file.name, error.message) from None
        except (OSError, EOFError, UnicodeError, pa.ArrowException) as error:
            raise unreadable(text.descriptor, file.name, type(error).__name__) from None


def unreadable(descriptor: StreamDescriptor, file: str, why: str) -> SourceError:
    """The error for a file that blocks its stream until the file is repaired or moved away."""
    what = f"table {descriptor.name}" if descriptor.table else f"stream {descriptor.name} any further"
    hint = "repair the file, or move it away to continue without it"
    return SourceError(f"cannot read {what}: file `{shown(file)}`: {why}", hint=hint)


def gone(file: str) -> str:
    return f"file `{shown(file)}` was gone before it was read"


def shown(path: str) -> str:
    """A path in one line, with unprintable characters escaped."""
    return "".join(x if x.isprintable() else repr(x)[1:-1] for x in path)


class _Decoded:
    """A byte stream recoded to UTF-8; bytes that cannot be decoded become U+FFFD."""

    def __init__(self, stream: ByteSource, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int, /) -> bytes:
        while given := self._stream.read(size):
            if found := self._decoder.decode(given):
                return found.encode()
        return self._decoder.decode(b"", True).encode()


def _header(piece: RecordChunk, columns: Sequence[str]) -> tuple[list[str], RecordChunk]:
    """The column names in the header of a file, and the piece without the header."""
    begin, end = piece.bounds[:2].tolist()
    first = RecordChunk(piece.data[begin:end], piece.form)
    if piece.too_long or first.damaged.any():
        raise SourceError("its header cannot be read")
    numbers = [str(number) for number in range(int(first.fields[0]))]
    (row,) = first.rows(np.ones(1, np.bool_), numbers).to_pylist() or [{}]
    names = [(value or b"").decode(errors="replace") for value in row.values()]
    for name in columns:
        if names.count(name) != 1:
            raise SourceError(f"its header has column `{name}` {'twice' if name in names else 'nowhere'}")
    return names, RecordChunk(piece.data[end:], piece.form)


def _side_by_side(read: Callable[[_Job], _Part], given: Iterable[_Job]) -> Iterator[_Part]:
    """Reads pieces in parallel, if there are several, and returns them in order; holds only the pieces being read."""
    waiting: deque[Future[_Part]] = deque()
    here = iter(given)
    first, second = next(here, None), next(here, None)
    if first is None:
        return
    if second is None:
        yield read(first)
        return
    threads = _threads()
    waiting += (threads.submit(read, first), threads.submit(read, second))
    for piece in here:
        if len(waiting) > _WORKERS:
            yield waiting.popleft().result()
        waiting.append(threads.submit(read, piece))
    while waiting:
        yield waiting.popleft().result()


@cache
def _threads() -> ThreadPoolExecutor:
    """The thread pool. It is kept, since starting threads takes as long as reading a small batch."""
    return ThreadPoolExecutor(_WORKERS, thread_name_prefix="reading")


# One piece ------------------------------------------------------------------------------------------------------------


def _read(job: _Job) -> _Part:
    try:
        return _read_piece(job.text, job.piece, job.names)
    except SourceError as error:
        raise unreadable(job.text.descriptor, job.file, error.message) from None


def _read_piece(text: Text, piece: RecordChunk, names: list[str]) -> _Part:
    if piece.too_long:
        empty = pa.schema([(name, ARROW[type_]) for name, type_ in text.columns]).empty_table()
        return _Part(empty, 1, [(piece.record(0), records.TOO_LONG)])
    return _objects(text, piece) if text.json else _rows(text, piece, names)


def _rows(text: Text, piece: RecordChunk, names: list[str]) -> _Part:
    """Reads rows of CSV. A row with a damaged structure, or with a value that does not fit its column, is rejected
    whole."""
    other = piece.fields != len(names)
    sound = ~(piece.damaged | other | piece.blank)
    places = np.flatnonzero(sound)
    found = piece.rows(sound, [str(number) for number in range(len(names))])
    texts = {name: _text(found.column(str(names.index(name)))) for name, _ in text.columns}
    values = values_of(texts, text.columns)

    def why(record: int) -> str:
        if piece.damaged[record]:
            return records.NOT_CLOSED
        if other[record]:
            return f"it has {piece.fields[record]} values, not {len(names)}"
        row = int(np.searchsorted(places, record))
        return _first_wrong(text.columns, values.wrong, row, lambda name: str(texts[name][row].as_py()))

    malformed = _any(values.wrong, len(places))
    bad = (piece.damaged | other) & ~piece.blank
    bad[places[malformed]] = True
    return _part(text, piece, values.columns, ~malformed, bad, why)


def _objects(text: Text, piece: RecordChunk) -> _Part:
    """Reads JSON lines. A line that is not one object, has a duplicate key, or has a value that does not fit its column
    is rejected whole."""
    found = json_rows(text.columns, as_lines(piece.lines))
    return _part(text, piece, found.columns, ~found.bad, found.rejected, found.why)


@dataclass(frozen=True)
class JsonRows:
    """The columns of JSON lines; which lines are no tuples, which of these are not just blank, and why."""

    columns: Mapping[str, pa.Array]
    bad: Bools
    rejected: Bools
    why: Callable[[int], str]


def json_rows(columns: Sequence[tuple[str, Type]], lines: pa.Array) -> JsonRows:
    """Reads texts, each of which should be one JSON object."""
    objects = objects_of(lines, columns)
    values = values_of(objects.texts, columns)
    wrong = {
        name: objects.wrong.get(name, False) | values.wrong.get(name, np.zeros(len(lines), np.bool_))
        for name in objects.wrong.keys() | values.wrong.keys()
    }

    def why(record: int) -> str:
        if objects.no_object[record]:
            return NO_OBJECT
        if objects.twice[record]:
            return TWICE
        return _first_wrong(columns, wrong, record, lambda name: objects.raw(name, record))

    bad = objects.no_object | objects.twice | _any(wrong, len(lines))
    rejected = bad
    if objects.no_object.any():
        rejected = bad & ~np.asarray(pc.equal(pc.ascii_trim_whitespace(lines), ""), np.bool_)
    return JsonRows(values.columns, bad, rejected, why)


def _any(wrong: Mapping[str, Bools], size: int) -> Bools:
    return np.asarray(np.logical_or.reduce([*wrong.values(), np.zeros(size, np.bool_)]), np.bool_)


def _first_wrong(
    columns: Sequence[tuple[str, Type]], wrong: Mapping[str, Bools], row: int, shown: Callable[[str], str]
) -> str:
    name, type_ = next((name, type_) for name, type_ in columns if name in wrong and wrong[name][row])
    return wrong_value(name, shown(name), type_)


def _part(
    text: Text, piece: RecordChunk, columns: Mapping[str, pa.Array], good: Bools, bad: Bools, why: Callable[[int], str]
) -> _Part:
    """`good` selects the rows of the columns that are tuples, `bad` the rejected records of the piece."""
    table = pa.table({name: columns[name] for name, _ in text.columns})
    first = np.flatnonzero(bad)
    kept = [(piece.record(x), why(x)) for x in first[:MOST_KEPT].tolist()]
    return _Part(table if good.all() else table.filter(pa.array(good)), len(first), kept)


def as_lines(data: pa.Array) -> pa.Array:
    return _text(pa.chunked_array([data]))


def _text(column: pa.ChunkedArray) -> pa.Array:
    """Bytes as texts; invalid UTF-8 becomes U+FFFD."""
    chunks = [chunk.view(pa.string()) for chunk in column.chunks]
    return as_texts(pa.chunked_array(chunks, pa.string())).combine_chunks()
