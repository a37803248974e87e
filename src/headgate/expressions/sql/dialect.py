"""What both engines must be able to say, each in its own way.

Every operand is written once: what is needed twice is bound to a variable (`let`), or texts would double with every
level. NULLIF and simple CASE are no way to say something once: DuckDB copies their operands, and Spark may.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from headgate.plan.expressions import Type

SHORT = 80
"""So long may a text be that is repeated rather than bound: repeated, it is no longer short."""

ESCAPE = "^"
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FIELDS = "abc"
"""Of the structure that holds what is bound."""

_PLAIN = re.compile(r"[A-Za-z0-9 _.,:%^-]*", re.ASCII)


_OF_PATTERN = re.compile(r"\^.|%+|.", re.DOTALL)


def plain_pattern(pattern: str) -> tuple[bool, str, bool] | None:
    """A pattern of LIKE that is a text and whether anything may stand before and behind it; None: it is another."""
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
        """Plain where no reader of SQL could see anything in it: quotes, backslashes, `${x}` and whatever is not ASCII
        stand in it by their numbers."""
        return f"'{value}'" if _PLAIN.fullmatch(value) else self.encoded(value.encode().hex().upper())

    def let(self, body: Callable[..., str], *operands: str) -> str:
        """The body over operands that are computed once. It may name nothing but its arguments: a variable would hide
        a column of the same name."""
        if all(len(operand) <= SHORT for operand in operands):
            return f"({body(*operands)})"
        return self.bound(body, operands)

    @abstractmethod
    def bound(self, body: Callable[..., str], operands: tuple[str, ...]) -> str: ...

    @abstractmethod
    def encoded(self, digits: str) -> str:
        """A text literal by the hexadecimal digits of its UTF-8."""

    @abstractmethod
    def finite(self, text: str) -> str:
        """A DOUBLE, NULL if it is not finite."""

    @abstractmethod
    def whole(self, operator: str, *operands: str) -> str:
        """On BIGINTs, NULL if the result does not fit or does not exist."""

    @abstractmethod
    def divided(self, operator: str, x: str, y: str) -> str:
        """`/` and `%` of DOUBLEs; by zero they are NULL or not finite."""

    @abstractmethod
    def absolute(self, text: str) -> str:
        """Of a BIGINT."""

    @abstractmethod
    def stepped(self, function: str, text: str) -> str:
        """CEIL and FLOOR of a DOUBLE that may be not finite, as BIGINT."""

    @abstractmethod
    def truncated(self, text: str, type_: Type) -> str:
        """A FLOAT or DOUBLE that may be not finite as a whole number."""

    @abstractmethod
    def rounded(self, text: str) -> str:
        """A DOUBLE that may be not finite as a FLOAT."""

    @abstractmethod
    def sum_or_more(self, x: str, y: str) -> str:
        """The sum of BIGINTs, the second not negative; where it does not fit, something at least as large as fits."""

    @abstractmethod
    def like(self, text: str, pattern: str) -> str:
        """The pattern has ESCAPE before %, _ and itself."""

    @abstractmethod
    def trimmed(self, text: str) -> str: ...

    @abstractmethod
    def letters(self, function: str, text: str) -> str:
        """LOWER and UPPER."""

    @abstractmethod
    def joined(self, texts: list[str]) -> str: ...

    @abstractmethod
    def formed(self, text: str, form: str) -> str:
        """The text if it has this form, otherwise an empty one, which no cast takes."""

    @abstractmethod
    def moment(self, text: str) -> str:
        """The TIMESTAMP that a text of the form TIME, or an empty one, says."""


def changed_letters(function: str) -> tuple[str, str]:
    """The letters that LOWER or UPPER changes, and into which."""
    small = CAPITALS.lower()
    return (CAPITALS, small) if function == "LOWER" else (small, CAPITALS)
