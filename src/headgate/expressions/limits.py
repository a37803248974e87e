"""How much one view may cost, judged by what that view itself sees: never by what others have, or how many they are.

Every operation whose result may be larger than what it is given asks here before it begins. What is refused is one
block for the views that look at it alike; everything else goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.budget import LimitExceeded as TooMuch
from headgate.model.budget import Meter, charge, metered
from headgate.model.limits import Limits
from headgate.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal, Type

Values = Mapping[Column | AggregateCall, pa.Array]
Evaluate = Callable[[Sequence[Expr], Values, int], list[pa.Array]]

CANNOT = "it needs more memory than there is"
FAILS = "it cannot be computed"


_USUAL = Limits()
_LIMITS: ContextVar[Limits] = ContextVar("limits", default=_USUAL)


@contextmanager
def limited(limits: Limits, meter: Meter) -> Iterator[None]:
    """What is computed inside is within these, and counted there. Whatever else may go wrong with it is its own matter
    too: it would go wrong again with each new try, and nobody's work would go on any more. The kind of error is said,
    and not its text, which may hold values of tuples."""
    token = _LIMITS.set(limits)
    try:
        with metered(meter):
            yield
    except TooMuch:
        raise
    except MemoryError:
        raise TooMuch(CANNOT) from None
    except Exception as error:
        raise TooMuch(f"{FAILS} ({type(error).__name__})") from None
    finally:
        _LIMITS.reset(token)


def few_rows(counts: npt.NDArray[np.int64]) -> None:
    """All of them together: as doubles, since whole numbers turn around where they end."""
    most = _LIMITS.get().rows
    if counts.sum(dtype=np.float64) > most:
        raise TooMuch(f"it has more than {most:,} rows at once")


def few_tuples(count: int) -> None:
    most = _LIMITS.get().tuples
    if count > most:
        raise TooMuch(f"its windows hold more than {most:,} tuples")


def taken(column: pa.Array, rows: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Some rows of a column, some of them perhaps many times; NULL where the mask says so."""
    charge(size_of(lengths_of(column), rows))
    return column.take(pa.array(rows, mask=mask))


def lengths_of(column: pa.Array) -> npt.NDArray[np.int32] | None:
    """Of texts, in bytes; None: it holds something else."""
    if not pa.types.is_string(column.type):
        return None
    found: npt.NDArray[np.int32] = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def size_of(lengths: npt.NDArray[np.int32] | None, rows: npt.NDArray[np.int64]) -> int:
    """How many bytes a column with texts of these lengths has in these rows."""
    if lengths is None:
        return _NUMBER * len(rows)
    return int(lengths[rows].sum(dtype=np.int64)) + _OFFSET * len(rows)


def bounded(evaluate: Evaluate) -> Evaluate:
    """The same, within what may be computed: texts stay short, of which only CONCAT makes long ones, and all that is
    made counts. A column that is handed on as it is counts only from the second time on."""

    def within(exprs: Sequence[Expr], values: Values, size: int) -> list[pa.Array]:
        given, cost = set[Expr](), 0
        for expr in exprs:
            cost += sum(_text(part, values, size) for part in _joining(expr) if part is not expr)
            if expr in given or not isinstance(expr, Column | AggregateCall):
                cost += (
                    _text(expr, values, size) if expr.type == Type.STRING else _WIDTHS.get(expr.type, _NUMBER) * size
                )
            given.add(expr)
        charge(cost)
        return evaluate(exprs, values, size)

    return within


def _joining(expr: Expr) -> Iterator[Expr]:
    """All CONCATs of an expression; aggregates are given, whatever they are of."""
    if isinstance(expr, Call) and expr.function == "CONCAT":
        yield expr
    if not isinstance(expr, AggregateCall):
        for part in expr.parts:
            yield from _joining(part)


def _text(expr: Expr, values: Values, size: int) -> int:
    """How many bytes the texts of an expression can have at most."""
    longest, together = _most(expr, values, size)
    if longest > (most := _LIMITS.get().text):
        raise TooMuch(f"a text of it may have more than {most:,} bytes")
    return together + _OFFSET * size


def _most(expr: Expr, values: Values, size: int) -> tuple[int, int]:
    """How many bytes a text can have at most, and all of them together."""
    match expr:
        case Column() | AggregateCall() if expr.type == Type.STRING:
            lengths = pc.binary_length(values[expr])
            return pc.max(lengths).as_py() or 0, pc.sum(lengths).as_py() or 0
        case Literal(str(value)):
            found = len(value.encode(errors="replace"))
            return found, found * size
        case Cast(operand) if operand.type != Type.STRING:
            return 64, 64 * size
    parts = [_most(part, values, size) for part in expr.parts if part.type == Type.STRING] or [(0, 0)]
    if isinstance(expr, Call) and expr.function == "CONCAT":
        return sum(longest for longest, _ in parts), sum(together for _, together in parts)
    longest = max(longest for longest, _ in parts)
    return longest, min(sum(together for _, together in parts), longest * size)


_OFFSET, _NUMBER = 4, 8
"""Bytes that each text has beside its own, and those of any other value, if it has no fewer."""
_WIDTHS = {Type.BOOLEAN: 1, Type.INT: 4, Type.FLOAT: 4, Type.DATE: 4}
