"""The operations that each SQL dialect writes in its own way.

INVARIANT: every long operand is written once. An operand that is needed twice is bound to a variable (`let`); otherwise
texts would double with every level. NULLIF and simple CASE do not help: DuckDB copies their operands, and Spark may.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from headgate.plan.expressions import Type

SHORT = 80
"""The longest text that is repeated instead of bound; a repeated text is no longer this short, so nesting does not
double it again."""

ESCAPE = "^"
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FIELDS = "abc"
"""The fields of the structure that holds bound operands."""

_PLAIN = re.compile(r"[A-Za-z0-9 _.,:%^-]*", re.ASCII)


_OF_PATTERN = re.compile(r"\^.|%+|.", re.DOTALL)


def plain_pattern(pattern: str) -> tuple[bool, str, bool] | None:
    """For a LIKE pattern that is a plain text: whether anything may stand before it, the text, and whether anything may
    stand behind it. None for any other pattern."""
    pieces = ["%" if piece[0] == "%" else piece for piece in _OF_PATTERN.findall(pattern)]
    before, behind = pieces[:1] == ["%"], len(pieces) > 1 and pieces[-1] == "%"
    text = pieces[before : len(pieces) - behind]
    return None if {"%", "_"} & set(text) else (before, "".join(piece[-1] for piece in text), behind)


class Dialect(ABC):
    types: Mapping[Type, str]

    def cast(self, text: str, type_: Type) -> str:
        return f"CAST({text} AS {self.types[type_]})"

    def tried(self, text: str, type_: Type) -> str:
        return f"TRY_CAST({text} AS {self.types[type_]})"

    def null(self, type_: Type) -> str:
        return self.cast("NULL", type_)

    def text(self, value: str) -> str:
        """A text literal. It is quoted as it is only if every character is harmless to every SQL reader; quotes,
        backslashes, `${x}` and non-ASCII characters are written by their bytes."""
        return f"'{value}'" if _PLAIN.fullmatch(value) else self.encoded(value.encode().hex().upper())

    def let(self, body: Callable[..., str], *operands: str) -> str:
        """The body over operands that are computed once. The body may name nothing but its arguments: a variable would
        hide a column of the same name."""
        if all(len(operand) <= SHORT for operand in operands):
            return f"({body(*operands)})"
        return self.bound(body, operands)

    @abstractmethod
    def bound(self, body: Callable[..., str], operands: tuple[str, ...]) -> str: ...

    @abstractmethod
    def encoded(self, digits: str) -> str:
        """A text literal from the hexadecimal digits of its UTF-8 bytes."""

    @abstractmethod
    def binary(self, digits: str) -> str:
        """A BINARY literal from the hexadecimal digits of its bytes."""

    @abstractmethod
    def finite(self, text: str) -> str:
        """A DOUBLE, NULL if it is not finite."""

    @abstractmethod
    def whole(self, operator: str, *operands: str) -> str:
        """An operation on BIGINTs, NULL if the result does not fit or does not exist."""

    @abstractmethod
    def divided(self, operator: str, x: str, y: str) -> str:
        """`/` or `%` of DOUBLEs; a division by zero is NULL or not finite."""

    @abstractmethod
    def absolute(self, text: str) -> str:
        """The absolute value of a BIGINT, NULL if it does not fit."""

    @abstractmethod
    def stepped(self, function: str, text: str) -> str:
        """CEIL or FLOOR of a DOUBLE that may be not finite, as BIGINT."""

    @abstractmethod
    def truncated(self, text: str, type_: Type) -> str:
        """A FLOAT or DOUBLE that may be not finite, truncated to a whole number."""

    @abstractmethod
    def rounded(self, text: str) -> str:
        """A DOUBLE that may be not finite, rounded to a FLOAT."""

    @abstractmethod
    def sum_or_more(self, x: str, y: str) -> str:
        """The sum of two BIGINTs, the second not negative; if it does not fit, a value at least as large as the largest
        BIGINT."""

    @abstractmethod
    def like(self, text: str, pattern: str) -> str:
        """LIKE; the pattern has ESCAPE before each literal %, _ and ESCAPE."""

    @abstractmethod
    def trimmed(self, text: str) -> str: ...

    @abstractmethod
    def letters(self, function: str, text: str) -> str:
        """LOWER or UPPER."""

    @abstractmethod
    def joined(self, texts: list[str]) -> str: ...

    @abstractmethod
    def formed(self, text: str, form: str) -> str:
        """The text if it has this form, otherwise an empty text, which every cast rejects."""

    @abstractmethod
    def moment(self, text: str) -> str:
        """The TIMESTAMP of a text of the form TIME; NULL for an empty text."""


def changed_letters(function: str) -> tuple[str, str]:
    """The letters that LOWER or UPPER replaces, and their replacements."""
    small = CAPITALS.lower()
    return (CAPITALS, small) if function == "LOWER" else (small, CAPITALS)
