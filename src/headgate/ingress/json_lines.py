"""Reads JSON lines, one object per line, into whole columns; one parser, that of DuckDB, decides what a line means.

A line with anything besides one object, or with a duplicate key, means different things to different parsers: it is
rejected. Keys that are not columns of the stream are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.sorting import Bools
from headgate.expressions.duck import kernel_answer
from headgate.expressions.sql.duck import Duck
from headgate.plan.expressions import Type

NO_OBJECT = "it is not one JSON object"
TWICE = "it has a key twice"

_WHOLE = ("UBIGINT", "BIGINT")
_KINDS: Mapping[Type, tuple[str, ...]] = {
    Type.BOOLEAN: ("BOOLEAN",),
    Type.INT: _WHOLE,
    Type.BIGINT: _WHOLE,
    Type.FLOAT: (*_WHOLE, "DOUBLE"),
    Type.DOUBLE: (*_WHOLE, "DOUBLE"),
    Type.TIMESTAMP: ("VARCHAR",),
    Type.DATE: ("VARCHAR",),
    Type.BINARY: ("VARCHAR",),
}
"""The JSON types, as DuckDB names them, that a value of each column type may have; a STRING may have any."""
_NOT_FINITE = "^[+-]?(NaN|INF|Infinity)$"


@dataclass(frozen=True)
class Objects:
    """The values of JSON lines, by column.

    texts: for each column its values as texts
    wrong: for each column the lines whose value has the wrong JSON type
    no_object: the lines that are not one object
    twice: the lines with a duplicate key
    """

    texts: Mapping[str, pa.Array]
    wrong: Mapping[str, Bools]
    no_object: Bools
    twice: Bools
    raw: Callable[[str, int], str]
    """The text of a value as it stands in JSON, by column and line; for error messages."""


def objects_of(lines: pa.Array, columns: Sequence[tuple[str, Type]]) -> Objects:
    paths = ", ".join(Duck().text("/" + name.replace("~", "~0").replace("/", "~1")) for name, _ in columns)
    found = kernel_answer(
        "WITH tried AS (SELECT line, CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' END AS one FROM given),"  # noqa: S608
        " read AS (SELECT coalesce(one, FALSE) AS fine, CASE WHEN one THEN line ELSE '{}' END AS line FROM tried)"
        f" SELECT fine, json_keys(line) AS keys, json_extract_string(line, [{paths}]) AS texts,"
        f" json_type(line, [{paths}]) AS kinds FROM read",
        pa.table({"line": lines}),
    )
    split = {x: _split(found.column(x).combine_chunks(), len(columns)) for x in ("texts", "kinds")}
    texts, wrong = dict[str, pa.Array](), dict[str, Bools]()
    for number, (name, type_) in enumerate(columns):
        text, kind = split["texts"][number], split["kinds"][number]
        if type_ in _KINDS:
            other = pc.invert(pc.is_in(kind, pa.array([*_KINDS[type_], "NULL"]), skip_nulls=True))
            other = pc.and_(other, kind.is_valid())
            if type_ in (Type.FLOAT, Type.DOUBLE):
                other = pc.and_not(other, pc.match_substring_regex(text, _NOT_FINITE).fill_null(False))
            if pc.any(other).as_py():
                wrong[name] = np.asarray(other)
                texts[name] = pc.if_else(other, None, text)
                continue
        texts[name] = text
    numbers = {name: number for number, (name, _) in enumerate(columns)}

    def raw(name: str, row: int) -> str:
        text, kind = (str(split[x][numbers[name]][row].as_py()) for x in ("texts", "kinds"))
        return f'"{text}"' if kind == "VARCHAR" else text

    none = ~np.asarray(found.column("fine"))
    return Objects(texts, wrong, none, _twice(found.column("keys").combine_chunks()), raw)


def _split(lists: pa.ListArray, size: int) -> list[pa.Array]:
    """Splits lists of `size` values each into `size` columns."""
    flat = lists.flatten()
    return [flat.take(pa.array(np.arange(number, len(flat), size))) for number in range(size)]


def _twice(keys: pa.ListArray) -> Bools:
    """The lists with a duplicate key."""
    found = np.zeros(len(keys), np.bool_)
    flat = keys.flatten().dictionary_encode()
    codes, rows = np.asarray(flat.indices, np.int64), np.asarray(pc.list_parent_indices(keys), np.int64)
    width = len(flat.dictionary)
    if width and len(codes) == width * len(keys) and (codes.reshape(-1, width) == codes[:width]).all():
        return found  # all lines have the same keys, without duplicates
    both = np.sort(rows * width + codes)
    found[both[1:][both[1:] == both[:-1]] // max(width, 1)] = True
    return found
