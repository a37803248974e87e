"""Texts become tokens here, for labels and statements alike: one idea of a name, a string and a comment.

A plain name is ASCII; any other name is written in double quotes. Quoted names must be in Unicode's normal
form C and free of invisible characters, so that two names that look the same are the same.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from typing import Literal, NamedTuple

from headgate.errors import Position, TextError

MAX_NAME = 128

# `text` stands in double quotes but cannot be a name; where CQL wants a string, `quoted` and `text` are strings too.
# `block` stands between `$$` and `$$`, as it is: a text in another language.
Kind = Literal["name", "quoted", "text", "backquoted", "string", "block", "number", "symbol", "end"]
STRINGS: frozenset[Kind] = frozenset({"string", "quoted", "text"})

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n]+|--[^\r\n]*|/\*(?s:.*?)\*/)++)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<quoted>"(?:[^"]|"")*+")
      | (?P<backquoted>`(?:[^`]|``)*+`)
      | (?P<string>'(?:[^']|'')*+')
      | (?P<block>\$\$(?s:.*?)\$\$)
      | (?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?(?![A-Za-z0-9_]))
      | (?P<symbol><=|>=|<>|!=|/(?!\*)|[&|(){}\[\],.;=<>*+%-])
    """,
    re.VERBOSE,
)
_LONG = re.compile(r"[0-9]{19}|[0-9]+\.[0-9]{19}")
_EXPONENT = re.compile(r"[0-9]+(\.[0-9]+)?[eE][+-]?[0-9]+")
_UNCLOSED = {'"': "quoted name", "`": "name in backticks", "'": "string", "/": "comment"}
# Control, format, surrogate, private use, unassigned, line and paragraph separators: cannot be seen or told apart.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and marks that show as nothing, and every space but the ordinary one.
_BLANK = re.compile(
    "[\u00a0\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200a\u202f\u205f\u2800\u3000\u3164"
    "\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# What makes a text show in another order than it is read, and halves of characters: in comments and strings too.
_REFUSED = re.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Token(NamedTuple):
    """One token; `text` is its meaning (quotes removed), `offset` and `end` its place."""

    kind: Kind
    text: str
    offset: int
    end: int

    def shown(self) -> str:
        """How an error names it."""
        match self.kind:
            case "end":
                return "the end of the text"
            case "string":
                return "a string"
            case "block":
                return "a text between `$$`"
            case "quoted" | "text":
                return "a text in double quotes"
            case "backquoted":
                return "a name in backticks"
            case _:
                return f"`{self.text}`"


def name_fault(name: str) -> str | None:
    """Why this cannot be a name, or None when it can."""
    if not name:
        return "a name must not be empty"
    if len(name) > MAX_NAME:
        return f"a name must not be longer than {MAX_NAME} characters"
    if not name.isascii() and not unicodedata.is_normalized("NFC", name):
        return "a name must be in Unicode normal form C"
    if name != name.strip() or (not name.isascii() and _BLANK.search(name)):
        return "a name must not begin or end with spaces or contain blank characters"
    if any(unicodedata.category(c) in _INVISIBLE for c in name):
        return "a name must not contain control characters"
    return None


def quote(name: str, reserved: Iterable[str] = ()) -> str:
    """A name as it is written: plain where that reads back as the same name, quoted otherwise."""
    if name.isascii() and name.isidentifier() and not (reserved and name.upper() in reserved):
        return name
    return '"' + name.replace('"', '""') + '"'


def fail(text: str, offset: int, message: str, hint: str = "") -> TextError:
    return TextError(message, position=Position.of(text, offset), hint=hint)


def tokenize(text: str) -> list[Token]:
    """All tokens of a text and one of kind `end`; a TextError for what is not a token."""
    if not text.isascii() and (found := _REFUSED.search(text)):
        raise fail(text, found.start(), f"character U+{ord(found.group()):04X} must not stand in a text")
    tokens: list[Token] = []
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise _stray(text, offset)
        if match.lastgroup != "space":
            tokens.append(_token(text, match))
        offset = match.end()
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def _token(text: str, match: re.Match[str]) -> Token:
    kind, found, start = match.lastgroup, match.group(), match.start()
    if kind in ("quoted", "backquoted"):
        found = found[1:-1].replace(found[0] * 2, found[0])
        fault = name_fault(found)
        if fault and kind == "backquoted":
            raise fail(text, start, fault)
        kind = "text" if fault else kind
    elif kind == "string":
        found = found[1:-1].replace("''", "'")
    elif kind == "block":
        found = found[2:-2]
    elif kind == "name" and len(found) > MAX_NAME:
        raise fail(text, start, f"a name must not be longer than {MAX_NAME} characters")
    return Token(kind, found, start, match.end())  # type: ignore[arg-type]


def _stray(text: str, offset: int) -> TextError:
    char = text[offset]
    if text.startswith("$$", offset):
        return fail(text, offset, "this text between `$$` is not closed")
    if char in _UNCLOSED and (char != "/" or text.startswith("/*", offset)):
        return fail(text, offset, f"this {_UNCLOSED[char]} is not closed")
    if char.isdigit():
        hint = "names that begin with a digit need double quotes, in queries backticks"
        if _LONG.match(text, offset):
            hint = "a number has at most 18 digits"
        elif _EXPONENT.match(text, offset):
            hint = "a number has no exponent"
        return fail(text, offset, "this is not a number", hint=hint)
    shown = f"`{char}`" if char.isprintable() else f"character U+{ord(char):04X}"
    hint = "names beyond letters, digits and _ need double quotes, in queries backticks"
    return fail(text, offset, f"unexpected {shown}", hint=hint)


class Cursor:
    """Reads tokens in order; every refusal says what was expected and what was found."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @cached_property
    def _lines(self) -> list[int]:
        """Where each line begins."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    @property
    def position(self) -> Position:
        offset = self.token.offset
        line = bisect_right(self._lines, offset)
        return Position(offset, line, offset - self._lines[line - 1] + 1)

    @property
    def ended(self) -> bool:
        return self.token.kind == "end"

    def next(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.index += 1
        return token

    def at_symbol(self, symbol: str) -> bool:
        return self.token.kind == "symbol" and self.token.text == symbol

    def take_symbol(self, symbol: str) -> bool:
        if self.at_symbol(symbol):
            self.index += 1
            return True
        return False

    def at_word(self, *words: str) -> bool:
        """Whether the next tokens are these key words, in any case."""
        if self.tokens[self.index].kind != "name":
            return False
        ahead = self.tokens[self.index : self.index + len(words)]
        return tuple([t.text.upper() for t in ahead if t.kind == "name"]) == words

    def take_word(self, *words: str) -> bool:
        if self.at_word(*words):
            self.index += len(words)
            return True
        return False

    def expect_symbol(self, symbol: str) -> None:
        if not self.take_symbol(symbol):
            raise self.expected(f"`{symbol}`")

    def expect_word(self, word: str) -> None:
        if not self.take_word(word):
            raise self.expected(f"`{word}`")

    def expect_kind(self, kind: Kind, what: str) -> Token:
        if self.token.kind != kind:
            raise self.expected(what)
        return self.next()

    def expect_name(self, what: str, reserved: frozenset[str] = frozenset()) -> str:
        token = self.token
        if token.kind == "quoted" or (token.kind == "name" and token.text.upper() not in reserved):
            self.index += 1
            return token.text
        raise self.expected(what)

    def expect_column(self, what: str, reserved: frozenset[str] = frozenset()) -> str:
        """As `expect_name`, for texts in which double quotes make strings: names that are not plain have backticks."""
        token = self.token
        if token.kind == "backquoted" or (token.kind == "name" and token.text.upper() not in reserved):
            self.index += 1
            return token.text
        if token.kind in STRINGS:
            hint = "in queries double quotes make strings; names that are not plain stand in backticks"
            raise fail(self.text, token.offset, f"expected {what}, found a string", hint=hint)
        raise self.expected(what)

    def expected(self, *what: str, hint: str = "") -> TextError:
        if self.token.kind == "text" and (fault := name_fault(self.token.text)):
            return fail(self.text, self.token.offset, fault)
        listed = what[0] if len(what) == 1 else f"{', '.join(what[:-1])} or {what[-1]}"
        return fail(self.text, self.token.offset, f"expected {listed}, found {self.token.shown()}", hint)
