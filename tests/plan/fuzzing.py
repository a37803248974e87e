"""Texts to throw at queries: good ones, what damage makes of them, and texts made to be slow.

Every text is a function of its seed alone, so that a failure can be repeated from the line that reports it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random

from damage import Damage

from headgate.cql.queries import MAX_QUERY
from headgate.plan.queries import Stream
from headgate.testing.queries import random_query, random_streams

STRANGE = [
    *"\"'`;,.(){}[]=<>*+/%-&|\\#$@!?~^:_0 ",
    *"\n\r\t\x00\x01\x1b\x7f\x85\u00a0\u00ad\u0301\u0378\u200b\u2028\u202e\ue000\ufeff\ud800\udfff\U0001f600",
    *"İıſK٣²ßéﬁ",
    *("''", '""', "``", "--", "/*", "*/", "::", "||", "==", "=>", "->", "/*+", "${", "{{"),
]
NUMBERS = ["0", "00", "1.0", "1e9", "-1", "2147483648", "999999999999999999", "9" * 19, "9" * 4000, "0.1.2", "0x10"]
NUMBERS += [
    "0.000000000000000001",
    "999999999999999999.999999999999999999",
    "1.",
    ".5",
    "1" + "0" * 17,
    "1" * 18 + ".5",
]
WORDS = [
    *("SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "AS", "DISTINCT", "UNION", "ALL", "AND", "OR", "NOT", "IN"),
    *(
        "IS",
        "NULL",
        "BETWEEN",
        "LIKE",
        "TRUE",
        "FALSE",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "CAST",
        "ISTREAM",
        "ROWS",
    ),
    *("RANGE", "SLIDE", "NOW", "UNBOUNDED", "PARTITIONED", "LEVEL", "SECONDS", "DATE", "TIMESTAMP", "COUNT", "SUM"),
    *("ABS", "COALESCE", "SUBSTRING", "CONCAT", "id", "x0", "s1", "1", "'a'", '"b"', "`c`", *"*()[],.+-/%=", "<>"),
    *("EXISTS", "ORDER", "LIMIT", "JOIN", "ON", "OVER", "VALUES", "TABLE", "LATERAL", "INTERVAL", "reflect", "rand"),
]
BRACKETS = [
    *(("(", ")"), ("[", "]"), ("NOT ", ""), ("- ", ""), ("+ ", ""), ("CASE WHEN TRUE THEN ", " END"), ("ABS(", ")")),
    *(("CAST(", " AS INT)"), ("1 + ", ""), ("id = 1 OR (id = 2 AND ", ")"), ("(", " IS NULL)"), ("a.", "")),
]
_DAMAGE = Damage(
    pieces=re.compile(r"\s+|[A-Za-z0-9_]+|'[^']*'|\"[^\"]*\"|`[^`]*`|.", re.DOTALL),
    strange=STRANGE,
    spare=[f" {word} " for word in WORDS],
    brackets=BRACKETS,
    depths=[3, 31, 32, 33, 500, 5000],
    inside=["", "1", "id"],
)


def _numbered(rng: Random, text: str) -> str:
    changed = re.sub(r"\b\d+\b", lambda match: rng.choice((match[0], rng.choice(NUMBERS))), text)
    return changed if changed != text else f"{text} {rng.choice(NUMBERS)}"


WAYS = [_DAMAGE.cut, _DAMAGE.put_in, _DAMAGE.put_in, _DAMAGE.nested, _DAMAGE.grown, _numbered]
WAYS += [_DAMAGE.tokens] * 4


def damaged(rng: Random, text: str) -> str:
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = rng.choice(WAYS)(rng, text)
    return text


def spliced(rng: Random, one: str, other: str) -> str:
    """The beginning of one query and the end of another, at the borders of tokens."""
    a, b = _DAMAGE.pieces.findall(one), _DAMAGE.pieces.findall(other)
    return "".join(a[: rng.randrange(len(a) + 1)]) + " " + "".join(b[rng.randrange(len(b) + 1) :])


def noise(rng: Random) -> str:
    pieces = [*STRANGE, *NUMBERS, *WORDS, chr(rng.randrange(0x110000))]
    return " ".join(rng.choice(pieces) for _ in range(rng.randrange(40)))


def _where(condition: str) -> str:
    return f"SELECT id FROM {{stream}} [ROWS 5] WHERE {condition}"


def _joined(separator: str, part: Callable[[int], str], count: int) -> str:
    return separator.join(part(number) for number in range(count))


def _deep(count: int, condition: str = "TRUE") -> str:
    for number in range(count):
        condition = f"id = {number} {'OR' if number % 2 else 'AND'} ({condition})"
    return condition


BOMBS: dict[str, str] = {
    "products of sums": _where(_joined(" OR ", lambda n: f"(id = {n} AND id <> {n + 1})", 150)),
    "sums of products": _where(_joined(" AND ", lambda n: f"(id = {n} OR id > {n + 1000})", 150)),
    "many normal forms": _where(
        _joined(
            " AND ", lambda m: "(" + _joined(" OR ", lambda n: f"(id < {m * 9 + n} AND id > -{m + n})", 6) + ")", 25
        )
    ),
    "a negated list": _where(f"id NOT IN ({_joined(', ', str, 1990)})"),
    "negated lists": _where(_joined(" OR ", lambda n: f"id NOT IN ({n}, {_joined(', ', str, 90)})", 20)),
    "many unequal": _where(_joined(" AND ", lambda n: f"id <> {n}", 480)),
    "many bounds": _where(_joined(" AND ", lambda n: f"id > {n}", 480)),
    "many alternatives": _where(_joined(" OR ", lambda n: f"id > {n}", 480)),
    "many lists": _where(_joined(" AND ", lambda n: f"id IN ({_joined(', ', str, n + 1)})", 60)),
    "alternating": _where(_deep(30)),
    "alternating results": f"SELECT {_deep(30)} AS a, {_deep(29)} AS b FROM {{stream}}",
    "alternating and negated": _where("NOT (" + _deep(30) + ")"),
    "nested choices": "SELECT " + "CASE WHEN id = 1 THEN " * 31 + "1" + " ELSE 2 END" * 31 + " AS a FROM {stream}",
    "nested comparisons": _where("(" * 30 + "TRUE" + " = TRUE)" * 30 + " = (id = 1)"),
    "nested equalities": _where("(" * 31 + "id = id" + ") = (id = 1)" * 31),
    "nested calls": "SELECT " + "COALESCE(id, " * 31 + "id" + ")" * 31 + " AS a FROM {stream}",
    "wide nested calls": "SELECT "
    + "GREATEST(" * 5
    + _joined(", ", lambda _: "id", 1500)
    + ", id)" * 5
    + " AS a FROM {stream}",
    "long chains": f"SELECT {_joined(' + ', str, 999)} AS a FROM {{stream}}",
    "a short chain": f"SELECT {_joined(' + ', str, 31)} AS a FROM {{stream}}",
    "signs": f"SELECT {'- ' * 1900}1 AS a FROM {{stream}}",
    "negations": _where("NOT " * 1900 + "TRUE"),
    "parentheses": _where("(" * 100_000 + "TRUE" + ")" * 100_000),
    "brackets": "SELECT id FROM {stream} " + "[" * 100_000,
    "many results": f"SELECT {_joined(', ', lambda n: f'id AS a{n}', 200)} FROM {{stream}}",
    "too many results": f"SELECT {_joined(', ', lambda n: f'id AS a{n}', 201)} FROM {{stream}}",
    "far too many results": f"SELECT {_joined(', ', lambda n: f'id AS a{n}', 50_000)} FROM {{stream}}",
    "equal results": f"SELECT {_joined(', ', lambda _: 'COUNT(*)', 200)} FROM {{stream}}",
    "many aggregates": f"SELECT {_joined(', ', lambda n: f'SUM(id + {n})', 200)} FROM {{stream}}",
    "many sources": f"SELECT * FROM {_joined(', ', lambda n: f'{{stream}} a{n}', 16)}",
    "too many sources": f"SELECT 1 AS a FROM {_joined(', ', lambda n: f'{{stream}} a{n}', 17)}",
    "far too many sources": f"SELECT 1 AS a FROM {_joined(', ', lambda n: f'{{stream}} a{n}', 20_000)}",
    "joins of many": f"SELECT a0.id FROM {_joined(', ', lambda n: f'{{stream}} [NOW] a{n}', 16)} WHERE "
    + _joined(" AND ", lambda n: f"a{n % 16}.id = a{n * 7 % 16}.id", 400),
    "unequal joins of many": f"SELECT a0.id FROM {_joined(', ', lambda n: f'{{stream}} [NOW] a{n}', 16)} WHERE "
    + _joined(" OR ", lambda n: f"(a{n % 16}.id > {n} AND a{n * 7 % 16}.id < {n})", 170),
    "early joins of many": "SELECT a0.id WHERE "
    + _joined(" OR ", lambda n: f"(a{n % 16}.id > {n} AND a{n * 7 % 16}.id < {n})", 170)
    + f" FROM {_joined(', ', lambda n: f'{{stream}} [NOW] a{n}', 16)}",
    "many blocks": _joined(" UNION ALL ", lambda n: f"SELECT id FROM {{stream}} WHERE id > {n}", 16),
    "too many blocks": _joined(" UNION ALL ", lambda _: "SELECT id FROM {stream}", 17),
    "far too many blocks": _joined(" UNION ALL ", lambda _: "SELECT id FROM {stream}", 9_000),
    "many groups": f"SELECT COUNT(*) FROM {{stream}} GROUP BY {_joined(', ', lambda _: 'id', 1000)}",
    "too many groups": f"SELECT COUNT(*) FROM {{stream}} GROUP BY {_joined(', ', lambda _: 'id', 50_000)}",
    "many roles": f"AS {_joined(', ', lambda n: f'r{n}', 90_000)} SELECT id FROM {{stream}}",
    "a long list": _where(f"id IN ({_joined(', ', str, 100_000)})"),
    "a long name": f"SELECT {'a' * 900_000} FROM {{stream}}",
    "a long string": f"SELECT '{'a' * 900_000}' AS a FROM {{stream}}",
    "a long pattern": f"SELECT 'a' LIKE '{'%_' * 400_000}' AS a FROM {{stream}}",
    "escapes": "SELECT 'a' LIKE '" + "\\\\" * 400_000 + "\\' AS a FROM {stream}",
    "a long number": f"SELECT {'9' * 900_000} AS a FROM {{stream}}",
    "long space": "SELECT" + " " * 900_000 + "id FROM {stream}",
    "many comments": "SELECT" + "/**/" * 200_000 + " id FROM {stream}",
    "many lines": "\n" * 500_000 + "SELECT id FROM {stream}" + "\n" * 400_000 + "x",
    "many words": "SELECT " + "a " * 450_000,
    "many names": "SELECT " + "a." * 400_000 + "a FROM {stream}",
    "many commas": "SELECT " + "," * 900_000,
    "many semicolons": "SELECT id FROM {stream}" + ";" * 900_000,
    "open comment": "SELECT id FROM {stream} /*" + "*" * 900_000,
    "open string": "SELECT id FROM {stream} WHERE '" + "''" * 400_000,
    "wrong names": _where(_joined(" AND ", lambda n: f"{'x' * 100}{n} = 1", 600)),
    "strings": "SELECT " + "'a' " * 200_000,
    "likes": _where(_joined(" AND ", lambda n: f"CAST(id AS STRING) LIKE '%{n}%'", 480)),
    "nulls": _where(_joined(" OR ", lambda n: f"(id = NULL AND id + {n} IS NOT NULL)", 200)),
}


def _blocks(block: str, conditions: Sequence[str]) -> str:
    """As much of this as fits into one query."""
    found = " UNION ALL ".join(block.replace("?", condition) for condition in conditions)
    return found[:MAX_QUERY].rpartition(" UNION ALL ")[0]


BOMBS |= {
    f"16 times {name}": _blocks("SELECT COUNT(*) WHERE ? FROM {stream} [ROWS 5] WHERE ? HAVING ?", [condition] * 16)
    for name, condition in {
        "normal forms": _joined(
            " AND ", lambda m: "(" + _joined(" OR ", lambda n: f"(1 < {m * 9 + n} AND {m} > -{m + n})", 6) + ")", 2
        ),
        "64 alternatives": _joined(" AND ", lambda n: f"(LENGTH('{n}') > {n} OR LENGTH('') < -{n})", 32),
        "64 conditions": _joined(" AND ", lambda n: f"LENGTH('a') <> {n}", 64),
        "a list": f"LENGTH('a') NOT IN ({_joined(', ', str, 300)})",
        "deep": _deep(30, "LENGTH('') = 1").replace("id", "LENGTH('')"),
        "wide": _joined(" AND ", lambda n: f"COALESCE({_joined(', ', str, 20)}) > {n}", 24),
    }.items()
}


@lru_cache(maxsize=2)
def _undamaged(seed: str) -> tuple[tuple[Stream, ...], tuple[str, ...]]:
    rng = Random(seed)
    streams = random_streams(rng)
    return streams, tuple(random_query(rng, streams, depth=rng.choice((1, 1, 2))) for _ in range(4))


def text(rng: Random, seed: str) -> tuple[str, str, tuple[Stream, ...]]:
    """What kind of text it is, the text, and the streams it is about; made of a few queries that `seed` gives."""
    streams, queries = _undamaged(seed)
    kind = rng.choices(("good", "damaged", "spliced", "noise"), (5, 60, 25, 10))[0]
    one, other = rng.sample(queries, 2)
    match kind:
        case "good":
            return kind, one, streams
        case "damaged":
            return kind, damaged(rng, one), streams
        case "spliced":
            return kind, spliced(rng, one, other), streams
    return kind, noise(rng), streams
