"""Narrow integer columns: memory dominates the cost of whole columns, and most label columns have few distinct numbers.

A column of at most 255 kinds (numbers 0, 1, 2, ...) is stored as bytes, any other unchanged. Callers widen a column
before they do arithmetic with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Bools, Ints

MOST = 255
_FEW, _MANY_ROWS = 24, 20_000
"""Up to this many kinds, and for more rows than this, comparing with each kind takes a fraction of the time that
counting takes."""


def narrowed(numbers: Ints, kinds: int) -> Ints:
    """The same numbers, in the narrowest type that holds this many kinds."""
    return numbers.astype(np.uint8) if kinds <= MOST and numbers.dtype != np.uint8 else numbers


def widened(numbers: Ints) -> Ints:
    return numbers.astype(np.int64, copy=False)


def offsets(numbers: Ints) -> tuple[int, Ints]:
    """The least number, and how far each lies above it, in the narrowest type that holds that; or 0 and the numbers
    themselves, where they lie too far apart."""
    least, most = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if most - least >= 1 << 63:
        return 0, numbers
    return least, (numbers - least if least else numbers).astype(np.min_scalar_type(most - least))


def above(least: int, distances: Ints) -> Ints:
    """The numbers that `offsets` was given, as 64-bit ones."""
    return distances.astype(np.int64) + least


_STEPS, _OFFSETS = "steps", "offsets"
_NARROW = b"narrow "
"""The metadata of a table says of each narrow column, under this and its name, how to read it."""


def narrow_table(table: pa.Table) -> pa.Table:
    """The same table in fewer bytes: whole numbers as offsets from the least one or, if they ascend in small steps, as
    these steps."""
    known = dict(table.schema.metadata or {})
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_signed_integer(field.type) and not column.null_count and len(column):
            how, first, numbers = _narrowest(column.to_numpy())
            if numbers.dtype.itemsize < field.type.bit_width // 8:
                known[_NARROW + field.name.encode()] = f"{how} {first} {field.type}".encode()
                table = table.set_column(place, field.name, pa.array(numbers))
    return table.replace_schema_metadata(known)


def widened_table(table: pa.Table) -> pa.Table:
    """The table that `narrow_table` was given."""
    known = dict(table.schema.metadata or {})
    for name in [key.removeprefix(_NARROW) for key in known if key.startswith(_NARROW)]:
        how, first, type_ = known.pop(_NARROW + name).decode().split()
        numbers = table.column(name.decode()).to_numpy()
        if how == _STEPS:
            numbers = np.cumsum(numbers, dtype=np.int64)
        wide = above(int(first), numbers)
        place = table.schema.get_field_index(name.decode())
        table = table.set_column(place, name.decode(), pa.array(wide, pa.type_for_alias(type_)))
    return table.replace_schema_metadata(known)


def _narrowest(numbers: Ints) -> tuple[str, int, Ints]:
    """How they are written, the number that is added to all, and what is written."""
    first, found = offsets(numbers)
    if found.dtype.itemsize > 1:
        steps = np.diff(numbers, prepend=numbers[:1])
        if steps.min() >= 0 and np.min_scalar_type(steps.max()).itemsize < found.dtype.itemsize:
            return _STEPS, int(numbers[0]), steps.astype(np.min_scalar_type(steps.max()))
    return _OFFSETS, first, found


def used(numbers: Ints, kinds: int) -> Bools:
    """For each kind, whether it occurs."""
    if numbers.dtype == np.uint8 and kinds <= _FEW and len(numbers) > _MANY_ROWS:
        return np.array([bool((numbers == kind).any()) for kind in range(kinds)], np.bool_)
    return np.bincount(numbers, minlength=kinds) > 0


def positions_of(there: Bools) -> list[int]:
    """For each kind its position among the kinds that occur."""
    places: list[int] = np.maximum(np.cumsum(there) - 1, 0).tolist()
    return places


def renumbered(numbers: Ints, others: Sequence[int]) -> Ints:
    """Replaces number n by `others[n]`. INVARIANT: the new numbers fit the type that the old ones have."""
    if numbers.dtype == np.uint8:
        return np.frombuffer(numbers.tobytes().translate(bytes(others).ljust(256, b"\0")), np.uint8)
    return np.array(others, np.int64)[numbers]


def of_kinds(numbers: Ints, chosen: Sequence[bool]) -> Bools:
    """The rows whose number is one of the chosen kinds."""
    if numbers.dtype == np.uint8:
        return renumbered(numbers, [int(x) for x in chosen]).view(np.bool_)
    return np.array(chosen, np.bool_)[numbers]
