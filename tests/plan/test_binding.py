"""What is refused, where, in which words, and what would work instead: one table for the parser and the binder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headgate.cql.expressions import MAX_DEPTH, MAX_NODES
from headgate.cql.queries import MAX_BLOCKS, MAX_ITEMS, MAX_QUERY, MAX_SOURCES, parse_query
from headgate.cql.reading import MAX_LIST
from headgate.errors import HeadgateError, Position
from headgate.lexing import MAX_NAME
from headgate.plan import nodes as n
from headgate.plan.expressions import Type
from headgate.plan.functions import AGGREGATES, FUNCTIONS
from headgate.plan.lowering import lower
from headgate.plan.normal import MOST_CONJUNCTS
from headgate.plan.queries import Query, Stream, bind_query
from headgate.testing.queries import finder

from . import forbidden

ERRORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "errors.json").read_text(encoding="utf-8"))
STREAMS = (
    Stream(
        "Vitals",
        (
            *(("sid", Type.INT), ("bp", Type.INT), ("pr", Type.BIGINT), ("temp", Type.DOUBLE), ("ratio", Type.FLOAT)),
            *(("name", Type.STRING), ("awake", Type.BOOLEAN), ("seen", Type.TIMESTAMP), ("born", Type.DATE)),
            ("blood type", Type.STRING),
        ),
    ),
    Stream("Position", (("sid", Type.INT), ("lat", Type.DOUBLE), ("lon", Type.STRING))),
    Stream("Wards", (("sid", Type.INT), ("ward", Type.STRING)), table=True),
)


def bound(text: str, streams: tuple[Stream, ...] = STREAMS) -> Query:
    return bind_query(parse_query(text), finder(streams))


def plan(text: str) -> n.Node:
    return lower(bound(text))


def refusal(text: str) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        plan(text)
    return caught.value


def where(condition: str) -> str:
    return f"SELECT sid FROM Vitals WHERE {condition}"


# The table


@pytest.mark.parametrize("case", ERRORS, ids=range(len(ERRORS)))
def test_a_mistake_is_refused_where_it_stands(case: dict[str, Any]) -> None:
    error = refusal(case["text"])
    assert (error.message, error.hint) == (case["message"], case.get("hint", ""))
    assert error.position == Position.of(case["text"], case["offset"])


@pytest.mark.parametrize("case", ERRORS, ids=range(len(ERRORS)))
def test_a_mistake_is_found_at_the_same_place_of_a_longer_text(case: dict[str, Any]) -> None:
    before = "-- é\n  /* */"
    error = refusal(before + case["text"])
    assert error.message == case["message"]
    assert error.position == Position.of(before + case["text"], len(before) + case["offset"])


def test_every_error_is_one_line_in_lower_case_and_says_enough() -> None:
    assert len(ERRORS) >= 150
    for case in ERRORS:
        first = case["message"].split()[0]
        assert re.fullmatch(r"[^\n]*[^\n.]", case["message"])
        assert not case["message"][0].isupper() or first.isupper()
        assert "an BOOLEAN" not in case["message"] and not re.search(r"\ba INT\b", case["message"])


@pytest.mark.parametrize("function", [*FUNCTIONS, *AGGREGATES])
def test_every_function_refuses_what_it_does_not_take(function: str) -> None:
    said = [case["message"] for case in ERRORS if f"{function}(" in case["text"]]
    assert any(function in message for message in said), f"no case for {function}"


def test_no_error_repeats_a_string() -> None:
    for case in ERRORS:
        text = case["text"].replace("'a'", "'hush-hush'").replace('"a"', '"hush-hush"').replace("'TS'", "'hush-hush'")
        if text != case["text"]:
            assert "hush" not in str(refusal(text))


# Limits


ITEM, WHERE = "SELECT {} AS a FROM Vitals", "SELECT sid FROM Vitals WHERE {}"
DEEP = f"nested deeper than {MAX_DEPTH}"
# A query, what still fits into it, what that becomes with one more, and the words of the refusal.
LIMITS = [
    (ITEM, "(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH, "({})", DEEP),
    (ITEM, "- " * (MAX_DEPTH - 1) + "1", "- {}", DEEP),
    (ITEM, " + ".join("1" * MAX_DEPTH), "{} + 1", DEEP),
    (WHERE, "NOT " * (MAX_DEPTH - 1) + "awake", "NOT {}", DEEP),
    (f"{WHERE})", f"bp IN (1{', 1' * (MAX_NODES - 2)}", "{}, 1", f"more than {MAX_NODES} parts"),
    ("SELECT {} FROM Vitals", ", ".join(f"bp AS a{k}" for k in range(MAX_ITEMS)), "{}, bp", "more than 200 results"),
    (
        "SELECT 1 AS a FROM {}",
        ", ".join(f"Vitals v{k}" for k in range(MAX_SOURCES)),
        "{}, Vitals",
        "more than 16 sources",
    ),
    (
        "SELECT sid FROM Vitals{}",
        " UNION ALL SELECT sid FROM Vitals" * (MAX_BLOCKS - 1),
        "{0}{0}",
        "more than 16 blocks",
    ),
    (
        "SELECT COUNT(*) FROM Vitals GROUP BY sid{}",
        ", sid" * (MAX_LIST - 1),
        "{}, sid",
        f"more than {MAX_LIST} members",
    ),
    ("SELECT bp AS {} FROM Vitals", "a" * MAX_NAME, "{}a", f"longer than {MAX_NAME} characters"),
    ("SELECT bp AS `{}` FROM Vitals", "é" * MAX_NAME, "{}é", f"longer than {MAX_NAME} characters"),
    ("{}", "SELECT sid FROM Vitals".ljust(MAX_QUERY), "{} ", f"longer than {MAX_QUERY} characters"),
    (
        "SELECT V.sid WHERE {} FROM Vitals V, Position P",
        " OR ".join(f"(V.bp > {number} AND P.lat < {number})" for number in range(6)),
        "{} OR (V.pr > 7 AND P.lat < 7)",
        f"more than {MOST_CONJUNCTS} alternatives",
    ),
]


@pytest.mark.parametrize(("query", "most", "more", "message"), LIMITS, ids=range(len(LIMITS)))
def test_a_limit_is_reached_and_not_passed(query: str, most: str, more: str, message: str) -> None:
    assert plan(query.format(most))
    assert message in refusal(query.format(more.format(most))).message


def test_all_columns_of_many_sources_are_too_many_results() -> None:
    wide = Stream("wide", tuple((f"c{number}", Type.INT) for number in range(100)))
    assert len(bound("SELECT * FROM wide a, wide b", (wide,)).columns) == MAX_ITEMS
    with pytest.raises(HeadgateError, match="more than 200 results"):
        bound("SELECT * FROM wide a, wide b, wide c", (wide,))


# What does not exist


@pytest.mark.parametrize("call", forbidden.CALLS, ids=[call.partition("(")[0] for call in forbidden.CALLS])
def test_a_function_beyond_the_list_is_refused_by_its_name(call: str) -> None:
    name = call.partition("(")[0]
    assert name.upper() not in {*FUNCTIONS, *AGGREGATES}
    for text in (f"SELECT {call} AS a FROM Vitals", where(f"{call} = 1"), where(f"NOT ({call.lower()}) IS NULL")):
        error = refusal(text)
        assert error.message == f"there is no function `{name.upper()}`"
        assert error.position is not None and error.position.offset == text.lower().index(f"{name.lower()}(")
        assert error.hint.startswith(("did you mean ", "there is "))


@pytest.mark.parametrize(("text", "offset", "message"), forbidden.TEXTS, ids=[text for text, _, _ in forbidden.TEXTS])
def test_what_is_not_in_the_grammar_is_refused_in_its_place(text: str, offset: int, message: str) -> None:
    error = refusal(text)
    assert error.message == message
    assert error.position is not None and error.position.offset == offset


def test_a_hint_is_a_comment_and_nothing_more() -> None:
    assert plan("SELECT /*+ BROADCAST(Vitals) */ sid FROM Vitals") == plan("SELECT sid FROM Vitals")


def test_no_function_is_reached_by_another_spelling() -> None:
    for name in ("`ABS`", '"ABS"', "V.ABS", "system.ABS", "spark_catalog.default.ABS", "builtin.ABS"):
        assert refusal(f"SELECT {name}(bp) AS a FROM Vitals V").message.startswith("expected")


# What queries mean


def test_a_name_that_the_join_makes_equal_means_the_same_in_every_order() -> None:
    both = [
        f"SELECT {item}, COUNT(*) FROM {sources} WHERE V.sid = P.sid GROUP BY {group}"
        for item in ("sid", "V.sid", "P.sid")
        for sources in ("Vitals V, Position P", "Position P, Vitals V")
        for group in ("sid", "P.sid", "V.sid")
    ]
    assert len({plan(text) for text in both}) == 1


def test_an_aggregate_counts_even_where_it_does_not_matter() -> None:
    assert bound("SELECT TRUE OR COUNT(*) > 1 AS a FROM Vitals").blocks[0].aggregated
    assert bound("SELECT 1 AS a FROM Vitals HAVING TRUE OR COUNT(*) > 1").blocks[0].aggregated


def test_level_is_the_level_of_the_tuple_whatever_the_columns_are_called() -> None:
    odd = Stream("odd", (("level", Type.INT), ("a", Type.INT)))
    (block,) = bound("SELECT a, LEVEL AS b FROM odd WHERE level = 'S'", (odd,)).blocks
    assert block.columns == (("a", Type.INT), ("b", Type.STRING))


@pytest.mark.parametrize(
    "pair",
    [
        ("(awake = TRUE) = awake", "awake = (TRUE = (awake = awake))"),
        ("(NOT awake) IS NULL", "NOT (awake IS NULL)"),
        ("awake = (bp IS NULL)", "(awake = awake) IS NULL"),
        ("awake <> (awake IN (TRUE, NULL))", "(awake <> awake) IN (TRUE, NULL)"),
        ("bp = 1", "pr = 1"),
        ("temp = 1", "temp = 1.5"),
        ("ratio = 16777217", "ratio = 16777217.0"),
        ("bp = 1 OR awake", "bp = 1 AND awake"),
        ("name = '1'", "sid = 1"),
        ("name = 'a'' OR name = ''b'", "name = 'a' OR name = 'b'"),
        ("seen = TIMESTAMP '2026-01-31 00:00:00'", "CAST(seen AS DATE) = DATE '2026-01-31'"),
        ("bp - (sid - pr) = 0", "bp - sid - pr = 0"),
        ("bp + 1 > 0", "bp + 1.0 > 0"),
        ("CAST(name AS INT) = 1", "CAST(name AS BIGINT) = 1"),
        ("LEVEL = 'S'", "name = 'S'"),
    ],
    ids=str,
)
def test_conditions_of_different_meaning_are_different_plans(pair: tuple[str, str]) -> None:
    one, other = (plan(where(condition)) for condition in pair)
    assert one != other and one.key != other.key


@pytest.mark.parametrize(
    "pair",
    [
        ("bp > 120", "120 < bp"),
        ("bp = 120.0", "120 = bp"),
        ("NOT bp > 120", "bp <= 120"),
        ("NOT (bp > 120 AND awake)", "bp <= 120 OR NOT awake"),
        ("bp BETWEEN 1 AND 2", "bp >= 1 AND 2 >= bp"),
        ("bp IN (1, 2)", "bp = 2 OR bp = 1 OR 1 = bp"),
        ("bp NOT IN (1, 2)", "bp <> 2 AND NOT bp = 1"),
        ("LEVEL = 'S' OR \"TS\"", "LEVEL IN ('TS', 'S')"),
        ("bp > 120 AND bp > 100", "bp > 120"),
        ("(bp = 1 AND pr = 2) OR (bp = 1 AND pr = 3)", "bp = 1 AND pr IN (2, 3)"),
        ("bp <= bp", "bp >= bp"),
        ("1 = 1.0 AND awake", "awake AND TRUE"),
        ("temp > -0.0", "temp > 0"),
        ("+bp = + + 1", "bp = 1"),
        ("seen > TIMESTAMP '2026-01-31T12:00+01:00'", "TIMESTAMP '2026-01-31 11:00:00Z' < seen"),
    ],
    ids=str,
)  # fmt: skip
def test_conditions_of_equal_meaning_are_one_plan(pair: tuple[str, str]) -> None:
    one, other = (plan(where(condition)) for condition in pair)
    assert one == other and one.key == other.key
