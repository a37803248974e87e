"""Splits text files into records: lines, or rows of CSV as defined by RFC 4180.

This is the only place that decides where a record ends. A line break ends a row of CSV unless an odd number of quotes
stands before it: so no value can split a well-formed row in two. A row with damaged quotes ends where the same count
says, and is rejected whole; nothing else in it decides about the rows after it. Files are read in pieces, so that
neither a whole file nor an endless record is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow import csv

from headgate.columns.sorting import Bools, Ints
from headgate.errors import SourceError

PIECE = 8 << 20
"""Bytes that are read from a file at a time."""

LONGEST = 16 << 20
"""Bytes of a record without its line break; a longer record is rejected."""

SHOWN = 4096
"""Bytes that are kept of a rejected record."""

_LF, _CR = 10, 13
_MARK = b"\xef\xbb\xbf"
NOT_CLOSED = "a quote in it is not doubled or not closed, or a line break not quoted"
TOO_LONG = f"it is longer than {LONGEST:,} bytes"


@dataclass(frozen=True)
class Form:
    """The syntax of records: lines, or CSV rows with their separator and quote character (empty: nothing is quoted).
    `null` is a text that stands for NULL, besides the empty text."""

    separator: str = ","
    quote: str = ""
    null: str = ""


class ByteSource(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class RecordChunk:
    """Consecutive whole records of a file; or the beginning of one record that is too long."""

    data: bytes
    form: Form
    too_long: bool = False

    @cached_property
    def _bytes(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return np.frombuffer(self.data, np.uint8)

    @cached_property
    def _quotes(self) -> Ints:
        return _found(self._bytes, self.form.quote)

    def _outside(self, places: Ints) -> Ints:
        """The offsets that are not between quotes."""
        return places[np.searchsorted(self._quotes, places) % 2 == 0] if len(self._quotes) else places

    @cached_property
    def ends(self) -> Ints:
        """The offsets of the line breaks that end a record."""
        return self._outside(np.flatnonzero(self._bytes == _LF))

    @cached_property
    def bounds(self) -> Ints:
        """The offsets at which records begin, and the end of the last one."""
        last = [] if len(self.ends) and self.ends[-1] == len(self.data) - 1 else [len(self.data)]
        return np.concatenate([[0], self.ends + 1, last]).astype(np.int64)

    def record(self, number: int) -> str:
        """The text of a record, or its beginning."""
        begin, end = self.bounds[number : number + 2].tolist()
        return self.data[begin : min(end, begin + SHOWN)].decode(errors="replace").rstrip("\r\n")

    # As lines ---------------------------------------------------------------------------------------------------------

    @property
    def lines(self) -> pa.Array:
        """Each record with the line break that ends it, as bytes."""
        offsets = pa.py_buffer(self.bounds.astype(np.int32))
        return pa.Array.from_buffers(pa.binary(), len(self.bounds) - 1, [None, offsets, pa.py_buffer(self.data)])

    # As rows of CSV ---------------------------------------------------------------------------------------------------

    @cached_property
    def blank(self) -> Bools:
        """The empty records."""
        begins, ends = self.bounds[:-1], self.bounds[1:]
        only = self._bytes[begins] if len(begins) else np.empty(0, np.uint8)
        return np.asarray(((ends - begins == 1) & (only == _LF)) | ((ends - begins == 2) & (only == _CR)), np.bool_)

    @cached_property
    def fields(self) -> Ints:
        """How many values each record has."""
        separators = self._outside(_found(self._bytes, self.form.separator))
        return np.diff(np.searchsorted(separators, self.bounds)) + 1

    @cached_property
    def damaged(self) -> Bools:
        """The records with a misplaced or missing quote, or with a carriage return outside of a line break."""
        data = np.concatenate([self._bytes, np.array([_LF, _LF], np.uint8)])
        separator, quote = (ord(x) if x else 0 for x in (self.form.separator, self.form.quote))
        opening, closing = self._quotes[0::2], self._quotes[1::2]
        before, after, then = data[opening - 1], data[closing + 1], data[closing + 2]
        begins = (opening == 0) | np.isin(before, (separator, _LF, quote))
        ends = np.isin(after, (separator, _LF, quote)) | ((after == _CR) & (then == _LF))
        returns = self._outside(np.flatnonzero(self._bytes == _CR))
        wrong = [opening[~begins], closing[~ends], returns[data[returns + 1] != _LF], opening[len(closing) :]]
        found = np.zeros(len(self.bounds) - 1, np.bool_)
        found[np.searchsorted(self.bounds, np.concatenate(wrong), side="right") - 1] = True
        return found

    def rows(self, chosen: Bools, names: list[str]) -> pa.Table:
        """The values of the chosen records as bytes; NULL for an unquoted value that is empty or `form.null`.

        INVARIANT: each chosen record has as many values as there are names."""
        data = self.data if chosen.all() else self._bytes[np.repeat(chosen, np.diff(self.bounds))].tobytes()
        if not data:
            return pa.table({name: pa.array([], pa.binary()) for name in names})
        found = csv.read_csv(
            pa.py_buffer(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            csv.ParseOptions(
                delimiter=self.form.separator,
                quote_char=self.form.quote or False,
                double_quote=True,
                escape_char=False,
                newlines_in_values=True,
            ),
            csv.ConvertOptions(
                check_utf8=False,
                column_types={name: pa.binary() for name in names},
                null_values=["", self.form.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        if found.num_rows != np.count_nonzero(chosen):
            raise SourceError("its rows cannot be told apart")
        return found


def _found(data: np.ndarray[tuple[int], np.dtype[np.uint8]], character: str) -> Ints:
    return np.flatnonzero(data == ord(character)) if character else np.empty(0, np.int64)


def pieces(stream: ByteSource, form: Form) -> Iterator[RecordChunk]:
    """All records of a file, in order."""
    rest, first = b"", True
    while data := stream.read(PIECE):
        data = rest + (data.removeprefix(_MARK) if first else data)
        first = False
        ends = RecordChunk(data, form).ends
        yield from _whole(data, ends, form)
        rest = data[int(ends[-1]) + 1 :] if len(ends) else data
        if len(rest) > LONGEST:
            yield RecordChunk(rest[:SHOWN], form, too_long=True)
            rest = _after(stream, form, rest.count(form.quote.encode()) % 2 if form.quote else 0)
    if rest:
        yield RecordChunk(rest, form)


def _whole(data: bytes, ends: Ints, form: Form) -> Iterator[RecordChunk]:
    """The records that end in these bytes, together but for those that are too long."""
    begins, at = np.concatenate([[0], ends + 1]), 0
    for place in np.flatnonzero(ends - begins[:-1] > LONGEST).tolist():
        begin = int(begins[place])
        if at < begin:
            yield RecordChunk(data[at:begin], form)
        yield RecordChunk(data[begin : begin + SHOWN], form, too_long=True)
        at = int(begins[place + 1])
    if at < begins[-1]:
        yield RecordChunk(data[at : int(begins[-1])], form)


def _after(stream: ByteSource, form: Form, odd: int) -> bytes:
    """Skips the rest of a record, in which `odd` quotes (0 or 1) are open; returns the bytes after it."""
    while data := stream.read(PIECE):
        held = form.quote.encode() * odd + data
        ends = RecordChunk(held, form).ends
        if len(ends):
            return held[int(ends[0]) + 1 :]
        odd = held.count(form.quote.encode()) % 2 if form.quote else 0
    return b""
