"""Reads `DEADLINE 2 SECONDS QOS (...)`."""

from __future__ import annotations

from headgate.cql.deadlines import Deadline, Version
from headgate.cql.queries import duration
from headgate.cql.reading import listed, names
from headgate.lexing import Cursor, fail


def read_deadline(c: Cursor) -> Deadline:
    """After the word DEADLINE."""
    milliseconds = duration(c)
    if not c.take_word("QOS"):
        return Deadline(milliseconds)
    c.expect_symbol("(")
    lower = listed(c, _version)
    c.expect_symbol(")")
    return Deadline(milliseconds, lower)


def _version(c: Cursor) -> Version:
    at, given = c.position, dict[str, object]()
    while not given or c.at_word("SAMPLE") or c.at_word("SLIDE") or c.at_word("COLUMNS"):
        for word, read in (("SAMPLE", _sample), ("SLIDE", duration), ("COLUMNS", _columns)):
            if c.take_word(word):
                if word.lower() in given:
                    raise fail(c.text, at.offset, f"`{word}` is given twice")
                given[word.lower()] = read(c)
                break
        else:
            raise c.expected("`SAMPLE`", "`SLIDE`", "`COLUMNS`")
    return Version(**given)  # type: ignore[arg-type]


def _sample(c: Cursor) -> float:
    """In percent where it is written, as a share everywhere else."""
    percent = c.expect_kind("number", "a number, such as `50`").text
    c.expect_word("PERCENT")
    return float(percent) / 100


def _columns(c: Cursor) -> tuple[str, ...]:
    c.expect_symbol("(")
    found = names(c, "the name of a column")
    c.expect_symbol(")")
    return tuple(x.text for x in found)
