"""Expressions have the structure that SQL gives them: another parser, of Spark's dialect, reads the same trees.

Compared are precedence and associativity; what only we refuse, such as a function's name, does not matter here.
"""

from __future__ import annotations

from random import Random

import pytest
import sqlglot
from labels.ebnf import Choice, Terminal
from sqlglot import expressions as g

from headgate.cql import expressions as x
from headgate.errors import TextError
from headgate.lexing import Cursor

from .grammar import GRAMMAR, Speaker, closed

Tree = str | tuple["Tree", ...]

# Names that mean nothing to the other parser.
SPEAKER = Speaker(
    closed(
        GRAMMAR,
        name=Terminal(text="a"),
        string=Terminal(text="'s'"),
        number=Choice((Terminal(text="1"), Terminal(text="2.5"))),
        text=Choice((Terminal(text="'s'"), Terminal(text='"t"'))),
        alias=Choice((Terminal(text="a"), Terminal(text="b"), Terminal(text="v1"), Terminal(text="`c d`"))),
        function=Choice((Terminal(text="f1"), Terminal(text="f2"))),
    )
)
_SIGNS: dict[type[g.Expr], str] = dict(
    zip(
        (g.And, g.Or, g.EQ, g.NEQ, g.LT, g.LTE, g.GT, g.GTE, g.Add, g.Sub, g.Mul, g.Div, g.Mod),
        ("AND", "OR", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%"),
        strict=True,
    )
)
_TYPES = {"TEXT": "STRING", "TIMESTAMPTZ": "TIMESTAMP"}


def ours(s: x.Syntax) -> Tree:
    match s:
        case x.NameSyntax():
            return f"{s.qualifier}.{s.name}" if s.qualifier is not None else s.name
        case x.LiteralSyntax():
            return str(s.value).upper() if s.value is None or isinstance(s.value, bool) else repr(s.value)
        case x.UnarySyntax():
            return ours(s.operand) if s.operator == "+" else (s.operator, ours(s.operand))
        case x.BinarySyntax():
            return s.operator, ours(s.left), ours(s.right)
        case x.CastSyntax():
            return "CAST", ours(s.operand), s.type
        case x.CallSyntax():
            arguments = ("*",) if s.star else tuple(map(ours, s.arguments))
            return f"{s.function}{' DISTINCT' if s.distinct else ''}", *arguments
        case x.CaseSyntax():
            branches = tuple((ours(condition), ours(value)) for condition, value in s.branches)
            return "CASE", *branches, ours(s.otherwise) if s.otherwise else "NONE"
    return _predicate(s)


def _predicate(s: x.Syntax) -> Tree:
    match s:
        case x.IsNullSyntax():
            found: Tree = ("IS NULL", ours(s.operand))
        case x.InSyntax():
            found = ("IN", ours(s.operand), *map(ours, s.items))
        case x.BetweenSyntax():
            found = ("BETWEEN", ours(s.operand), ours(s.low), ours(s.high))
        case x.LikeSyntax():
            found = ("LIKE", ours(s.operand), repr(s.pattern))
        case _:
            raise TypeError(type(s))
    return ("NOT", found) if s.negated else found


def theirs(e: g.Expr) -> Tree:
    if (sign := _SIGNS.get(type(e))) is not None:
        return sign, theirs(e.this), theirs(e.expression)
    match e:
        case g.Paren():
            return theirs(e.this)
        case g.Column():
            return f"{e.table}.{e.name}" if e.table else e.name
        case g.Literal():
            return repr(e.name) if e.is_string else e.name
        case g.Null():
            return "NONE"
        case g.Boolean():
            return str(e.this).upper()
        case g.Not():
            return "NOT", theirs(e.this)
        case g.Neg():
            return "-", theirs(e.this)
        case g.Cast():
            name = e.to.this.value
            return "CAST", theirs(e.this), _TYPES.get(name, name)
        case g.Case():
            branches = tuple((theirs(branch.this), theirs(branch.args["true"])) for branch in e.args["ifs"])
            default = e.args.get("default")
            return "CASE", *branches, theirs(default) if default is not None else "NONE"
    return _their_predicate(e)


def _their_predicate(e: g.Expr) -> Tree:
    match e:
        case g.Is():
            return "IS NULL", theirs(e.this)
        case g.In():
            return "IN", theirs(e.this), *map(theirs, e.expressions)
        case g.Between():
            return "BETWEEN", theirs(e.this), theirs(e.args["low"]), theirs(e.args["high"])
        case g.Like():
            like = ("LIKE", theirs(e.this), theirs(e.expression))
            return ("NOT", like) if e.args.get("negate") else like
        case g.Anonymous():
            inner = e.expressions
            if len(inner) == 1 and isinstance(inner[0], g.Distinct):
                return f"{e.name.upper()} DISTINCT", *map(theirs, inner[0].expressions)
            return e.name.upper(), *("*" if isinstance(part, g.Star) else theirs(part) for part in inner)
    raise TypeError(f"{type(e).__name__}: {e}")


def read(text: str) -> x.Syntax | TextError:
    cursor = Cursor(text)
    try:
        found = x.read_expression(cursor)
    except TextError as error:
        return error
    return found if cursor.ended else cursor.expected("the end of the text")


def compare(seed: str, sentences: int) -> int:
    rng = Random(seed)
    compared = 0
    for _ in range(sentences):
        tokens = SPEAKER.sentence(rng, "expression", rng.randrange(10, 40))
        # The other parser reads X'1F' as one word, and only where the digits are those of a number.
        text = " ".join(tokens).replace("X 's'", "DATE 's'")
        if len(tokens) > 150:
            continue
        syntax = read(text)
        if isinstance(syntax, TextError):
            assert "nested deeper" in syntax.message, f"{syntax} in {text}"
            continue
        assert ours(syntax) == theirs(sqlglot.parse_one(text, dialect="spark")), text
        compared += 1
    return compared


def test_expressions_are_read_as_another_parser_reads_them() -> None:
    assert compare("other parser", 400) > 300


@pytest.mark.long
def test_very_many_expressions_are_read_as_another_parser_reads_them() -> None:
    assert compare("long other parser", 20_000) > 15_000


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a - b - c", ("-", ("-", "a", "b"), "c")),
        ("a / b * c % d", ("%", ("*", ("/", "a", "b"), "c"), "d")),
        ("a + b * c", ("+", "a", ("*", "b", "c"))),
        ("- a * b", ("*", ("-", "a"), "b")),
        ("NOT a = b AND c OR d", ("OR", ("AND", ("NOT", ("=", "a", "b")), "c"), "d")),
        ("a OR b AND NOT c", ("OR", "a", ("AND", "b", ("NOT", "c")))),
        ("a BETWEEN b AND c AND d", ("AND", ("BETWEEN", "a", "b", "c"), "d")),
        ("a + b IS NOT NULL", ("NOT", ("IS NULL", ("+", "a", "b")))),
    ],
)
def test_what_binds_how(text: str, tree: Tree) -> None:
    syntax = read(text)
    assert isinstance(syntax, x.Syntax)
    assert ours(syntax) == tree == theirs(sqlglot.parse_one(text, dialect="spark"))
