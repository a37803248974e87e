"""The tokens of SeNDlog: `:-`, `@`, `::`, names with hyphens, texts in double quotes; comments as everywhere."""

from __future__ import annotations

import re
from typing import cast

from headgate.errors import TextError
from headgate.lexing import Kind, Token, fail

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n]+|--[^\r\n]*|/\*(?s:.*?)\*/)++)
      | (?P<name>[a-z][A-Za-z0-9_]*(?:-[a-z][A-Za-z0-9_]*)*|[A-Z_][A-Za-z0-9_]*)
      | (?P<text>"(?:[^"]|"")*+")
      | (?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?(?![A-Za-z0-9_]))
      | (?P<symbol>:-|::|<=|>=|!=|==|[@:(),.\[\]=<>*+/%-])
    """,
    re.VERBOSE,
)
_REFUSED = re.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def tokens(text: str) -> list[Token]:
    """All tokens of a text and one of kind `end`; a TextError for what is not a token."""
    if not text.isascii() and (refused := _REFUSED.search(text)):
        raise fail(text, refused.start(), f"character U+{ord(refused.group()):04X} must not stand in a text")
    found: list[Token] = []
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise _stray(text, offset)
        kind, found_text = cast(Kind, match.lastgroup), match.group()
        if kind == "text":
            found_text = found_text[1:-1].replace('""', '"')
        if match.lastgroup != "space":
            found.append(Token(kind, found_text, offset, match.end()))
        offset = match.end()
    found.append(Token("end", "", len(text), len(text)))
    return found


def _stray(text: str, offset: int) -> TextError:
    char = text[offset]
    if char == '"':
        return fail(text, offset, "this text is not closed")
    if text.startswith("/*", offset):
        return fail(text, offset, "this comment is not closed")
    if char.isdigit():
        return fail(text, offset, "this is not a number", hint="a number has at most 18 digits and no letters")
    shown = f"`{char}`" if char.isprintable() else f"character U+{ord(char):04X}"
    return fail(text, offset, f"unexpected {shown}", hint="texts stand in double quotes")
