"""Random expressions of a given type, as text, and matching random values for data.

Literals and values come from one small domain, so that conditions hold for some tuples and not for others.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from random import Random

from headgate.cql.expressions import COMPARISONS
from headgate.plan.expressions import INTEGERS, Literal, Type, Value

TYPES = tuple(type_ for type_ in Type if type_ != Type.NULL)
LEVELS = ("U", "C", "S")
NUMERIC = tuple(type_ for type_ in TYPES if type_.numeric)
AS_TEXT = tuple(type_ for type_ in TYPES if type_ not in (Type.FLOAT, Type.DOUBLE, Type.BINARY))
STRINGS = (
    "",
    "a",
    "b",
    "ab",
    "B",
    " a ",
    "a%b",
    "é",
    "it's",
    "10",
    "-1.5",
    "true",
    "2026-01-02",
    "2026-01-02 12:00:00",
)
DATA = (b"", b"\x00", b"a", b"ab", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\x00")
PATTERNS = ("%", "a%", "%b", "_", "a_", "%\\%%", "_\\__", "", "\\\\", "2026%")

# What an expression may read: the text of an operand of this type, or None. Some type has an operand.
Leaf = Callable[[Type], str | None]


def random_value(rng: Random, type_: Type) -> Value:
    """A value of the domain that literals come from; never NULL."""
    match type_:
        case Type.BOOLEAN:
            return rng.random() < 0.5
        case Type.INT:
            return rng.randint(-1, 5)
        case Type.BIGINT:
            return 3_000_000_000 if rng.random() < 0.05 else rng.randint(-1, 5)
        case Type.FLOAT | Type.DOUBLE:
            return rng.randint(-2, 8) / 2
        case Type.STRING:
            return rng.choice(STRINGS)
        case Type.BINARY:
            return rng.choice(DATA)
        case Type.DATE:
            return dt.date(2026, 1, rng.randint(1, 4))
        case Type.TIMESTAMP:
            second = dt.timedelta(seconds=rng.choice((0, 1, 1.5, 60, 3599)))
            return dt.datetime(2026, 1, rng.randint(1, 3), rng.choice((0, 12)), tzinfo=dt.UTC) + second
    return None


def random_literal(rng: Random, type_: Type) -> str:
    """A value as an expression writes it, of exactly this type."""
    value = random_value(rng, type_)
    if isinstance(value, str):
        return quoted(rng, value)
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.strftime('%Y-%m-%d %H:%M:%S.%f' if value.microsecond else '%Y-%m-%d %H:%M:%S')}'"
    text = str(Literal(value, type_))
    small = type_ == Type.BIGINT and isinstance(value, int) and value < 1 << 31
    return f"CAST({text} AS {type_})" if small or type_ == Type.FLOAT else text


def quoted(rng: Random, text: str) -> str:
    mark = rng.choice("'\"")
    return mark + text.replace(mark, mark * 2) + mark


class Author:
    """Writes expressions over the given leaves; `depth` bounds how far they nest."""

    def __init__(self, rng: Random, leaf: Leaf) -> None:
        self.rng = rng
        self.leaf = leaf

    def write(self, type_: Type, depth: int) -> str:
        """An expression of exactly this type."""
        if depth <= 0 or self.rng.random() < 0.3:
            found = self.leaf(type_) if self.rng.random() < 0.8 else None
            return found or random_literal(self.rng, type_)
        forms: list[Callable[[Type, int], str]] = [self._choice, self._first, self._cast, self._nullif, self._nested]
        match type_:
            case Type.BOOLEAN:
                return self.condition(depth)
            case Type.INT:
                forms += [self._part_of_time, self._length]
            case Type.BIGINT:
                forms += [self._arithmetic] * 3 + [self._rounded]
            case Type.DOUBLE:
                forms += [self._arithmetic] * 3 + [self._root]
            case Type.STRING:
                forms += [self._concatenation, self._changed_text, self._substring] * 2
        return self.rng.choice(forms)(type_, depth - 1)

    def any(self, depth: int, types: tuple[Type, ...] = TYPES) -> str:
        return self.write(self.rng.choice(types), depth)

    # Of any type ----------------------------------------------------------------------------------------------------

    def _nested(self, type_: Type, depth: int) -> str:
        return f"({self.write(type_, depth)})"

    def _choice(self, type_: Type, depth: int) -> str:
        values = [self.write(type_, depth), *self.rng.choices(("NULL", self.write(type_, depth)), k=2)]
        self.rng.shuffle(values)
        first, second, last = values
        more = f" WHEN {self.condition(depth)} THEN {second}" if self.rng.random() < 0.5 or first == "NULL" else ""
        otherwise = f" ELSE {last}" if self.rng.random() < 0.7 or "NULL" in (first, second) else ""
        return f"CASE WHEN {self.condition(depth)} THEN {first}{more}{otherwise} END"

    def _first(self, type_: Type, depth: int) -> str:
        function = self.rng.choice(("COALESCE", "GREATEST", "LEAST"))
        values = [self.write(type_, depth) for _ in range(self.rng.randint(2, 3))]
        if self.rng.random() < 0.3:
            values[self.rng.randrange(1, len(values))] = "NULL"
        return f"{function}({', '.join(values)})"

    def _nullif(self, type_: Type, depth: int) -> str:
        return f"NULLIF({self.write(type_, depth)}, {self.write(type_, depth)})"

    def _cast(self, type_: Type, depth: int) -> str:
        if type_ in (Type.DATE, Type.TIMESTAMP):
            types: tuple[Type, ...] = (Type.DATE, Type.TIMESTAMP, Type.STRING)
        elif type_ == Type.STRING:
            types = AS_TEXT
        elif type_ == Type.BINARY:
            types = (type_,)
        else:
            types = (*NUMERIC, Type.STRING) if type_ == Type.BOOLEAN else (Type.BOOLEAN, *NUMERIC, Type.STRING)
        operand = "NULL" if self.rng.random() < 0.05 else self.any(depth, types)
        return f"CAST({operand} AS {type_})"

    # Numbers --------------------------------------------------------------------------------------------------------

    def _whole(self, depth: int) -> str:
        return self.any(depth, (Type.INT, Type.BIGINT))

    def _operand(self, type_: Type, depth: int) -> str:
        """An operand with which arithmetic has this type."""
        return self._whole(depth) if type_ in INTEGERS else self.any(depth, (Type.FLOAT, Type.DOUBLE))

    def _arithmetic(self, type_: Type, depth: int) -> str:
        left, right = self._operand(type_, depth), self._operand(type_, depth)
        if self.rng.random() < 0.15:
            return f"-({left})" if type_ == Type.DOUBLE else f"-({self._whole(depth)} + 0)"
        if type_ == Type.DOUBLE and self.rng.random() < 0.3:
            return f"({self.any(depth, NUMERIC)}) / {right}"
        return f"({left}) {self.rng.choice('+-*%')} ({right})"

    def _rounded(self, type_: Type, depth: int) -> str:  # noqa: ARG002
        if self.rng.random() < 0.3:
            return f"ABS({self._whole(depth)})"
        return f"{self.rng.choice(('CEIL', 'FLOOR'))}({self.any(depth, NUMERIC)})"

    def _root(self, type_: Type, depth: int) -> str:  # noqa: ARG002
        if self.rng.random() < 0.5:
            return f"ABS({self.any(depth, (Type.FLOAT, Type.DOUBLE))})"
        return f"SQRT({self.any(depth, NUMERIC)})"

    def _part_of_time(self, type_: Type, depth: int) -> str:  # noqa: ARG002
        if self.rng.random() < 0.5:
            return f"{self.rng.choice(('HOUR', 'MINUTE', 'SECOND'))}({self.write(Type.TIMESTAMP, depth)})"
        return f"{self.rng.choice(('YEAR', 'MONTH', 'DAY'))}({self.any(depth, (Type.TIMESTAMP, Type.DATE))})"

    def _length(self, type_: Type, depth: int) -> str:  # noqa: ARG002
        return f"LENGTH({self.write(Type.STRING, depth)})"

    # Texts ----------------------------------------------------------------------------------------------------------

    def _concatenation(self, type_: Type, depth: int) -> str:
        return f"CONCAT({', '.join(self.write(type_, depth) for _ in range(self.rng.randint(1, 3)))})"

    def _changed_text(self, type_: Type, depth: int) -> str:
        return f"{self.rng.choice(('LOWER', 'UPPER', 'TRIM'))}({self.write(type_, depth)})"

    def _substring(self, type_: Type, depth: int) -> str:
        length = f", {self._whole(depth)}" if self.rng.random() < 0.5 else ""
        return f"SUBSTRING({self.write(type_, depth)}, {self._whole(depth)}{length})"

    # Conditions -----------------------------------------------------------------------------------------------------

    def condition(self, depth: int) -> str:
        if depth > 0 and self.rng.random() < 0.4:
            left, right = self.condition(depth - 1), self.condition(depth - 1)
            joined = f"({left} {self.rng.choice(('AND', 'OR'))} {right})"
            return f"NOT {joined}" if self.rng.random() < 0.3 else joined
        forms = [self._comparison] * 4 + [self._membership, self._range, self._pattern, self._null, self._truth]
        if depth > 0 and self.rng.random() < 0.1:
            other = self.rng.choice((self._choice, self._first, self._cast, self._nullif))
            return other(Type.BOOLEAN, depth - 1)
        return self.rng.choice(forms)(depth - 1)

    def _not(self) -> str:
        return "NOT " if self.rng.random() < 0.3 else ""

    def _operands(self, depth: int, others: int) -> list[str]:
        """An operand that is read and others to compare it with, mostly literals: never literals alone."""
        types = self.rng.sample(TYPES, len(TYPES))
        left = next(type_ for type_ in types if self.leaf(type_))
        right = self.rng.choice(NUMERIC) if left.numeric else left
        found = [self.leaf(left) or ""]
        for _ in range(others):
            spelled = self.write(right, depth) if self.rng.random() < 0.3 else random_literal(self.rng, right)
            found.append("NULL" if self.rng.random() < 0.03 else spelled)
        return [f"({x})" if " " in x else x for x in found]

    def _comparison(self, depth: int) -> str:
        sides = self._operands(depth, 1)
        self.rng.shuffle(sides)
        return f"{sides[0]} {self.rng.choice(tuple(COMPARISONS))} {sides[1]}"

    def _membership(self, depth: int) -> str:
        operand, *items = self._operands(depth, self.rng.randint(1, 4))
        return f"{operand} {self._not()}IN ({', '.join(items)})"

    def _range(self, depth: int) -> str:
        operand, low, high = self._operands(depth, 2)
        return f"{operand} {self._not()}BETWEEN {low} AND {high}"

    def _pattern(self, depth: int) -> str:
        operand = self.leaf(Type.STRING) or f"({self.write(Type.STRING, depth)})"
        return f"{operand} {self._not()}LIKE {quoted(self.rng, self.rng.choice(PATTERNS))}"

    def _null(self, depth: int) -> str:
        return f"({self.any(depth)}) IS {self._not()}NULL"

    def _truth(self, depth: int) -> str:
        return self.leaf(Type.BOOLEAN) or self._comparison(depth)
