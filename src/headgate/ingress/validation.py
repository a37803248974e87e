"""Validation: turns the rows of a stream into a tuple batch with event times and label numbers.

Each distinct label text is parsed once, however many tuples carry it; a tuple with an unreadable label is for nobody.
Rows are rejected if they are malformed, have a text that is too long, no event time or one too far ahead of the clock,
or a label that cannot be read. Rejected rows are kept for the owner of the stream with the reason (SPEC.md, 5.2):
nothing is lost silently.
"""

from __future__ import annotations

import datetime as dt
import math
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from logging import WARNING
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.factorize import codes
from headgate.columns.sorting import Bools, Ints, dense, repeated
from headgate.errors import HeadgateError, SourceError
from headgate.expressions.sql.forms import FIRST_MICROSECOND, LAST_MICROSECOND
from headgate.expressions.sql.types import ARROW
from headgate.labels import LEAST, Conjunction, Label, Level, Rules
from headgate.labels.column import LabelColumn, read_labels, read_roles
from headgate.labels.text import parse_label, parse_level, parse_roles
from headgate.logs import failure
from headgate.model.limits import Limits
from headgate.model.rejected import RejectedRows
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.plan.expressions import Type

_MOST_UNREADABLE = 10_000
"""How many unreadable label texts are remembered, so that they are not parsed again."""

NO_FORM = "it does not have the stream's form"
NO_TIME = "it has no event time"
AHEAD = "its event time is too far ahead"
NO_LABEL = "its label cannot be read"
TOO_LONG = "a text in it is too long"


def _brought(label: Label | None) -> Label | None:
    """The label that a tuple brings; None if it names sources. A tuple must not choose its sources: with the name of
    another source, it could open a source of WEAK semantics."""
    return None if label is None or label.sources else label


def _one_by_one(read: Callable[[str], Label]) -> _ReadTexts:
    def labels(texts: Sequence[str]) -> list[Label | None]:
        found: list[Label | None] = []
        for text in texts:
            try:
                found.append(read(text))
            except HeadgateError:
                found.append(None)
        return found

    return labels


def _by_column(read: Callable[[pa.Array], LabelColumn]) -> _ReadTexts:
    def labels(texts: Sequence[str]) -> list[Label | None]:
        column = read(pa.array(texts, pa.string()))
        known = [*column.labels, None]
        return [known[place] for place in column.index.tolist()]

    return labels


_ReadTexts = Callable[[Sequence[str]], list[Label | None]]
_levels = _one_by_one(lambda text: Label(levels=frozenset({parse_level(text)})))
_labels, _many_labels = _one_by_one(parse_label), _by_column(read_labels)
READERS: dict[str, _ReadTexts] = {
    "LABEL": lambda texts: [*map(_brought, _labels(texts))],
    "ROLES": _one_by_one(lambda text: Label(roles=Conjunction.of(parse_roles(text)))),
    "LEVEL": _levels,
}
COLUMN_READERS: dict[str, _ReadTexts] = {
    "LABEL": lambda texts: [*map(_brought, _many_labels(texts))],
    "ROLES": _by_column(read_roles),
    "LEVEL": _levels,
}
_PARSERS: dict[str, Callable[[str], object]] = {"LABEL": parse_label, "ROLES": parse_roles, "LEVEL": parse_level}
_LONGEST_FAULT = 200
_MANY = 64
"""From this many texts on, the compiled reader is faster."""


MOST_KEPT = 1_000
"""Rows of a batch that are kept for each reason of rejection; the rest are counted."""

MOST_SHOWN = 100_000
"""Characters that are kept of a text in a rejected row."""


@dataclass(frozen=True)
class RawBatch:
    """A batch with all its rows: those to be validated, in order of arrival; rows already rejected; and notes about the
    source for the owner of the stream."""

    table: pa.Table
    rejected: Sequence[RejectedRows] = ()
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return int(self.table.num_rows) + sum(map(len, self.rejected))


class Ingress:
    """Validates the rows of one stream; `number` gives label numbers."""

    def __init__(
        self, descriptor: StreamDescriptor, rules: Rules, number: Callable[[Label], int], limits: Limits | None = None
    ) -> None:
        self._descriptor = descriptor
        self._longest = (limits or Limits()).text
        self._rules = rules
        self._number = number
        self._known: dict[tuple[str | None, ...], int] = {}
        self._unreadable: set[tuple[str | None, ...]] = set()
        self._named: set[str] = set()
        if not descriptor.labels:
            self._numbers([()])

    def take(self, batch: pa.Table, now: int) -> tuple[TupleBatch, list[RejectedRows]]:
        """Validates a batch; `now` is the time of arrival, in milliseconds. Senders control what a batch contains: any
        failure becomes a SourceError of this stream alone, and no tuple of the batch enters."""
        try:
            return self._taken(batch, now)
        except Exception as error:
            failure("ingress", "a batch could not be validated", error, level=WARNING, stream=self._descriptor.name)
            what = "table" if self._descriptor.table else "stream"
            text = f"{what} {self._descriptor.name} could not be taken in ({type(error).__name__})"
            raise SourceError(text) from None

    def _taken(self, batch: pa.Table, now: int) -> tuple[TupleBatch, list[RejectedRows]]:
        rejected: list[RejectedRows] = []
        for number, field_ in enumerate(batch.schema):
            if pa.types.is_string(field_.type):
                batch = batch.set_column(number, field_.name, as_texts(batch.column(number)))
        batch = self._without(batch, self._too_long(batch), TOO_LONG, rejected)
        times = self._times(batch, now)
        batch = self._without(batch, times.is_null(), NO_TIME, rejected)
        times = times.drop_null()
        if self._descriptor.skew is not None:
            ahead = pc.greater(times, now + self._descriptor.skew)
            batch, times = self._without(batch, ahead, AHEAD, rejected), times.filter(pc.invert(ahead))
        labels, readable = self._labels(batch)
        if not readable.all():
            batch = self._without(batch, pa.array(~readable), NO_LABEL, rejected)
            rejected = self.explained(rejected)
            times, labels = times.filter(pa.array(readable)), labels[readable]
        columns = {name: fitting(batch.column(name), ARROW[type_]) for name, type_ in self._descriptor.columns}
        moments = np.asarray(times.to_numpy(zero_copy_only=False), np.int64)
        return TupleBatch(self._descriptor.name, moments, labels, columns), rejected

    def register(self, texts: Sequence[tuple[str | None, ...]]) -> None:
        """Reads labels before the tuples that carry them arrive."""
        self._numbers(list(texts))

    @property
    def known(self) -> Mapping[tuple[str | None, ...], int]:
        """Label numbers by the texts that the labels were read from."""
        return dict(self._known)

    @property
    def fixed(self) -> Collection[int]:
        """The number of the stream's one label, if its tuples bring no labels."""
        return () if self._descriptor.labels else self._known.values()

    def forget(self, labels: Collection[int]) -> None:
        """Forgets the texts of all labels but these, and the unreadable texts."""
        self._known = {texts: number for texts, number in self._known.items() if number in labels}
        self._unreadable.clear()

    def take_named(self) -> frozenset[str]:
        """The roles that labels name which were read since the last call. Labels above the policy of the stream do not
        count: what they say is not for its owner."""
        found, self._named = frozenset(self._named), set()
        return found

    @property
    def unreadable(self) -> frozenset[tuple[str | None, ...]]:
        """Texts that are not labels."""
        return frozenset(self._unreadable)

    def _without(self, batch: pa.Table, bad: pa.Array, reason: str, rejected: list[RejectedRows]) -> pa.Table:
        if not pc.any(bad).as_py():
            return batch
        found = batch.filter(bad)
        rejected.append(rejected_rows(self._descriptor.name, reason, found, found.num_rows))
        return batch.filter(pc.invert(bad))

    def _times(self, batch: pa.Table, now: int) -> pa.Array:
        if self._descriptor.event_time is None:
            return pa.array(np.full(batch.num_rows, now), pa.int64())
        column = fitting(batch.column(self._descriptor.event_time), ARROW[Type.TIMESTAMP])
        # whole milliseconds, rounded down, also before 1970
        if not column.null_count:
            return pa.array(column.cast(pa.int64()).to_numpy() // 1000)
        return pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())

    def _too_long(self, batch: pa.Table) -> pa.Array:
        texts = [batch.column(name) for name, type_ in self._descriptor.columns if type_ in (Type.STRING, Type.BINARY)]
        long = [pc.greater(pc.binary_length(x), self._longest).fill_null(False).combine_chunks() for x in texts]
        return reduce(pc.or_, long, pa.array(np.zeros(batch.num_rows, np.bool_)))

    def _labels(self, batch: pa.Table) -> tuple[Ints, Bools]:
        """The label number of each tuple, and which labels could be read; each distinct text is parsed once."""
        if not self._descriptor.labels:
            return repeated(int(self._numbers([()])[0]), batch.num_rows), np.ones(batch.num_rows, np.bool_)
        columns = [batch.column(name).combine_chunks() for name in self._descriptor.labels.values()]
        texts, kind = _distinct_text(columns[0]) if len(columns) == 1 else _distinct_texts(columns)
        known = self._numbers(texts)
        numbers = known[kind] if len(texts) else np.empty(0, np.int64)
        return numbers, np.ones(len(kind), np.bool_) if (known >= 0).all() else numbers >= 0

    def explained(self, rejected: Sequence[RejectedRows]) -> list[RejectedRows]:
        """The same rows, where labels cannot be read with the reason why."""
        return [
            replace(x, details=[*map(self._fault, x.rows)]) if x.reason == NO_LABEL and not x.details else x
            for x in rejected
        ]

    def _fault(self, row: Mapping[str, object]) -> str:
        """Why the label of a rejected row cannot be read."""
        for kind, column in self._descriptor.labels.items():
            text = row[column]
            if not isinstance(text, str) or not text.strip():
                return f"`{column}` has no text"
            try:
                found = _PARSERS[kind](text)
            except HeadgateError as error:
                return f"`{column}`: {error.message[:_LONGEST_FAULT]}"
            if isinstance(found, Label) and found.sources:
                return f"`{column}` names sources, which a tuple cannot choose"
            levels = found.levels if isinstance(found, Label) else {found} if isinstance(found, Level) else ()
            unknown = sorted(str(x) for x in levels if not self._rules.order.knows(x))
            if unknown:
                return f"`{column}`: there is no level {', '.join(unknown)[:_LONGEST_FAULT]}"
        return ""

    def _numbers(self, kinds: list[tuple[str | None, ...]]) -> Ints:
        known, unreadable = self._known, self._unreadable
        new = [texts for texts in kinds if texts not in known and texts not in unreadable]
        for texts, label in zip(new, self._read(new), strict=True):
            if label is None:
                unreadable.add(texts)
            else:
                known[texts] = self._number(label)
                if label.levels <= self._descriptor.policy.levels | {LEAST}:
                    self._named |= label.roles.names
        if len(unreadable) > _MOST_UNREADABLE:
            unreadable.clear()
        return np.array([known.get(texts, -1) for texts in kinds], np.int64)

    def _read(self, kinds: Sequence[tuple[str | None, ...]]) -> Iterator[Label | None]:
        """The labels of tuples that bring these texts; many texts are read as columns by the compiled reader."""
        readers = COLUMN_READERS if len(kinds) >= _MANY else READERS
        columns = [readers[kind]([texts[n] or "" for texts in kinds]) for n, kind in enumerate(self._descriptor.labels)]
        return map(self._combined, zip(*columns, strict=True) if columns else [()] * len(kinds))

    def _combined(self, brought: Sequence[Label | None]) -> Label | None:
        """The label of a tuple: the policy of its stream, the labels that it brings, and its stream as a source. None
        if a part is unreadable or names an unknown level."""
        policy = self._descriptor.policy
        label = Label(policy.roles, policy.levels, policy.sources | {self._descriptor.name})
        for part in brought:
            if part is None:
                return None
            label = self._rules.combine(label, part)
        return self._rules.normal(label) if all(map(self._rules.order.knows, label.levels)) else None


def malformed_together(parts: Sequence[RejectedRows]) -> list[RejectedRows]:
    """The malformed rows of all parts of a batch, each with its reason, as those of one batch."""
    if len(parts) <= 1:
        return list(parts)
    rows = [row for part in parts for row in part.rows][:MOST_KEPT]
    details = [why for part in parts for why in part.details][:MOST_KEPT]
    return [replace(parts[0], rows=rows, details=details, more=sum(map(len, parts)) - len(rows))]


def _distinct_text(column: pa.Array) -> tuple[list[tuple[str | None, ...]], Ints]:
    """The different texts of a column, and for each row which one it has."""
    encoded = column.dictionary_encode()
    texts: list[tuple[str | None, ...]] = [(text,) for text in encoded.dictionary.to_pylist()]
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(texts))
        texts.append((None,))
    return texts, indices.to_numpy()


def _distinct_texts(columns: Sequence[pa.Array]) -> tuple[list[tuple[str | None, ...]], Ints]:
    """The different rows of texts, and for each row which one it has."""
    kinds, kind = dense(codes(columns, null_is_a_value=True))
    example = np.empty(len(kinds), np.int64)
    example[kind] = np.arange(len(kind))
    return list(zip(*(column.take(pa.array(example)).to_pylist() for column in columns), strict=True)), kind


def as_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A text column with valid UTF-8. Files can hold other bytes, on which later stages would fail, and a failure there
    would concern every query: invalid UTF-8 becomes U+FFFD."""
    if all(map(_is_ascii, column.chunks)):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        given = column.cast(pa.string()).cast(pa.binary()).to_pylist()
        texts = pa.array([None if x is None else x.decode(errors="replace") for x in given], pa.string())
        return pa.chunked_array([texts]).cast(column.type)
    return column


def _is_ascii(array: pa.Array) -> bool:
    """Whether all bytes of an array of texts are ASCII, and so valid UTF-8, however they are cut into texts."""
    if not pa.types.is_string(array.type) or not len(array):
        return not len(array)
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    size = 0 if data is None else data.size
    if places[0] < 0 or places[-1] > size or (places[1:] < places[:-1]).any():
        return False  # Arrow says what is wrong with it
    if data is None or places[0] == places[-1]:
        return True
    return bool(np.frombuffer(data, np.int8)[places[0] : places[-1]].min() >= 0)


def fitting(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    """A column in the range of SPEC.md, 4.1: numbers that are not finite, and times outside of the years 1 to 9999, are
    NULL; -0.0 is 0.0."""
    whole = column.combine_chunks().cast(type_)
    if pa.types.is_temporal(type_):
        day = 86_400_000_000 if pa.types.is_date(type_) else 1
        numbers = whole.cast(pa.int32() if day > 1 else pa.int64()).cast(pa.int64())
        first, last = FIRST_MICROSECOND // day, LAST_MICROSECOND // day
        fits = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
        return whole if pc.all(fits).as_py() is not False else pc.if_else(fits, whole, None)
    if not pa.types.is_floating(type_):
        return whole
    return pc.if_else(pc.is_finite(whole), pc.add(whole, pa.scalar(0.0, type_)), None)


def _readable(table: pa.Table) -> pa.Table:
    """The table with texts in place of times that Python cannot represent."""
    for number, field_ in enumerate(table.schema):
        column = table.column(number)
        if pa.types.is_temporal(field_.type) and column.null_count < fitting(column, field_.type).null_count:
            table = table.set_column(number, field_.name, column.cast(pa.string()))
    return table


def rejected_rows(stream: str, reason: str, some: pa.Table, total: int) -> RejectedRows:
    """Rejected rows: `total` rows, of which `some` are given."""
    rows = _readable(some.slice(0, MOST_KEPT)).to_pylist()
    plain = [{name: shortened(plain_value(value)) for name, value in row.items()} for row in rows]
    return RejectedRows(stream, reason, plain, total - len(rows))


def shortened(value: object) -> object:
    """A value of a rejected row; a long text is cut."""
    long = isinstance(value, str) and len(value) > MOST_SHOWN
    return f"{value[:MOST_SHOWN]}..." if isinstance(value, str) and long else value


def plain_value(value: object) -> Any:
    """A value for JSON, which has only finite numbers: others become texts, and bytes become base64."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.isoformat() if isinstance(value, dt.date) else value
