"""Converts the texts of text files to values, as CAST does (SPEC.md, 4.1).

A text that CAST cannot convert makes its row malformed; the reason names the column and the expected type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.sorting import Bools
from headgate.expressions.duck import evaluate, kernel_answer
from headgate.expressions.sql import forms
from headgate.expressions.sql.types import ARROW
from headgate.plan.expressions import AggregateCall, Cast, Column, Type

_NUMBERS = f"^ *(({forms.NUMBER})|[+-]?(?i:nan|inf|infinity)) *$"
"""Texts that are numbers. Those without a finite value become NULL and do not make the row malformed."""
_FINE = "([.][0-9]{6})[0-9]+"
_FLOATING = frozenset({Type.FLOAT, Type.DOUBLE})
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
"""BINARY as text: base64 of RFC 4648, padded and in one line."""
_PLAIN = {
    Type.INT: "^-?[0-9]{1,9}$",
    Type.BIGINT: "^-?[0-9]{1,18}$",
    Type.DOUBLE: "^-?[0-9]{1,15}([.][0-9]{1,15})?$",
}
"""Texts that Arrow reads as CAST does."""
_FEW = 4096
"""Up to so many texts Arrow has read them before a query has begun."""
_MOST_SHOWN = 100


@dataclass(frozen=True)
class Values:
    """The columns of a stream, and for each column the rows whose text cannot be converted."""

    columns: Mapping[str, pa.Array]
    wrong: Mapping[str, Bools]


def values_of(texts: Mapping[str, pa.Array], columns: Sequence[tuple[str, Type]]) -> Values:
    """Converts the texts of each column; NULL stays NULL."""
    found, wrong = {**texts, **_cast(texts, columns)}, dict[str, Bools]()
    for name, type_ in columns:
        text = texts[name]
        if found[name].null_count > text.null_count:
            bad = pc.and_(found[name].is_null(), text.is_valid())
            if type_ in _FLOATING:
                bad = pc.and_not(bad, pc.match_substring_regex(text, _NUMBERS).fill_null(False))
            if pc.any(bad).as_py():
                wrong[name] = np.asarray(bad)
    return Values({name: found[name] for name, _ in columns}, wrong)


def _cast(texts: Mapping[str, pa.Array], columns: Sequence[tuple[str, Type]]) -> dict[str, pa.Array]:
    """Converts all texts of columns that are no STRING: one query costs less than one for each. A BINARY is base64. A
    TIMESTAMP may be a date only, or finer than microseconds (cut off)."""
    found = {name: _bytes(texts[name]) for name, type_ in columns if type_ == Type.BINARY}
    found |= {name: plain for name, type_ in columns if (plain := _plain(texts[name], type_)) is not None}
    cast = {
        Column(0, name, Type.STRING): type_ for name, type_ in columns if type_ != Type.STRING and name not in found
    }
    given: dict[Column | AggregateCall, pa.Array] = {}
    for column, type_ in cast.items():
        text = texts[column.name]
        given[column] = pc.replace_substring_regex(text, _FINE, "\\1") if type_ == Type.TIMESTAMP else text
    size = max(map(len, given.values()), default=0)
    for column, values in zip(cast, evaluate([Cast(*x) for x in cast.items()], given, size), strict=True):
        type_ = cast[column]
        if type_ == Type.TIMESTAMP and values.null_count > given[column].null_count:
            (days,) = evaluate([Cast(Cast(column, Type.DATE), type_)], given, size)
            values = pc.coalesce(values, days)
        found[column.name] = values.cast(ARROW[type_])
    return found


def _plain(text: pa.Array, type_: Type) -> pa.Array | None:
    """The values of a few texts that all are plain numbers; None: they need a query."""
    if type_ not in _PLAIN or len(text) > _FEW:
        return None
    if not pc.all(pc.match_substring_regex(text, _PLAIN[type_]), min_count=0).as_py():
        return None
    return text.cast(ARROW[type_])


def _bytes(text: pa.Array) -> pa.Array:
    sql = f"SELECT CASE WHEN regexp_matches(text, '{_BASE64}') THEN from_base64(text) END AS data FROM given"  # noqa: S608
    return kernel_answer(sql, pa.table({"text": text})).column("data").combine_chunks().cast(ARROW[Type.BINARY])


def wrong_value(name: str, text: str, type_: Type) -> str:
    """The reason why a row is malformed."""
    shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    what = "BINARY in base64" if type_ == Type.BINARY else type_
    return f"{name}: `{shown}` is not {what}"
