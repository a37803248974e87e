"""Normal forms: equal conditions that are written differently become one (`120 < bp` is `bp > 120`, NOT moves inwards).

INVARIANT: every step preserves three-valued logic: what was NULL stays NULL.
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
    """Normalise a comparison: a literal stands right, otherwise the smaller text stands left; `=` with a literal
    becomes a list."""
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
    """Compare two literals as CQL compares them: a whole number beside a DOUBLE as DOUBLE."""
    a: Any = left.value
    b: Any = right.value
    if a is None or b is None:
        return UNKNOWN
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
    return TRUE if _OPERATIONS[operator](a, b) else FALSE


def _plain_number(side: Expr, other: Expr) -> Expr:
    """Write `120.0` as `120` beside a number, because both are compared as the wider type. Beside a FLOAT that type may
    be FLOAT, so only numbers that a FLOAT holds exactly are rewritten."""
    limit = 1 << 24 if other.type == Type.FLOAT else 1 << 31
    match side:
        case Literal(float(value)) if other.type.numeric and value.is_integer() and abs(value) < limit:
            return Literal(int(value), Type.INT)
    return side


def membership(operand: Expr, items: Iterable[Literal]) -> Expr:
    plain = (_plain_number(item, operand) for item in items)
    return In(operand, frozenset(item for item in plain if isinstance(item, Literal)))


def negate(operand: Expr) -> Expr:
    """NOT, moved inwards as far as possible."""
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
    """By how many characters the text grows when it is negated: a list's operand is then written once for each item."""
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
    """OR; alternatives for the values of one expression become one list."""
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
    """The set of a condition's conjuncts, in conjunctive normal form. If that would make more than MOST_CONJUNCTS new
    ones, or new ones with more than MOST_ALTERNATIVES together, the conjuncts stay as they are."""
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
    """How many conjuncts the normal form has, and how many alternatives they have together."""
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
    """Distribute OR over AND."""
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
    """Whether the condition has no AND directly below an OR; nested ORs are flat."""
    alternatives = condition.operands if isinstance(condition, Or) else frozenset()
    return not any(isinstance(part, And) for part in alternatives)


def moved(expr: Expr, move: Callable[[Column], Column]) -> Expr:
    """The same expression over other columns, in normal form."""
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
