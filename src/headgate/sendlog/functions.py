"""The closed list of functions: deterministic, without effects, and bounded.

A function that cannot answer raises one of `FAILURES`; the rule then derives nothing from those tuples and the
failure is
counted. Names are the papers' where they have them: `f_initPath`, `f_concat`, `f_sha`, `f_generateID`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from headgate.sendlog.values import Value, ValueFault, canonical, encoded

FAILURES = (TypeError, ValueError, ArithmeticError, ValueFault)
ID_BITS = 32
"""Identifiers of a ring are below 2 to this power: large enough for every network here, and short to read."""


@dataclass(frozen=True)
class Function:
    """`python` may be called by generated code; `monotone`: a larger argument never gives a smaller result."""

    arity: int
    python: Callable[..., Value]
    monotone: bool = False


def _list(value: Value) -> tuple[Value, ...]:
    if not isinstance(value, tuple):
        raise TypeError("this is no list")
    return value


def _number(value: Value) -> int | float:
    if isinstance(value, str | tuple):
        raise TypeError("this is no number")
    return value


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise TypeError("this is no text")
    return value


def _bounded(value: Value) -> Value:
    return value if isinstance(value, int) and -(2**62) < value < 2**62 else canonical(value)


def add(a: Value, b: Value) -> Value:
    if type(a) is int and type(b) is int:  # nearly always, and often
        return _bounded(a + b)
    return _bounded(_number(a) + _number(b))


def subtract(a: Value, b: Value) -> Value:
    if type(a) is int and type(b) is int:  # nearly always, and often
        return _bounded(a - b)
    return _bounded(_number(a) - _number(b))


def multiply(a: Value, b: Value) -> Value:
    if type(a) is int and type(b) is int:  # nearly always, and often
        return _bounded(a * b)
    return _bounded(_number(a) * _number(b))


def divide(a: Value, b: Value) -> Value:
    """Whole numbers are divided down to a whole number."""
    x, y = _number(a), _number(b)
    return _bounded(x // y if isinstance(x, int) and isinstance(y, int) else x / y)


def remainder(a: Value, b: Value) -> Value:
    return _bounded(_number(a) % _number(b))


def _digest(*values: Value) -> int:
    return int.from_bytes(hashlib.sha1(encoded(values), usedforsecurity=False).digest(), "big")


def location(overlay: Value, key: Value) -> Value:
    return f"{_text(overlay)}::{key if isinstance(key, str) else encoded(key).decode()}"


def _between(value: Value, low: Value, high: Value, closed: bool) -> int:
    """Whether a value lies in a ring's interval (low, high) or (low, high]; low = high is the whole ring but low."""
    x, a, b = _number(value), _number(low), _number(high)
    if closed and x == b:
        return 1
    if a < b:
        return int(a < x < b)
    return int(x > a or x < b) if a != b else int(x != a)


def _power(exponent: Value) -> Value:
    e = _number(exponent)
    if not isinstance(e, int) or not 0 <= e <= 1024:
        raise ValueError("the exponent is not from 0 to 1024")
    return 1 << e


def _concat(a: Value, b: Value) -> Value:
    """The paper's `f_concat(X, P)` prepends a node to a path; two lists are joined."""
    return canonical((*(a if isinstance(a, tuple) else (a,)), *_list(b)))


FUNCTIONS: dict[str, Function] = {
    "f_initPath": Function(2, lambda a, b: (a, b)),
    "f_concat": Function(2, _concat, monotone=True),
    "f_append": Function(2, lambda p, x: canonical((*_list(p), x))),
    "f_member": Function(2, lambda p, x: int(x in _list(p))),
    "f_size": Function(1, lambda p: len(p) if isinstance(p, tuple) else len(_text(p))),
    "f_first": Function(1, lambda p: _list(p)[0] if p else _fail("the list is empty")),
    "f_last": Function(1, lambda p: _list(p)[-1] if p else _fail("the list is empty")),
    "f_rest": Function(1, lambda p: _list(p)[1:] if p else _fail("the list is empty")),
    "f_reverse": Function(1, lambda p: _list(p)[::-1]),
    "f_least": Function(2, lambda a, b: min(_number(a), _number(b)), monotone=True),
    "f_most": Function(2, lambda a, b: max(_number(a), _number(b)), monotone=True),
    "f_abs": Function(1, lambda a: abs(_number(a))),
    "f_power2": Function(1, _power),
    "f_sha": Function(1, lambda x: _digest(x) >> (160 - ID_BITS)),
    "f_generateID": Function(2, lambda k, s: _digest(k, s) >> (160 - ID_BITS)),
    "f_distance": Function(2, lambda a, b: (int(_number(b)) - int(_number(a))) % (1 << ID_BITS)),
    "f_inOpen": Function(3, lambda x, a, b: _between(x, a, b, closed=False)),
    "f_inHalf": Function(3, lambda x, a, b: _between(x, a, b, closed=True)),
    "f_text": Function(1, lambda x: x if isinstance(x, str) else encoded(x).decode()),
    "f_join": Function(2, lambda a, b: canonical(_text(a) + _text(b))),
    "f_prefix": Function(2, lambda a, b: int(_text(b).startswith(_text(a)))),
    "f_suffix": Function(2, lambda a, b: int(_text(b).endswith(_text(a)))),
    "[]": Function(-1, lambda *items: items, monotone=True),
    "::": Function(2, location),
    "+": Function(2, add, monotone=True),
    "-": Function(2, subtract),
    "*": Function(2, multiply),
    "/": Function(2, divide),
    "%": Function(2, remainder),
}


def _fail(why: str) -> Value:
    raise ValueError(why)
