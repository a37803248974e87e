"""What the property tests draw from: names that hurt, partial orders, labels, clearances, and syntax trees."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from headgate.labels import Clearance, Conjunction, Label, Level, LevelOrder, RoleExpression, Rules, Semantics

ROLES = ("a", "b", "c", "d", "e")
LEVELS = ("L1", "L2", "L3", "L4")
COMPARTMENTS = ("X", "Y", "Z")
SOURCES = ("in1", "in2", "in3", "in4")

# Names that a printer or a parser could trip over.
NASTY = [
    *("TRUE", "false", "At", "FROM", "true false", "a", "A", "_", "_1", "1", "1a", "U"),
    *('"', '""', 'a"b', "'", "`", "\\", "--", "/*", "*/", "/* x */", "a--b", "(", ")", "a & b", "|", "{", "}", ","),
    *("é", "ß", "ﬁ", "İ", "ı", "日本", "😀", "а", "a b", "a  b", "\u1ead"),
]
_FORBIDDEN: Sequence[Literal["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"]] = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")

_BLANK = re.compile("GRAPHEME JOINER|FILLER|VOWEL INHERENT|VARIATION SELECTOR|PATTERN BLANK")


def _is_name(text: str) -> bool:
    blank = any((unicodedata.category(c) == "Zs" and c != " ") or _BLANK.search(unicodedata.name(c, "")) for c in text)
    return 0 < len(text) <= 128 and text == text.strip() and unicodedata.is_normalized("NFC", text) and not blank


names = st.one_of(
    st.sampled_from(NASTY),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,7}", fullmatch=True),
    st.text(st.characters(exclude_categories=_FORBIDDEN), min_size=1, max_size=6)
    .map(lambda text: unicodedata.normalize("NFC", text))
    .filter(_is_name),
)


def subsets(members: Sequence[str]) -> st.SearchStrategy[frozenset[str]]:
    """Any subset; one drawn number each, which is several times faster than drawing the members."""
    return st.integers(0, 2 ** len(members) - 1).map(lambda bits: _subset(members, bits))


def _subset(members: Sequence[str], bits: int) -> frozenset[str]:
    return frozenset(member for i, member in enumerate(members) if bits >> i & 1)


def _order(bits: int) -> LevelOrder:
    """Level i stands above a subset of those named before it."""
    width = len(LEVELS)
    return LevelOrder({name: _subset(LEVELS[:i], bits >> i * width) for i, name in enumerate(LEVELS)})


orders = st.integers(0, 2 ** len(LEVELS) ** 2 - 1).map(_order)
levels = st.builds(Level, st.sampled_from(("U", *LEVELS)), subsets(COMPARTMENTS))
roles = st.lists(subsets(ROLES), max_size=3).map(RoleExpression.of)
labels = st.builds(Label, roles.map(Conjunction.of), st.frozensets(levels, max_size=3), subsets(SOURCES))
clearances = st.builds(Clearance, subsets(ROLES), levels, subsets(SOURCES), subsets(SOURCES))


def rules(*allowed: Semantics) -> st.SearchStrategy[Rules]:
    """Rules with any order; the fourth source's owner never chooses."""
    chosen = st.tuples(*[st.sampled_from(allowed)] * 3).map(lambda drawn: dict(zip(SOURCES, drawn, strict=False)))
    return st.builds(Rules, orders, chosen)


@dataclass(frozen=True)
class Tree:
    """A syntax tree: a role or key word without parts, a pair of parentheses with one, an operator with two."""

    sign: str
    parts: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        """Parentheses only where the tree has them or where reading would need them."""
        if not self.parts:
            return self.sign
        if self.sign == "()":
            return f"({self.parts[0]})"
        shown = [f"({part})" if self.sign == "&" and part.sign == "|" else str(part) for part in self.parts]
        return f" {self.sign} ".join(shown)

    def holds(self, held: frozenset[str]) -> bool:
        match self.sign:
            case "TRUE":
                return True
            case "FALSE":
                return False
            case "&":
                return all(part.holds(held) for part in self.parts)
            case "|":
                return any(part.holds(held) for part in self.parts)
            case "()":
                return self.parts[0].holds(held)
            case name:
                return name in held


def trees(leaves: Sequence[str] = (*ROLES, "TRUE", "FALSE")) -> st.SearchStrategy[Tree]:
    def grown(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.one_of(
            st.builds(Tree, st.sampled_from("&|"), st.tuples(parts, parts)),
            st.builds(Tree, st.just("()"), st.tuples(parts)),
        )

    return st.recursive(st.sampled_from(leaves).map(Tree), grown, max_leaves=12)
