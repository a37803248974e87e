"""Expressions, as written: a closed grammar of SQL's operators and calls, with the place of every part.

Read by a small parser of our own rather than a general SQL parser: what is not in this grammar does not exist, so
nothing has to be found and forbidden, and every refusal can say where and what was expected.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import Position
from headgate.lexing import STRINGS, Cursor, fail

OTHER_WORDS = {"INTEGER": "INT", "VARCHAR": "STRING"}
"""What SQL calls types too; texts have no length here."""
TYPES = ("BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "TIMESTAMP", "DATE", "BINARY")
MAX_DEPTH = 32
MAX_NODES = 2000

COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
# Words that end an expression or join two, and so cannot be a column's name unless quoted.
RESERVED = frozenset(
    (
        *("SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "AS", "DISTINCT", "UNION", "ALL", "ORDER", "LIMIT"),
        *("AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "TRUE", "FALSE"),
        *("CASE", "WHEN", "THEN", "ELSE", "END", "CAST"),
    )
)


@dataclass(frozen=True)
class Syntax:
    position: Position


@dataclass(frozen=True)
class NameSyntax(Syntax):
    """`bp` or `V.bp`."""

    qualifier: str | None
    name: str


@dataclass(frozen=True)
class LiteralSyntax(Syntax):
    value: bool | int | float | str | None


@dataclass(frozen=True)
class UnarySyntax(Syntax):
    """`-x`, `+x`, `NOT x`."""

    operator: str
    operand: Syntax


@dataclass(frozen=True)
class BinarySyntax(Syntax):
    operator: str
    left: Syntax
    right: Syntax


@dataclass(frozen=True)
class InSyntax(Syntax):
    operand: Syntax
    items: tuple[Syntax, ...]
    negated: bool


@dataclass(frozen=True)
class BetweenSyntax(Syntax):
    operand: Syntax
    low: Syntax
    high: Syntax
    negated: bool


@dataclass(frozen=True)
class LikeSyntax(Syntax):
    operand: Syntax
    pattern: str
    negated: bool


@dataclass(frozen=True)
class IsNullSyntax(Syntax):
    operand: Syntax
    negated: bool


@dataclass(frozen=True)
class CaseSyntax(Syntax):
    branches: tuple[tuple[Syntax, Syntax], ...]
    otherwise: Syntax | None


@dataclass(frozen=True)
class CastSyntax(Syntax):
    """`CAST(x AS type)`; `literal` for `DATE '2026-01-31'`, which must be one."""

    operand: Syntax
    type: str
    literal: bool = False


@dataclass(frozen=True)
class CallSyntax(Syntax):
    """`AVG(x)`, `COUNT(*)` (`star`), `COUNT(DISTINCT x)`."""

    function: str
    arguments: tuple[Syntax, ...]
    star: bool
    distinct: bool


def read_expression(cursor: Cursor) -> Syntax:
    found = _Reader(cursor).disjunction()
    _check_depth(cursor.text, found)
    return found


def _check_depth(text: str, syntax: Syntax) -> None:
    """Chains such as `a + b + c + ...` make deep trees without parentheses; a chain of ANDs or ORs counts once."""
    waiting = [(syntax, 1)]
    while waiting:
        top, depth = waiting.pop()
        for part in parts(top):
            chained = (
                isinstance(top, BinarySyntax)
                and isinstance(part, BinarySyntax)
                and top.operator == part.operator
                and top.operator in ("AND", "OR")
            )
            if depth == MAX_DEPTH and not chained:
                hint = "a chain such as a + b + c is as deep as it is long" if isinstance(top, BinarySyntax) else ""
                raise fail(
                    text, part.position.offset, f"an expression must not be nested deeper than {MAX_DEPTH}", hint
                )
            waiting.append((part, depth if chained else depth + 1))


def parts(syntax: Syntax) -> tuple[Syntax, ...]:
    """What a piece of syntax is made of."""
    match syntax:
        case BinarySyntax():
            return syntax.left, syntax.right
        case BetweenSyntax():
            return syntax.operand, syntax.low, syntax.high
        case InSyntax():
            return syntax.operand, *syntax.items
        case UnarySyntax() | LikeSyntax() | IsNullSyntax() | CastSyntax():
            return (syntax.operand,)
        case CallSyntax():
            return syntax.arguments
        case CaseSyntax():
            last = () if syntax.otherwise is None else (syntax.otherwise,)
            return *(part for branch in syntax.branches for part in branch), *last
        case _:
            return ()


class _Reader:
    """Precedence from weakest: OR, AND, NOT, comparisons and predicates, + -, * / %, unary minus."""

    def __init__(self, cursor: Cursor) -> None:
        self.c = cursor
        self.depth = 0
        self.nodes = 0

    def count(self) -> Position:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise fail(self.c.text, self.c.token.offset, f"an expression must not have more than {MAX_NODES} parts")
        return self.c.position

    def nested(self) -> Syntax:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise fail(self.c.text, self.c.token.offset, f"an expression must not be nested deeper than {MAX_DEPTH}")
        found = self.disjunction()
        self.depth -= 1
        return found

    def disjunction(self) -> Syntax:
        left = self.conjunction()
        while self.c.at_word("OR"):
            at = self.count()
            self.c.next()
            left = BinarySyntax(at, "OR", left, self.conjunction())
        return left

    def conjunction(self) -> Syntax:
        left = self.negation()
        while self.c.at_word("AND"):
            at = self.count()
            self.c.next()
            left = BinarySyntax(at, "AND", left, self.negation())
        return left

    def negation(self) -> Syntax:
        nots = []
        while self.c.at_word("NOT"):
            nots.append(self.count())
            self.c.next()
        found = self.predicate()
        for at in reversed(nots):
            found = UnarySyntax(at, "NOT", found)
        return found

    def predicate(self) -> Syntax:
        left = self.sum()
        at = self.c.position
        if self.c.token.kind == "symbol" and self.c.token.text in COMPARISONS:
            self.count()
            return BinarySyntax(at, COMPARISONS[self.c.next().text], left, self.sum())
        if self.c.token.kind != "name":
            return left
        if self.c.take_word("IS"):
            negated = self.c.take_word("NOT")
            self.c.expect_word("NULL")
            return IsNullSyntax(at, left, negated)
        negated = self.c.take_word("NOT")
        if self.c.take_word("IN"):
            self.c.expect_symbol("(")
            items = self.arguments()
            return InSyntax(at, left, items, negated)
        if self.c.take_word("BETWEEN"):
            low = self.sum()
            self.c.expect_word("AND")
            return BetweenSyntax(at, left, low, self.sum(), negated)
        if self.c.take_word("LIKE"):
            return LikeSyntax(at, left, self.string("a pattern in single quotes"), negated)
        if negated:
            raise self.c.expected("`IN`", "`BETWEEN`", "`LIKE`")
        return left

    def sum(self) -> Syntax:
        left = self.product()
        while self.c.at_symbol("+") or self.c.at_symbol("-"):
            at = self.count()
            left = BinarySyntax(at, self.c.next().text, left, self.product())
        return left

    def product(self) -> Syntax:
        left = self.factor()
        while self.c.at_symbol("*") or self.c.at_symbol("/") or self.c.at_symbol("%"):
            at = self.count()
            left = BinarySyntax(at, self.c.next().text, left, self.factor())
        return left

    def factor(self) -> Syntax:
        signs = []
        while self.c.at_symbol("-") or self.c.at_symbol("+"):
            at = self.count()
            signs.append((at, self.c.next().text))
        found = self.atom()
        for at, sign in reversed(signs):
            found = UnarySyntax(at, sign, found)
        return found

    def atom(self) -> Syntax:
        at = self.count()
        token = self.c.token
        if token.kind == "number":
            self.c.next()
            return LiteralSyntax(at, int(token.text) if token.text.isdigit() else float(token.text))
        if token.kind in STRINGS:  # the papers write strings in double quotes
            self.c.next()
            return LiteralSyntax(at, token.text)
        if self.c.take_symbol("("):
            found = self.nested()
            self.c.expect_symbol(")")
            return found
        for word, value in (("NULL", None), ("TRUE", True), ("FALSE", False)):
            if self.c.take_word(word):
                return LiteralSyntax(at, value)
        for word, type_ in (("DATE", "DATE"), ("TIMESTAMP", "TIMESTAMP"), ("X", "BINARY")):
            if self.c.at_word(word) and self.c.tokens[self.c.index + 1].kind == "string":
                self.c.next()
                return CastSyntax(at, LiteralSyntax(self.c.position, self.c.next().text), type_, literal=True)
        if self.c.at_word("SELECT"):
            raise fail(self.c.text, at.offset, "expected an expression, found `SELECT`", "queries do not nest")
        if self.c.take_word("CASE"):
            return self.case(at)
        if self.c.take_word("CAST"):
            return self.cast(at)
        return self.name_or_call(at)

    def string(self, what: str) -> str:
        if self.c.token.kind not in STRINGS:
            raise self.c.expected(what)
        return self.c.next().text

    def name_or_call(self, at: Position) -> Syntax:
        plain = self.c.token.kind == "name"
        name = self.c.expect_column("an expression", RESERVED)
        if self.c.take_symbol("."):
            return NameSyntax(at, name, self.c.expect_column("the name of a column", RESERVED))
        if not plain or not self.c.take_symbol("("):
            return NameSyntax(at, None, name)
        if self.c.take_symbol("*"):
            self.c.expect_symbol(")")
            return CallSyntax(at, name.upper(), (), star=True, distinct=False)
        if self.c.take_symbol(")"):
            return CallSyntax(at, name.upper(), (), star=False, distinct=False)
        distinct = self.c.take_word("DISTINCT")
        return CallSyntax(at, name.upper(), self.arguments(), star=False, distinct=distinct)

    def arguments(self) -> tuple[Syntax, ...]:
        """Up to the closing parenthesis."""
        found = [self.nested()]
        while self.c.take_symbol(","):
            found.append(self.nested())
        if not self.c.take_symbol(")"):
            raise self.c.expected("`,`", "`)`")
        return tuple(found)

    def case(self, at: Position) -> Syntax:
        branches = []
        while self.c.take_word("WHEN"):
            condition = self.nested()
            self.c.expect_word("THEN")
            branches.append((condition, self.nested()))
        if not branches:
            raise self.c.expected("`WHEN`")
        otherwise = self.nested() if self.c.take_word("ELSE") else None
        if not self.c.take_word("END"):
            raise self.c.expected("`WHEN`", "`ELSE`", "`END`") if otherwise is None else self.c.expected("`END`")
        return CaseSyntax(at, tuple(branches), otherwise)

    def cast(self, at: Position) -> Syntax:
        self.c.expect_symbol("(")
        operand = self.nested()
        self.c.expect_word("AS")
        type_ = read_type(self.c)
        self.c.expect_symbol(")")
        return CastSyntax(at, operand, type_)


def read_type(cursor: Cursor) -> str:
    for word, name in (*zip(TYPES, TYPES, strict=True), *OTHER_WORDS.items()):
        if cursor.take_word(word):
            return name
    raise cursor.expected(*(f"`{name}`" for name in TYPES))
