"""Normal forms: differently written but equal conditions become one (`120 < bp` is `bp > 120`, NOT moves inwards).

Every step keeps SQL's third truth value: what was unknown stays unknown.
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from headgate.plan.expressions import And, Cast, Column, Compare, Expr, In, Literal, Not, Or, Type

FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_OPERATIONS = {"=": op.eq, "<>": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}
TRUE = Literal(True, Type.BOOLEAN)
FALSE = Literal(False, Type.BOOLEAN)
UNKNOWN = Cast(Literal(None, Type.NULL), Type.BOOLEAN)
MOST_CONJUNCTS = 64
MOST_ALTERNATIVES = 1024


def compare(operator: str, left: Expr, right: Expr) -> Expr:
    """In one form: literals stand right, otherwise the smaller text stands left; `=` with a literal is a list."""
    if isinstance(left, Literal) and isinstance(right, Literal):
        return _known(operator, left, right)
    left, right = _plain_number(left, right), _plain_number(right, left)
    if isinstance(left, Literal) or (not isinstance(right, Literal) and _backwards(operator, left, right)):
        operator, left, right = FLIPPED[operator], right, left
    if operator == "=" and isinstance(right, Literal):
        return In(left, frozenset({right}))
    return Compare(operator, left, right)


def _backwards(operator: str, left: Expr, right: Expr) -> bool:
    return operator[0] == ">" if left == right else str(left) > str(right)


def _known(operator: str, left: Literal, right: Literal) -> Expr:
    """Two values, compared as the language compares them: whole numbers beside a DOUBLE as DOUBLE."""
    a: Any = left.value
    b: Any = right.value
    if a is None or b is None:
        return UNKNOWN
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
    return TRUE if _OPERATIONS[operator](a, b) else FALSE


def _plain_number(side: Expr, other: Expr) -> Expr:
    """`120.0` is `120` beside a number: both are compared as what is wider; beside a FLOAT that may not be DOUBLE."""
    limit = 1 << 24 if other.type == Type.FLOAT else 1 << 31
    match side:
        case Literal(float(value)) if other.type.numeric and value.is_integer() and abs(value) < limit:
            return Literal(int(value), Type.INT)
    return side


def membership(operand: Expr, items: Iterable[Literal]) -> Expr:
    plain = (_plain_number(item, operand) for item in items)
    return In(operand, frozenset(item for item in plain if isinstance(item, Literal)))


def negate(operand: Expr) -> Expr:
    """NOT, moved inwards as far as it goes."""
    match operand:
        case Not(inner):
            return inner
        case Literal(bool(value)):
            return FALSE if value else TRUE
        case Literal(None) | Cast(Literal(None)):
            return UNKNOWN
        case And(operands):
            return disjunction(negate(x) for x in operands)
        case Or(operands):
            return conjunction(negate(x) for x in operands)
        case Compare(operator, left, right):
            return compare(_NEGATED[operator], left, right)
        case In(inner, items):
            return conjunction(Compare("<>", inner, item) for item in items)
        case _:
            return Not(operand)


def growth(operand: Expr) -> int:
    """By how many characters it grows when it is negated: a list is then said once for each of its items."""
    match operand:
        case And(operands) | Or(operands):
            return sum(map(growth, operands))
        case In(inner, items):
            return (len(items) - 1) * len(inner.text)
    return 0


def conjunction(operands: Iterable[Expr]) -> Expr:
    flat: set[Expr] = set()
    for operand in operands:
        flat |= operand.operands if isinstance(operand, And) else {operand}
    flat.discard(TRUE)
    if not flat:
        return TRUE
    if FALSE in flat:
        return FALSE
    return next(iter(flat)) if len(flat) == 1 else And(frozenset(flat))


def disjunction(operands: Iterable[Expr]) -> Expr:
    """Alternatives on the values of one expression become one list."""
    flat: set[Expr] = set()
    for operand in operands:
        flat |= operand.operands if isinstance(operand, Or) else {operand}
    lists: dict[Expr, frozenset[Literal]] = {}
    for operand in [x for x in flat if isinstance(x, In)]:
        lists[operand.operand] = lists.get(operand.operand, frozenset()) | operand.items
        flat.discard(operand)
    flat |= {In(operand, items) for operand, items in lists.items()}
    flat.discard(FALSE)
    if TRUE in flat:
        return TRUE
    if not flat:
        return FALSE
    return next(iter(flat)) if len(flat) == 1 else Or(frozenset(flat))


def conjuncts(condition: Expr | None) -> frozenset[Expr]:
    """A condition as the set of its conjuncts, in conjunctive normal form; where that would make more than
    MOST_CONJUNCTS new ones, or such with more than MOST_ALTERNATIVES together, as they are."""
    if condition is None:
        return frozenset()
    found = condition.operands if isinstance(condition, And) else frozenset({condition})
    mixed = [conjunct for conjunct in found if not is_conjunctive(conjunct)]
    if mixed:
        new, alternatives = _size(And(frozenset(mixed)))
        if new <= MOST_CONJUNCTS and alternatives <= MOST_ALTERNATIVES:
            return conjuncts(_distributed(condition))
    return found - {TRUE}


def _size(expr: Expr) -> tuple[int, int]:
    """How many conjuncts the normal form has, and how many alternatives all of them together."""
    match expr:
        case And(operands):
            sizes = [_size(x) for x in operands]
            return sum(new for new, _ in sizes), sum(alternatives for _, alternatives in sizes)
        case Or(operands):
            sizes = [_size(x) for x in operands]
            new = prod(new for new, _ in sizes)
            return new, sum(new // own * alternatives for own, alternatives in sizes)
    return 1, 1


def _distributed(expr: Expr) -> Expr:
    """OR over AND becomes AND over OR."""
    if isinstance(expr, And):
        return conjunction(_distributed(x) for x in expr.operands)
    if not isinstance(expr, Or):
        return expr
    clauses: list[tuple[Expr, ...]] = [()]
    for operand in expr.parts:
        inner = _distributed(operand)
        choices = inner.parts if isinstance(inner, And) else (inner,)
        clauses = [(*clause, choice) for clause in clauses for choice in choices]
    return conjunction(disjunction(clause) for clause in clauses)


def is_conjunctive(condition: Expr) -> bool:
    """Whether nothing in it has an AND below an OR."""
    alternatives = condition.operands if isinstance(condition, Or) else frozenset()
    return not any(isinstance(part, And) for part in alternatives)


def moved(expr: Expr, move: Callable[[Column], Column]) -> Expr:
    """The same expression over other columns."""
    if isinstance(expr, Column):
        return move(expr)
    parts = tuple(moved(part, move) for part in expr.parts)
    match expr:
        case Compare(operator):
            return compare(operator, *parts)
        case And():
            return conjunction(parts)
        case Or():
            return disjunction(parts)
    return expr.rebuilt(parts)
