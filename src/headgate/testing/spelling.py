"""Writes queries as text: the same tokens in another case, with other white space, quotes and units of time."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from random import Random

from headgate.cql import expressions as x
from headgate.cql.queries import BlockSyntax, ItemSyntax, QuerySyntax, SourceSyntax, WindowSyntax
from headgate.cql.units import UNITS
from headgate.lexing import Token, quote, tokenize
from headgate.plan.expressions import written

KEY_WORDS = x.RESERVED | {
    *("ISTREAM", "DSTREAM", "RSTREAM", "ROWS", "RANGE", "SLIDE", "NOW", "UNBOUNDED", "PARTITIONED", "LEVEL"),
    *x.TYPES,
    *UNITS,
    *(f"{unit}S" for unit in UNITS),
}
_SPACES = (" ",) * 12 + ("\n", "\t", "  ", " /* FROM */ ", " -- it's\n", "\r\n")
_STRENGTH = {"OR": 1, "AND": 2, "NOT": 3, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_PREDICATE, _SUM, _SIGN, _ATOM = 4, 5, 7, 8


def respelled(rng: Random, text: str) -> str:
    """The same tokens, with random case in key words and functions."""
    tokens = tokenize(text)
    pieces: list[str] = []
    for token, following in pairwise(tokens):
        piece = text[token.offset : token.end]
        if token.kind == "name" and (token.text.upper() in KEY_WORDS or following.text == "("):
            piece = rng.choice((piece, piece, piece.lower(), piece.title()))
        pieces.append(piece + _space(rng, token, following))
    return "".join(pieces)


def _space(rng: Random, token: Token, following: Token) -> str:
    loose = token.text in ("(", ",", "[", ".") or following.text in (")", ",", "]", "(", ".", "")
    return rng.choice(("", "", " ")) if loose else rng.choice(_SPACES)


def query_text(rng: Random, query: QuerySyntax) -> str:
    roles = f"AS {', '.join(quote(role.text, KEY_WORDS) for role in query.roles)} " if query.roles else ""
    return roles + " UNION ALL ".join(_Speller(rng).block(block) for block in query.blocks)


class _Speller:
    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def block(self, s: BlockSyntax) -> str:
        parts = ["SELECT", s.operator or "", "DISTINCT" if s.distinct else "", ", ".join(map(self._item, s.items))]
        parts.append(f"WHERE {self.text(s.before)}" if s.before else "")
        parts.append("FROM " + ", ".join(map(self._source, s.sources)))
        parts.append(f"WHERE {self.text(s.after)}" if s.after else "")
        parts.append(f"GROUP BY {', '.join(map(_field, s.groups))}" if s.groups else "")
        parts.append(f"HAVING {self.text(s.having)}" if s.having else "")
        return " ".join(part for part in parts if part)

    def _item(self, item: ItemSyntax) -> str:
        if item.expression is None:
            return f"{_name(item.qualifier.text)}.*" if item.qualifier else "*"
        return self.text(item.expression) + (f" AS {_name(item.name.text)}" if item.name else "")

    def _source(self, source: SourceSyntax) -> str:
        owner = f"{quote(source.target.owner, KEY_WORDS)}." if source.target.owner is not None else ""
        window = self._window(source.window) if source.window else ""
        alias = f"{self.rng.choice(('AS ', ''))}{_name(source.alias.text)}" if source.alias else ""
        return f"{owner}{quote(source.target.name, KEY_WORDS)} {window} {alias}"

    def _window(self, window: WindowSyntax) -> str:
        rows = f"ROWS {window.rows}"
        match window.kind:
            case "ROWS":
                inside = rows
            case "RANGE":
                slide = f" SLIDE {self._duration(window.slide)}" if window.slide else ""
                inside = f"RANGE {self._duration(window.range)}{slide}"
            case "PARTITIONED":
                inside = f"PARTITIONED BY {', '.join(map(_field, window.columns))} {rows}"
            case _:
                inside = window.kind
        level = f" LEVEL = {self._literal(window.level.value)}" if window.level else ""
        return f"[{inside}{level}]"

    def _duration(self, milliseconds: int) -> str:
        unit, size = self.rng.choice([(unit, size) for unit, size in UNITS.items() if milliseconds % size == 0])
        return f"{milliseconds // size} {unit}{self.rng.choice(('', 'S'))}"

    # Expressions ----------------------------------------------------------------------------------------------------

    def text(self, syntax: x.Syntax, least: int = 0) -> str:
        """In parentheses where it binds weaker than its context requires."""
        strength = _strength(syntax)
        spelled = self._spelled(syntax, strength)
        return f"({spelled})" if strength < least or self.rng.random() < 0.03 else spelled

    def _spelled(self, syntax: x.Syntax, strength: int) -> str:
        match syntax:
            case x.NameSyntax():
                return _field(syntax)
            case x.LiteralSyntax():
                return self._literal(syntax.value)
            case x.UnarySyntax():
                return f"{syntax.operator} {self.text(syntax.operand, strength)}"
            case x.BinarySyntax():
                operator = self.rng.choice(("<>", "!=")) if syntax.operator == "<>" else syntax.operator
                left = self.text(syntax.left, _SUM if strength == _PREDICATE else strength)
                return f"{left} {operator} {self.text(syntax.right, strength + 1)}"
            case x.CastSyntax(literal=True, operand=x.LiteralSyntax(value=str(inside))):
                word = "X" if syntax.type == "BINARY" else syntax.type
                return f"{word} '{inside.replace(chr(39), chr(39) * 2)}'"
            case x.CastSyntax():
                return f"CAST({self.text(syntax.operand)} AS {syntax.type})"
            case x.CaseSyntax():
                whens = " ".join(f"WHEN {self.text(c)} THEN {self.text(v)}" for c, v in syntax.branches)
                return f"CASE {whens}{f' ELSE {self.text(syntax.otherwise)}' if syntax.otherwise else ''} END"
            case x.CallSyntax():
                arguments = "*" if syntax.star else ", ".join(map(self.text, syntax.arguments))
                return f"{syntax.function}({'DISTINCT ' if syntax.distinct else ''}{arguments})"
        return self._predicate(syntax)

    def _predicate(self, syntax: x.Syntax) -> str:
        match syntax:
            case x.IsNullSyntax():
                return f"{self.text(syntax.operand, _SUM)} IS {'NOT ' if syntax.negated else ''}NULL"
            case x.InSyntax():
                items = ", ".join(map(self.text, syntax.items))
                return f"{self.text(syntax.operand, _SUM)} {'NOT ' if syntax.negated else ''}IN ({items})"
            case x.BetweenSyntax():
                bounds = f"{self.text(syntax.low, _SUM)} AND {self.text(syntax.high, _SUM)}"
                return f"{self.text(syntax.operand, _SUM)} {'NOT ' if syntax.negated else ''}BETWEEN {bounds}"
            case x.LikeSyntax():
                pattern = self._literal(syntax.pattern)
                return f"{self.text(syntax.operand, _SUM)} {'NOT ' if syntax.negated else ''}LIKE {pattern}"
        raise TypeError(f"{type(syntax).__name__} is not an expression")

    def _literal(self, value: bool | int | float | str | None) -> str:
        match value:
            case None:
                return "NULL"
            case bool():
                return str(value).upper()
            case str():
                mark = self.rng.choice("'\"")
                return mark + value.replace(mark, mark * 2) + mark
            case float():
                return _decimal(value)
        return str(value)


def _decimal(value: float) -> str:
    """With a point and without an exponent; the largest number that can be written is rounded to 1e18."""
    text = format(Decimal(repr(value)), "f")
    return "999999999999999999.9" if value >= 1e18 else text if "." in text else f"{text}.0"


def _name(name: str) -> str:
    return f"`{name}`" if name.upper() in KEY_WORDS else written(name)


def _field(name: x.NameSyntax) -> str:
    return (f"{_name(name.qualifier)}." if name.qualifier is not None else "") + _name(name.name)


def _strength(syntax: x.Syntax) -> int:
    match syntax:
        case x.BinarySyntax():
            return _STRENGTH.get(syntax.operator, _PREDICATE)
        case x.UnarySyntax():
            return _STRENGTH["NOT"] if syntax.operator == "NOT" else _SIGN
        case x.IsNullSyntax() | x.InSyntax() | x.BetweenSyntax() | x.LikeSyntax():
            return _PREDICATE
    return _ATOM
