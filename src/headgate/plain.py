"""Tables as plain text: the same on a terminal, in a pipe and in a document."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned by spaces; a table without rows says so."""
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    lines = [columns, ["-" * width for width in widths], *rows]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(shown if rows else [*shown, "(none)"])
