"""Codes of keys: one number for each different row of several columns, the same for as long as an operator lives.

`columns/factorize.py` does this for one batch; here groups and the sides of joins find what earlier batches left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.loops.arrow import Bools, Ints, bytes_of, is_text, number_type, numbers_of, one_chunk, valid_of
from headgate.loops.hashing import Interner
from headgate.loops.texthash import TextInterner

NULL_CODE = -1


class KeyCodes:
    """Codes 0, 1, 2 .. for rows of columns of these types, in the order in which they first come.

    Columns are folded from left to right: the code of the columns so far and the value of the next one are the key of
    the next code. `len()` is the number of codes given.
    """

    def __init__(self, *types: pa.DataType) -> None:
        if not types:
            raise ValueError("there is nothing to tell rows apart by")
        self._kinds = [_kind(type_) for type_ in types]
        self._texts = [TextInterner() if is_text(type_) else None for type_ in types]
        # The numbers of texts are codes already, so a first column of texts is not folded.
        self._folds = [Interner() if n or texts is None else None for n, texts in enumerate(self._texts)]

    def __len__(self) -> int:
        last = self._texts[-1] if self._folds[-1] is None else self._folds[-1]
        assert last is not None  # noqa: S101  each column has one of them
        return len(last)

    def codes(self, arrays: Sequence[pa.Array | pa.ChunkedArray], *, null_is_a_value: bool) -> Ints:
        """One code for each row. NULL is a value of its own (groups) or makes the code -1 (joins)."""
        columns = [one_chunk(array) for array in arrays]
        if [_kind(column.type) for column in columns] != self._kinds:
            types = ", ".join(str(column.type) for column in columns)
            raise ValueError(f"cannot compare keys of types `{types}`: they are {', '.join(self._kinds)}")
        if null_is_a_value or not any(column.null_count for column in columns):
            return self._folded(columns)
        whole = np.ones(len(columns[0]), np.bool_)
        for column in columns:
            whole &= _present(column)
        found = np.full(len(whole), NULL_CODE, np.int64)
        chosen = pa.array(whole)
        found[whole] = self._folded([column.filter(chosen) for column in columns])
        return found

    def _folded(self, columns: Sequence[pa.Array]) -> Ints:
        codes: Ints | None = None
        for column, texts, fold in zip(columns, self._texts, self._folds, strict=True):
            valid = valid_of(column)
            if texts is not None:
                values, valid = texts.numbers(*bytes_of(column), valid), None
            else:
                values = _whole(column)
            codes = values if fold is None else fold.numbers(values, _first_part(codes, valid))
        assert codes is not None  # noqa: S101  there is a column
        return codes


def _kind(type_: pa.DataType) -> str:
    """What values are compared as: those of different kinds are never equal."""
    if is_text(type_):
        return str(type_)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return "integers" if np.issubdtype(number_type(type_), np.integer) else "doubles"
    number_type(type_)
    return "timestamps" if pa.types.is_timestamp(type_) else str(type_)


def _present(column: pa.Array) -> Bools:
    valid = valid_of(column)
    return np.ones(len(column), np.bool_) if valid is None else valid


def _first_part(codes: Ints | None, valid: Bools | None) -> Ints | None:
    """The code so far and whether the next value is NULL, as one number; None where it is 0 for all rows."""
    if codes is None:
        return None if valid is None else (~valid).astype(np.int64)
    return 2 * codes if valid is None else 2 * codes + ~valid


def _whole(column: pa.Array) -> Ints:
    """Values as whole numbers: equal ones, and only those, are the same number. There is one zero and one NaN."""
    values = numbers_of(column)
    if not np.issubdtype(values.dtype, np.floating):
        return values.astype(np.int64, copy=False)
    doubles = values.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    doubles[np.isnan(doubles)] = np.nan
    return doubles.view(np.int64)
