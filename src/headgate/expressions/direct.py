"""Evaluate simple expressions with Arrow, where the result cannot differ from DuckDB's, to save the milliseconds of a
DuckDB query.

Only safe cases are here: columns and literals; whole numbers, finite doubles, texts and bytes compared as one type;
SQL's three-valued logic; sums and products of whole numbers that surely fit; IEEE sums, products and quotients of
doubles. For everything else the answer is None, and DuckDB computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, reduce

import pyarrow as pa
import pyarrow.compute as pc

from headgate.expressions.sql import arrow_type
from headgate.plan import expressions as e
from headgate.plan.expressions import INTEGERS, Expr, Type, wider

Values = Mapping[e.Column | e.AggregateCall, pa.Array]
Direct = Callable[[Values], "pa.Array | pa.Scalar"]

_COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OPERATORS = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_COMPARED = frozenset({Type.INT, Type.BIGINT, Type.DOUBLE, Type.STRING, Type.BINARY})
_DOUBLES = frozenset({Type.INT, Type.DOUBLE})
"""Types that convert to DOUBLE without rounding."""
_BYTES = ({Type.STRING}, {Type.BINARY})
"""Types that are compared byte by byte; the order of UTF-8 is that of code points."""
_ROOM = 62
"""Whole numbers of at most this many bits surely fit a BIGINT."""


def answered(expr: Expr, values: Values, size: int) -> pa.Array | None:
    """The value of the expression in each of `size` rows; None if DuckDB must compute it."""
    way = _way(expr)
    if way is None:
        return None
    found, pushdown = way(values), arrow_type(expr.type)
    if isinstance(found, pa.Scalar):
        found = pa.repeat(found, size)
    return found if found.type == pushdown else found.cast(pushdown)


@lru_cache(maxsize=10_000)
def _way(expr: Expr) -> Direct | None:
    if isinstance(expr, e.Arithmetic) and expr.result == Type.DOUBLE:
        raw = _raw(expr)
        return (lambda values: _finite(raw(values))) if raw else None
    match expr:
        case e.Column() | e.AggregateCall():
            return lambda values: values[expr]
        case e.Literal(value, type_) if type_ in _COMPARED or type_ == Type.BOOLEAN:
            scalar = pa.scalar(value, arrow_type(type_))
            return lambda _: scalar
        case e.Compare():
            return _comparison(expr)
        case e.In(operand, items) if len(items) == 1:
            return _comparison(e.Compare("=", operand, *items))
        case e.In():
            return _membership(expr)
        case e.And() | e.Or():
            both = pc.and_kleene if isinstance(expr, e.And) else pc.or_kleene
            parts = _ways(expr.parts)
            return (lambda values: reduce(both, (part(values) for part in parts))) if parts else None
        case e.Not() | e.IsNull():
            inner, function = _way(expr.operand), pc.invert if isinstance(expr, e.Not) else pc.is_null
            if inner is None or (isinstance(expr, e.Not) and expr.operand.type != Type.BOOLEAN):
                return None
            return lambda values: function(inner(values))
        case e.Arithmetic() if expr.operator in _OPERATORS and (_bits(expr) or _ROOM + 1) <= _ROOM:
            return _whole(expr)
    return None


def _ways(exprs: tuple[Expr, ...]) -> list[Direct] | None:
    """The ways to compute conditions; None if one of them has no way."""
    found = [_way(expr) for expr in exprs if expr.type == Type.BOOLEAN]
    ways = [way for way in found if way is not None]
    return ways if len(ways) == len(exprs) else None


def _comparison(expr: e.Compare) -> Direct | None:
    types = {expr.left.type, expr.right.type}
    if not (types <= INTEGERS or types <= _DOUBLES or types in _BYTES):
        return None
    common = wider(expr.left.type, expr.right.type)
    left, right = _as(expr.left, common), _as(expr.right, common)
    compare = _COMPARISONS[expr.operator]
    return (lambda values: compare(left(values), right(values))) if left and right else None


def _membership(expr: e.In) -> Direct | None:
    """IN over whole numbers, texts or bytes, none of them NULL."""
    types = {expr.operand.type, *(item.type for item in expr.items)}
    if not (types <= INTEGERS or types in _BYTES) or any(item.value is None for item in expr.items):
        return None
    common = Type.BIGINT if types <= INTEGERS else expr.operand.type
    items = pa.array(sorted(item.value for item in expr.items), arrow_type(common))  # type: ignore[type-var]
    operand = _as(expr.operand, common)

    def member(values: Values) -> pa.Array:
        given = operand(values) if operand else None
        return pc.if_else(pc.is_valid(given), pc.is_in(given, value_set=items), pa.scalar(None, pa.bool_()))

    return member if operand else None


def _as(expr: Expr, type_: Type | None) -> Direct | None:
    """Convert to a type that holds every value of the expression's own type."""
    way = _way(expr)
    if way is None or type_ is None or expr.type == type_:
        return way
    pushdown = arrow_type(type_)
    return lambda values: way(values).cast(pushdown)


def _whole(expr: e.Arithmetic) -> Direct | None:
    operands = [_as(operand, Type.BIGINT) for operand in expr.operands]
    first, *others = (operand for operand in operands if operand)
    if len(operands) != 1 + len(others):
        return None
    if not others:
        return lambda values: pc.negate(first(values))
    compute = _OPERATORS[expr.operator]
    return lambda values: compute(first(values), others[0](values))


def _bits(expr: Expr) -> int | None:
    """A number of bits such that no value of this whole-number expression exceeds 2^bits in absolute value; None if
    unknown."""
    match expr:
        case e.Literal(int(value), type_) if type_ in INTEGERS:
            return abs(value).bit_length()
        case e.Column() if expr.type == Type.INT:
            return 31
        case e.Arithmetic(operator, operands) if operator in _OPERATORS and expr.result == Type.BIGINT:
            bits = [_bits(operand) for operand in operands]
            known = [x for x in bits if x is not None]
            if len(known) < len(bits):
                return None
            return sum(known) if operator == "*" else max(known) + 1
    return None


def _raw(expr: Expr) -> Direct | None:
    """A double that may be infinite or NaN while it is computed; `_finite` turns that into NULL at the end."""
    if not isinstance(expr, e.Arithmetic) or expr.result != Type.DOUBLE:
        return _as(expr, Type.DOUBLE) if expr.type in _DOUBLES else None
    first = _raw(expr.operands[0])
    if len(expr.operands) == 1:
        return (lambda values: pc.negate(first(values))) if first else None
    if expr.operator == "/":  # a divisor that is not finite becomes NULL before the division
        divisor = _as(expr.operands[1], Type.DOUBLE) if expr.operands[1].type in _DOUBLES else None
        return (lambda values: pc.divide(first(values), divisor(values))) if first and divisor else None
    second = _raw(expr.operands[1])
    compute = _OPERATORS.get(expr.operator)
    return (lambda values: compute(first(values), second(values))) if first and second and compute else None


def _finite(values: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))
