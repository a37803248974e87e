"""A reader for the EBNF blocks of SPEC.md, so that the tests run the very grammar that people read.

It can do two things with a grammar: draw random sentences from it, and tell whether a sentence belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

NAME = "name"  # what SPEC.md section 1 defines in words: the only symbol a grammar may leave open

_TOKEN = re.compile(r'\s*(?:"([^"]+)"|([A-Za-z]+)|([=;,|\[\]{}()]))')


@dataclass(frozen=True)
class Node:
    """A piece of a rule; `parts` are the pieces within it."""

    parts: tuple[Node, ...] = ()

    def grow(self, writer: Writer, fuel: int) -> None:
        """Writes one random sentence of this piece; without fuel, a short one."""
        raise NotImplementedError

    def ends(self, checker: Checker, begin: int) -> set[int]:
        """Where a sentence of this piece that begins here can end."""
        raise NotImplementedError

    def inside(self) -> list[Node]:
        """This piece and all within it."""
        return [self, *(inner for part in self.parts for inner in part.inside())]


Grammar = Mapping[str, Node]


@dataclass(frozen=True)
class Terminal(Node):
    text: str = ""

    def grow(self, writer: Writer, fuel: int) -> None:  # noqa: ARG002
        writer.tokens.append(self.text)

    def ends(self, checker: Checker, begin: int) -> set[int]:
        return {begin + 1} if checker.token(begin).upper() == self.text else set()


@dataclass(frozen=True)
class Symbol(Node):
    name: str = ""

    def grow(self, writer: Writer, fuel: int) -> None:
        if self.name == NAME:
            writer.tokens.append(writer.draw(writer.names))
        else:
            writer.grammar[self.name].grow(writer, fuel - 1)

    def ends(self, checker: Checker, begin: int) -> set[int]:
        token = checker.token(begin)
        if self.name == NAME:
            return {begin + 1} if token.startswith('"') or token.isidentifier() else set()
        # As SPEC.md says below its grammar: a role, level or source named like a key word is quoted.
        if self.name in {"role", "level", "source"} and token.upper() in key_words(checker.grammar):
            return set()
        return checker.ends(checker.grammar[self.name], begin)


@dataclass(frozen=True)
class Series(Node):
    def grow(self, writer: Writer, fuel: int) -> None:
        for part in self.parts:
            part.grow(writer, fuel)

    def ends(self, checker: Checker, begin: int) -> set[int]:
        reached = {begin}
        for part in self.parts:
            reached = {end for place in reached for end in checker.ends(part, place)}
        return reached


@dataclass(frozen=True)
class Choice(Node):
    def grow(self, writer: Writer, fuel: int) -> None:
        fitting = [part for part in self.parts if fuel > 0 or not isinstance(part, Series)] or self.parts
        fitting[writer.draw(st.integers(0, len(fitting) - 1))].grow(writer, fuel)

    def ends(self, checker: Checker, begin: int) -> set[int]:
        return {end for part in self.parts for end in checker.ends(part, begin)}


@dataclass(frozen=True)
class Repeated(Node):
    """`[ ... ]` at most once, `{ ... }` any number of times."""

    at_most_once: bool = False

    def grow(self, writer: Writer, fuel: int) -> None:
        for _ in range(writer.draw(st.integers(0, 1 if self.at_most_once else 2)) if fuel > 0 else 0):
            self.parts[0].grow(writer, fuel)

    def ends(self, checker: Checker, begin: int) -> set[int]:
        reached, new = {begin}, {begin}
        while new:
            new = {end for place in new for end in checker.ends(self.parts[0], place)} - reached
            reached |= new
            if self.at_most_once:
                break
        return reached


def read_grammar(text: str) -> Grammar:
    """The rules of one block: `name = parts ;`."""
    reader = _Reader([match.groups() for match in _TOKEN.finditer(text.strip())])
    grammar: dict[str, Node] = {}
    while reader.tokens:
        _, name, _ = reader.tokens.pop(0)
        assert name is not None and name not in grammar, f"one rule for each name, not {name}"
        reader.take("=")
        grammar[name] = reader.choice()
        reader.take(";")
    return grammar


@dataclass
class _Reader:
    tokens: list[tuple[str | None, ...]]

    def take(self, sign: str) -> None:
        found = self.tokens.pop(0)
        assert found[2] == sign, f"expected {sign}, found {found}"

    def at(self, sign: str) -> bool:
        return bool(self.tokens) and self.tokens[0][2] == sign

    def choice(self) -> Node:
        parts = [self.series()]
        while self.at("|"):
            self.take("|")
            parts.append(self.series())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def series(self) -> Node:
        parts = [self.item()]
        while self.at(","):
            self.take(",")
            parts.append(self.item())
        return parts[0] if len(parts) == 1 else Series(tuple(parts))

    def item(self) -> Node:
        terminal, symbol, opening = self.tokens.pop(0)
        if terminal is not None:
            return Terminal(text=terminal)
        if symbol is not None:
            return Symbol(name=symbol)
        inner = self.choice()
        self.take({"[": "]", "{": "}", "(": ")"}[str(opening)])
        return inner if opening == "(" else Repeated((inner,), at_most_once=opening == "[")


def symbols(node: Node) -> set[str]:
    """The nonterminals a rule mentions."""
    return {inner.name for inner in node.inside() if isinstance(inner, Symbol)}


def terminals(grammar: Grammar) -> set[str]:
    return {inner.text for node in grammar.values() for inner in node.inside() if isinstance(inner, Terminal)}


def key_words(grammar: Grammar) -> set[str]:
    return {text for text in terminals(grammar) if text.isalpha()}


@dataclass
class Writer:
    """Draws one sentence."""

    grammar: Grammar
    draw: st.DrawFn
    names: st.SearchStrategy[str]
    tokens: list[str] = field(default_factory=list)


def sentences(grammar: Grammar, start: str, names: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    """Random sentences as lists of tokens; `names` draws names as they are written."""

    @st.composite
    def sentence(draw: st.DrawFn) -> list[str]:
        writer = Writer(grammar, draw, names)
        grammar[start].grow(writer, 8)
        return writer.tokens

    return sentence()


@st.composite
def damaged(draw: st.DrawFn, sentence: st.SearchStrategy[list[str]], spare: Sequence[str]) -> list[str]:
    """A sentence with a few tokens taken out, put in or exchanged for spare ones."""
    tokens = draw(sentence)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(tokens)))
        width = draw(st.integers(0, 1))
        tokens[place : place + width] = draw(st.lists(st.sampled_from(spare), max_size=1))
    return tokens


@dataclass
class Checker:
    """Tells whether tokens are a sentence: slow, plain, and nothing like the parser under test."""

    grammar: Grammar
    tokens: Sequence[str]
    known: dict[tuple[int, int], set[int]] = field(default_factory=dict)

    def token(self, place: int) -> str:
        return self.tokens[place] if place < len(self.tokens) else ""

    def ends(self, node: Node, begin: int) -> set[int]:
        """Known by the node itself and not by its value, which is costly to compare; the grammar keeps it alive."""
        place = (id(node), begin)
        if place not in self.known:
            self.known[place] = node.ends(self, begin)
        return self.known[place]


def accepts(grammar: Grammar, start: str, tokens: Sequence[str]) -> bool:
    return len(tokens) in Checker(grammar, tokens).ends(Symbol(name=start), 0)
