"""A script becomes a tuple of statements, or one error that says where and what was expected.

The whole script is read before anything runs. A text that fits no statement is refused, never passed through.
"""

from __future__ import annotations

from headgate.cql import continuous, definitions, rights
from headgate.cql.reading import Reader, table_hint
from headgate.cql.statements import Statement
from headgate.errors import Position, TextError
from headgate.lexing import Cursor, fail

MAX_SCRIPT = 1_000_000
MAX_STATEMENTS = 10_000

READERS: dict[tuple[str, ...], Reader] = {**definitions.READERS, **continuous.READERS, **rights.READERS}
_VERBS = sorted({words[0] for words in READERS})


def parse_script(text: str) -> tuple[Statement, ...]:
    """Statements separated by `;`."""
    if len(text) > MAX_SCRIPT:
        message = f"a script must not be longer than {MAX_SCRIPT} characters"
        raise TextError(message, position=Position.of(text, MAX_SCRIPT), hint="split it")
    cursor = Cursor(text)
    statements: list[Statement] = []
    while not cursor.ended:
        if cursor.take_symbol(";"):
            continue
        if len(statements) == MAX_STATEMENTS:
            raise fail(text, cursor.token.offset, f"a script must not have more than {MAX_STATEMENTS} statements")
        statements.append(_statement(cursor))
        if not cursor.ended:
            cursor.expect_symbol(";")
    return tuple(statements)


def _statement(cursor: Cursor) -> Statement:
    position = cursor.position
    for words, read in READERS.items():
        if cursor.take_word(*words):
            return read(cursor, position)
    for verb in _VERBS:
        if cursor.take_word(verb):
            others = [" ".join(words[1:]) for words in READERS if words[0] == verb and len(words) > 1]
            raise cursor.expected(*(f"`{word}`" for word in others), hint=table_hint(cursor))
    hint = "a query is continuous: CREATE QUERY name AS SELECT ..." if cursor.at_word("SELECT") else ""
    raise cursor.expected(*(f"`{verb}`" for verb in _VERBS), hint=hint)
