"""Values from where types meet and engines differ, and random rows and expressions made of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from random import Random

from expressions.engines import COLUMNS, Row, bound
from headgate.plan.expressions import Expr, Type, Value
from headgate.testing.expressions import Author, random_value

TEXTS = (
    *("", " ", "a\nb", "ab\n", "\r\n", "%", "_", "\\", "^", "'", '"', "`", "$", "\x00", "a\x00b", "\t1", "1\n"),
    *("é", "e\u0301", "\u0130\u00df", "\u00a0x", "\U0001f600", "a\U0001f600b", "\uff5e", "A" * 300, " 12 ", "+12"),
    *("-9223372036854775808", "9223372036854775808", "9" * 400, "1_0", "0x1", "1e3", "1e400", "1e-400", ".5", "5."),
    *("NaN", "inf", "Infinity", "\u0661", "yes", "No", "T", "on", "ye\u017f", "1d", "1f", "0.1", "1.5E+3", "-.5e-1"),
    *("0000-01-01", "0001-01-01", "9999-12-31", "2024-02-29", "2026-02-29", "2026-1-1", "now", "infinity", "epoch"),
    *("2026-01-01 24:00", "2026-03-08 02:30", "2026-11-01T01:30:00.000001", "2026-01-01 23:59:60", "2026-01-01T"),
    *("0001-01-01 00:00:00+18:00", "9999-12-31T23:59:59.999999-18:00", "9999-12-31 23:59:59.999999Z"),
    *("0001-01-01 00:30+00:30", "0001-01-01 00:30+00:31", "2026-06-30 12:00-00:00", "2026-06-30 12:00:00.5+18:01"),
    *("1582-10-10", "1582-10-10 12:00:00", "1883-11-18 12:00:00Z", "1900-01-01 00:00", "2026-01-01 12:00 PST"),
)
NOT_THERE_IN_NEW_YORK = dt.datetime(2026, 3, 8, 2, 30, tzinfo=dt.UTC)
TWICE_THERE_IN_NEW_YORK = dt.datetime(2026, 11, 1, 5, 30, 0, 1, tzinfo=dt.UTC)
EDGES: dict[Type, Sequence[Value]] = {
    Type.BOOLEAN: (True, False),
    Type.INT: (0, 1, -1, 2**31 - 1, -(2**31), 16777217),
    Type.BIGINT: (0, 2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 2**31, 3037000500, 1152921573326323713),
    Type.FLOAT: (0.0, -0.0, 0.10000000149011612, 16777216.0, 3.4028234663852886e38, -(2.0**63), 2.0**63, 2.0**31),
    Type.DOUBLE: (0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, -1e308, 2.0**63, -(2.0**63), 2.0**53, 1e-308, 2.5),
    Type.STRING: TEXTS,
    Type.BINARY: (b"", b"\x00", b"\x00\x00", b"\x7f", b"\x80", b"\xff", b"a'b", b"\xed\xa0\x80", b"\xff" * 300),
    Type.DATE: (dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31), dt.date(2024, 2, 29)),
    Type.TIMESTAMP: (
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=dt.UTC),
        dt.datetime(1582, 10, 10, 12, tzinfo=dt.UTC),
        NOT_THERE_IN_NEW_YORK,
        TWICE_THERE_IN_NEW_YORK,
    ),
}
MODELS = (
    *("-12", "+2147483647", "-9223372036854775808", "1.5e-3", ".5", "true", "No", "2024-02-29", "0001-01-01T00:00"),
    *("2026-01-31 12:00:59.123456", "9999-12-31 23:59:59.999999-18:00", "2026-01-31T12:00+01:30", "2026-01-31 23:59Z"),
)
STRAY = "0129-+.:eEZT tfydn,_\n\x00\t\u0661\u00a0/x"


def random_rows(rng: Random, count: int) -> list[Row]:
    def value(type_: Type) -> Value:
        chance = rng.random()
        return None if chance < 0.1 else rng.choice(EDGES[type_]) if chance < 0.5 else random_value(rng, type_)

    return [{column: value(column.type) for column in COLUMNS} for _ in range(count)]


def author(rng: Random) -> Author:
    return Author(rng, lambda type_: rng.choice([column.name for column in COLUMNS if column.type == type_]))


def random_exprs(rng: Random, count: int) -> list[Expr]:
    return [bound(author(rng).any(rng.randint(1, 4))) for _ in range(count)]


def random_conditions(rng: Random, count: int) -> list[Expr]:
    return [bound(author(rng).condition(rng.randint(1, 3))) for _ in range(count)]


def almost(rng: Random, model: str) -> str:
    """The model with a few characters changed, left out, or put in."""
    text = model
    for _ in range(rng.choice((0, 1, 1, 2))):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(("", rng.choice(STRAY))) + text[at + rng.randint(0, 1) :]
    return text
