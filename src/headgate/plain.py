"""Plain text for people: the same on a terminal, in a pipe and in a document, and nothing in it but what can be seen.

Texts of tuples, queries and files are other people's. A control character among them could move the cursor of whoever
reads, colour what stands elsewhere or begin a line that nobody wrote, so it is shown escaped.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence

# Control characters (of ASCII and of Latin-1), separators of lines, what reorders a text, halves of characters.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """One line: characters that act instead of showing are escaped, as `\\x1b`, `\\n` or `\\u202e`."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def json_line(value: object) -> str:
    """A value as one line of JSON, which a terminal shows as it is; the same characters are escaped as JSON does it."""
    line = json.dumps(value, ensure_ascii=False)
    if line.isascii() and "\x7f" not in line:
        return line
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 result`, `2,000 results`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned by spaces, a line for each row; a table without rows says so."""
    seen = [[visible(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*seen, strict=True)]
    lines = [seen[0], ["-" * width for width in widths], *seen[1:]]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(shown if rows else [*shown, "(none)"])


def format_csv(rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV, a line for each: a line break within a value is escaped, as everything that acts on a terminal."""
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows([visible(cell) for cell in row] for row in rows)
    return sink.getvalue().removesuffix("\n")
