"""Names that no column of a stream may have: the catalog refuses them, and queries give them a meaning of their own."""

from __future__ import annotations

LEVEL = "LEVEL"
"""The level of a tuple, in every query."""


def is_level(name: str) -> bool:
    """Whether a query reads this name as the level of a tuple: names of columns ignore case."""
    return name.casefold() == LEVEL.casefold()


def is_reserved(name: str) -> bool:
    """Whether a name is reserved: results and Spark's readers put such columns beside a stream's own."""
    return name.casefold().startswith("headgate_") or name.casefold() == "_metadata"
