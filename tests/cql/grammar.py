"""The grammars of SPEC.md, sections 3 and 4, ready to run; levels are those of section 2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from hypothesis import strategies as st
from labels.ebnf import Checker, Choice, Grammar, Node, Repeated, Symbol, Terminal, Writer, read_grammar

SPEC = (Path(__file__).parents[2] / "SPEC.md").read_text(encoding="utf-8")


def block(section: str) -> Grammar:
    """The first EBNF block of a section."""
    match = re.search(rf"^## {re.escape(section)}\. .*?```ebnf\n(.*?)```", SPEC, re.MULTILINE | re.DOTALL)
    assert match is not None, f"SPEC.md has no grammar in section {section}"
    return read_grammar(match[1])


def _reserved() -> frozenset[str]:
    match = re.search(r"An \*alias\* is a plain name that is not one of the words\s+`([A-Z\s]+)`", SPEC)
    assert match is not None, "SPEC.md does not say what an alias is"
    return frozenset(match[1].split())


STATEMENTS = block("3")
QUERIES = block("4")
LABELS = block("2")
GRAMMAR: Grammar = {**STATEMENTS, **QUERIES, "level": LABELS["level"]}
# What section 1 describes in words, and what section 4 does.
OPEN = {"name", "string", "number", "rules"}
OPEN_IN_QUERIES = {"alias", "text", "function"}
RESERVED = _reserved()


@dataclass(frozen=True)
class Plain(Node):
    """A plain name that is not reserved: an alias if backticks are allowed, a function if not."""

    backticks: bool = False

    def grow(self, writer: Writer, fuel: int) -> None:  # noqa: ARG002
        writer.tokens.append(writer.draw(st.sampled_from(self.examples)))

    @property
    def examples(self) -> list[str]:
        return [
            "a",
            "V",
            "x1",
            "_b",
            *(["`from`", "`a b`", "`say ``ah```", "`é`"] if self.backticks else ["AVG", "Count"]),
        ]

    def ends(self, checker: Checker, begin: int) -> set[int]:
        token = checker.token(begin)
        plain = token.isascii() and token.isidentifier() and token.upper() not in RESERVED
        return {begin + 1} if plain or (self.backticks and token.startswith("`")) else set()


# The strings are labels, so that they may stand anywhere; the names are none of the key words.
STRINGS: Node = Choice((Terminal(text="'A'"), Terminal(text="'TRUE'"), Terminal(text="'\"IT''S\" AT S'")))
RULES: Node = Choice((Terminal(text="$$A$$"), Terminal(text="$$ PLAYS(A, B). -- '\n$$")))
NUMBERS: Node = Choice((Terminal(text="1"), Terminal(text="17"), Terminal(text="9999")))
NAMES: Node = Choice((Terminal(text="A"), Terminal(text="_B1"), Terminal(text='"AT"'), Terminal(text='"SAY ""AH"""')))
ALIASES: Node = Choice((Terminal(text="A"), Terminal(text="_B1"), Terminal(text="`AT`"), Terminal(text="`SAY ``AH```")))
TEXTS: Node = Choice((*STRINGS.parts, *(Terminal(text=x) for x in ('""', '" S"', '"AT"', '"SAY ""AH"""'))))
FUNCTIONS: Node = Choice((Terminal(text="F"), Terminal(text="AVG")))


def substituted(node: Node, values: Mapping[str, Node]) -> Node:
    """The same piece of grammar, with pieces in place of some symbols."""
    if isinstance(node, Symbol):
        return values.get(node.name, node)
    return replace(node, parts=tuple(substituted(part, values) for part in node.parts))


def closed(grammar: Grammar, **values: Node) -> Grammar:
    """A grammar without open symbols."""
    level = substituted(LABELS["level"], values)
    known = {"level": level, **values}
    return {name: substituted(node, known) for name, node in grammar.items() if name not in values}


_CLOSED = {"string": STRINGS, "number": NUMBERS, "text": TEXTS, "rules": RULES}
# No name is a key word.
STRICT = closed(GRAMMAR, **_CLOSED, name=NAMES, alias=ALIASES, function=FUNCTIONS)
# Any word may be a name.
LOOSE = closed(GRAMMAR, **_CLOSED, alias=Plain(backticks=True), function=Plain())


class Speaker:
    """Sentences of a grammar that nests, by a random generator: every rule is as likely deep inside as outside."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.cost: dict[str, int] = {}
        while len(self.cost) < len(grammar):
            self.cost |= {name: cost for name, node in grammar.items() if (cost := self._cost(node)) < 1000}

    def _cost(self, node: Node) -> int:
        """How deep the shortest sentence nests."""
        match node:
            case Symbol():
                return self.cost.get(node.name, 1000) + 1 if node.name in self.grammar else 0
            case Choice():
                return min(map(self._cost, node.parts))
            case Repeated():
                return 0
        return max(map(self._cost, node.parts), default=0)

    def sentence(self, rng: Random, start: str, fuel: int) -> list[str]:
        return self._spoken(rng, Symbol(name=start), fuel)

    def _spoken(self, rng: Random, node: Node, fuel: int) -> list[str]:
        match node:
            case Terminal():
                return [node.text]
            case Plain():
                return [rng.choice(node.examples)]
            case Symbol() if node.name not in self.grammar:
                return [rng.choice(("a", "b", "c1", "Rolle", '"ROLE"', '"a b"', '"a""b"', '"é"'))]
            case Symbol():
                return self._spoken(rng, self.grammar[node.name], fuel - 1)
            case Choice():
                fitting = [part for part in node.parts if self._cost(part) < fuel]
                return self._spoken(rng, rng.choice(fitting or [min(node.parts, key=self._cost)]), fuel)
            case Repeated():
                found: list[str] = []
                most = 1 if node.at_most_once else 3
                while most and self._cost(node.parts[0]) < fuel and rng.random() < 0.3:
                    found += self._spoken(rng, node.parts[0], fuel)
                    most -= 1
                return found
        return [token for part in node.parts for token in self._spoken(rng, part, fuel)]
