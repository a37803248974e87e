"""How much one view may cost, judged by what that view itself sees: never by what others have, or how many they are.

Every operation whose result may be larger than what it is given asks here before it begins. What is refused is one
block for the views that look at it alike; everything else goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal, Type

Values = Mapping[Column | AggregateCall, pa.Array]
Evaluate = Callable[[Sequence[Expr], Values, int], list[pa.Array]]

CANNOT = "it needs more memory than there is"
FAILS = "it cannot be computed"


@dataclass(frozen=True)
class Limits:
    """Of one view: rows that it combines or looks at in one batch, tuples that its windows hold and that wait for
    their time, bytes of one text, and bytes of one column of texts."""

    rows: int = 10_000_000
    tuples: int = 10_000_000
    text: int = 1_000_000
    texts: int = 1 << 30


class TooMuch(Exception):
    """What a view asked for goes beyond its limits; says in one line which."""


_USUAL = Limits()
_LIMITS: ContextVar[Limits] = ContextVar("limits", default=_USUAL)


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """What is computed inside is within these. Whatever else may go wrong with it is its own matter too: it would go
    wrong again with each new try, and nobody's work would go on any more. The kind of error is said, and not its text,
    which may hold values of tuples."""
    token = _LIMITS.set(limits)
    try:
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


def taken(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Some rows of a column, some of them perhaps many times."""
    if pa.types.is_string(column.type):
        longest, _ = _size_of(column)
        if longest * len(rows) > _LIMITS.get().texts:
            lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
            _short(longest, int(lengths[rows].sum()))
    return column.take(pa.array(rows))


def bounded(evaluate: Evaluate) -> Evaluate:
    """The same, for texts that stay short: only CONCAT makes long ones of short ones."""

    def within(exprs: Sequence[Expr], values: Values, size: int) -> list[pa.Array]:
        for expr in exprs:
            for part in _joining(expr):
                _short(*_most(part, values, size))
        return evaluate(exprs, values, size)

    return within


def _joining(expr: Expr) -> Iterator[Expr]:
    """The outermost CONCATs of an expression; aggregates are given, whatever they are of."""
    if isinstance(expr, Call) and expr.function == "CONCAT":
        yield expr
    elif not isinstance(expr, AggregateCall):
        for part in expr.parts:
            yield from _joining(part)


def _short(longest: int, together: int) -> None:
    limits = _LIMITS.get()
    if longest > limits.text:
        raise TooMuch(f"a text of it may have more than {limits.text:,} bytes")
    if together > limits.texts:
        raise TooMuch(f"a column of it may have more than {limits.texts:,} bytes")


def _most(expr: Expr, values: Values, size: int) -> tuple[int, int]:
    """How many bytes a text can have at most, and all of them together."""
    match expr:
        case Column() | AggregateCall() if expr.type == Type.STRING:
            return _size_of(values[expr])
        case Literal(str(value)):
            found = len(value.encode(errors="replace"))
            return found, found * size
        case Cast(operand) if operand.type != Type.STRING:
            return 64, 64 * size
    parts = [_most(part, values, size) for part in expr.parts if part.type == Type.STRING] or [(0, 0)]
    joined = isinstance(expr, Call) and expr.function == "CONCAT"
    return (sum if joined else max)(longest for longest, _ in parts), sum(together for _, together in parts)


def _size_of(column: pa.Array) -> tuple[int, int]:
    lengths = pc.binary_length(column)
    return pc.max(lengths).as_py() or 0, pc.sum(lengths).as_py() or 0
