"""Limits on what one view may cost. They depend only on what the view itself sees, never on the data or the number of
other views.

Every operation whose result may be larger than its input asks here first. A refusal ends one block for the views that
share its computation; everything else continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.logs import failure
from headgate.model.budget import LimitExceeded, Meter, Metered, charge, record_rows
from headgate.model.limits import Limits
from headgate.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal, Type

Values = Mapping[Column | AggregateCall, pa.Array]
Evaluate = Callable[[Sequence[Expr], Values, int], list[pa.Array]]

CANNOT = "it needs more memory than there is; use smaller windows, or give the engine more memory"
FAILS = "it cannot be computed"


_USUAL = Limits()
_LIMITS: ContextVar[Limits] = ContextVar("limits", default=_USUAL)


class Limited:
    """A context: apply these limits to the code inside, and charge its cost to the meter.

    Every other error of that code also counts as a limit: it would recur with each retry and stop everybody's work. The
    notice names the type of the error and not its text, which may hold values of tuples.
    """

    def __init__(self, limits: Limits, meter: Meter) -> None:
        self._limits = limits
        self._metered = Metered(meter)

    def __enter__(self) -> None:
        self._token = _LIMITS.set(self._limits)
        self._metered.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._metered.__exit__(kind, error, trace)
        _LIMITS.reset(self._token)
        if isinstance(error, MemoryError):
            raise LimitExceeded(CANNOT) from None
        if isinstance(error, Exception) and not isinstance(error, LimitExceeded):
            failure("operators", "a block cannot be computed", error)
            raise LimitExceeded(f"{FAILS} ({type(error).__name__})") from None


def few_rows(counts: npt.NDArray[np.int64]) -> None:
    """Check the sum of the counts. It is computed in doubles, because integers would overflow."""
    limits, count = _LIMITS.get(), float(counts.sum(dtype=np.float64))
    if count > limits.rows:
        raise LimitExceeded(limits.exceeded("rows"))
    record_rows(int(count))


def taken(column: pa.Array, rows: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Rows of a column, possibly repeated; NULL where the mask is set."""
    charge(size_of(lengths_of(column), rows))
    return column.take(pa.array(rows, mask=mask))


def lengths_of(column: pa.Array) -> npt.NDArray[np.int32] | None:
    """The lengths of texts in bytes; None if the column does not hold texts or bytes."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return None
    found: npt.NDArray[np.int32] = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def size_of(lengths: npt.NDArray[np.int32] | None, rows: npt.NDArray[np.int64]) -> int:
    """The size in bytes of a column with texts of these lengths in these rows."""
    if lengths is None:
        return _NUMBER * len(rows)
    return int(lengths[rows].sum(dtype=np.int64)) + _OFFSET * len(rows)


def bounded(evaluate: Evaluate) -> Evaluate:
    """Wrap `evaluate` with limits: no text may become too long (only CONCAT makes long texts), and everything computed
    is charged. A column passed on unchanged is charged only from the second time on."""

    def within(exprs: Sequence[Expr], values: Values, size: int) -> list[pa.Array]:
        charge(cost_of(exprs, values, size))
        return evaluate(exprs, values, size)

    return within


def cost_of(exprs: Iterable[Expr], values: Values, size: int) -> int:
    """The bytes that computing these expressions is charged. The values matter only where texts are made."""
    given, cost = set[Expr](), 0
    for expr in exprs:
        cost += sum(_text(part, values, size) for part in _joining(expr) if part is not expr)
        if expr in given or not isinstance(expr, Column | AggregateCall):
            cost += _text(expr, values, size) if expr.type in _LONG else _WIDTHS.get(expr.type, _NUMBER) * size
        given.add(expr)
    return cost


def _joining(expr: Expr) -> Iterator[Expr]:
    """All CONCATs of an expression, except inside aggregates, whose values are given."""
    if isinstance(expr, Call) and expr.function == "CONCAT":
        yield expr
    if not isinstance(expr, AggregateCall):
        for part in expr.parts:
            yield from _joining(part)


def _text(expr: Expr, values: Values, size: int) -> int:
    """An upper bound of the size in bytes of an expression's texts."""
    longest, together = _most(expr, values, size)
    if longest > _LIMITS.get().text:
        raise LimitExceeded(_LIMITS.get().exceeded("text"))
    return together + _OFFSET * size


def _most(expr: Expr, values: Values, size: int) -> tuple[int, int]:
    """Upper bounds of the bytes of one text, and of all texts together."""
    match expr:
        case Column() | AggregateCall() if expr.type in _LONG:
            lengths = pc.binary_length(values[expr])
            return pc.max(lengths).as_py() or 0, pc.sum(lengths).as_py() or 0
        case Literal(str(value)):
            found = len(value.encode(errors="replace"))
            return found, found * size
        case Literal(bytes(data)):
            return len(data), len(data) * size
        case Cast(operand) if operand.type not in _LONG:
            return 64, 64 * size
    parts = [_most(part, values, size) for part in expr.parts if part.type in _LONG] or [(0, 0)]
    if isinstance(expr, Call) and expr.function == "CONCAT":
        return sum(longest for longest, _ in parts), sum(together for _, together in parts)
    longest = max(longest for longest, _ in parts)
    return longest, min(sum(together for _, together in parts), longest * size)


_LONG = (Type.STRING, Type.BINARY)
"""Types whose values have any length."""
_OFFSET, _NUMBER = 4, 8
"""Bytes that each text needs for its offset, and bytes of any other value unless `_WIDTHS` says less."""
_WIDTHS = {Type.BOOLEAN: 1, Type.INT: 4, Type.FLOAT: 4, Type.DATE: 4}
