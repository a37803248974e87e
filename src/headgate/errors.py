"""The errors people see.

One style everywhere: lower case, one line, what was found in backticks, a position where there is a text,
and a hint where something else would work. String literals are never repeated: they may be passwords.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text: the offset counts characters from 0, line and column count from 1."""

    offset: int
    line: int
    column: int

    @classmethod
    def of(cls, text: str, offset: int) -> Position:
        line = text.count("\n", 0, offset) + 1
        return cls(offset, line, offset - (text.rfind("\n", 0, offset) + 1) + 1)


class HeadgateError(Exception):
    """Anything Headgate refuses; `message` says what, `position` where, `hint` what to do instead."""

    def __init__(self, message: str, *, position: Position | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.hint = hint

    def at(self, position: Position) -> HeadgateError:
        """The same error with a position, unless it already has a more precise one."""
        if self.position is None:
            self.position = position
        return self

    def __str__(self) -> str:
        where = f"line {self.position.line}, column {self.position.column}: " if self.position else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.message}{hint}"


class TextError(HeadgateError):
    """A text that does not follow its grammar; always has a position."""


class LabelError(HeadgateError):
    """A label that cannot be read or built; it protects its tuple from everyone."""


class AuthenticationFailed(HeadgateError):
    """Who somebody is could not be proved. One text for every cause, so that none can be told apart."""


class AccessDenied(HeadgateError):
    """A request on something visible that the rights do not cover."""


class NotFound(HeadgateError):
    """A name that does not exist for this principal, whether or not it exists for another."""


class Conflict(HeadgateError):
    """A request that would break a rule of the catalog: a taken name, a cycle, a separation of duty."""


class StoreError(HeadgateError):
    """The store cannot be opened, or does not hold what it should."""


class Unavailable(StoreError):
    """What does not answer for the moment: the same request may be taken later."""


class LeaseLost(StoreError):
    """What the rights of a moment permit may not go out any more: they may have changed meanwhile."""


class Fenced(StoreError):
    """Another process has taken over what this one was writing to."""


class SourceError(HeadgateError):
    """A source that cannot be read; what reads others is not harmed."""


class ColumnsChanged(SourceError):
    """A batch was read with other columns than its stream has now; it is to be read again."""
