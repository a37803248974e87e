"""The plain form of labels is read by a fast path; it must never differ from the grammar, in meaning or in errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.errors import LabelError, Position
from headgate.labels.label import Label
from headgate.labels.levels import LevelOrder
from headgate.labels.roles import MAX_TERMS
from headgate.labels.text import MAX_TEXT, parse_any_label, parse_label, parse_plain_label
from headgate.lexing import MAX_NAME

ORDER = LevelOrder.total("U", "C", "S")
ORDERS = st.sampled_from([None, ORDER])

Outcome = Label | tuple[str, Position | None, str]


def outcome(parse: Callable[[str, LevelOrder | None], Label], text: str, order: LevelOrder | None) -> Outcome:
    """The label, or everything a person is told."""
    try:
        return parse(text, order)
    except LabelError as error:
        return error.message, error.position, error.hint


def check(text: str, order: LevelOrder | None) -> None:
    expected = outcome(parse_any_label, text, order)
    assert outcome(parse_label, text, order) == expected
    assert parse_plain_label(text, order) in (None, expected)


SPACE = st.sampled_from(["", "", "", " ", "  ", "\t", "\n", "\r\n"])
PLAIN_NAME = st.sampled_from(["a", "b", "c", "_", "R1", "r_2", "ATx", "xAT", "From1", "truely", "x" * MAX_NAME])
ODD_NAME = st.sampled_from(
    ["at", "From", "TRUE", "false", "AT", "x" * (MAX_NAME + 1), '"a"', '"at"', '"a b"', "é", "aé", "1a", "'s'", ""]
)
LEVEL = st.sampled_from(["U", "C", "S", "S", "X", "S{a}", "U{a, b}"])
GAP = st.sampled_from([" ", "  ", "\n", " /* c */ ", " -- c\n", ""])


def joined(part: st.SearchStrategy[str], symbol: str, most: int) -> st.SearchStrategy[str]:
    spaced = st.tuples(SPACE, part, SPACE).map("".join)
    return st.lists(spaced, min_size=1, max_size=most).map(symbol.join)


def labels(name: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    term = joined(name, "&", 4)
    closed = st.tuples(SPACE, term, SPACE).map(lambda t: f"{t[0]}({t[1]}){t[2]}")
    roles = joined(term | closed, "|", 5)
    at = st.tuples(GAP, st.sampled_from(["AT", "at"]), GAP, joined(LEVEL, ",", 3)).map("".join)
    sources = st.tuples(GAP, st.sampled_from(["FROM", "From"]), GAP, joined(name, ",", 3)).map("".join)
    return st.tuples(roles, st.just("") | at, st.just("") | sources).map("".join)


PLAIN = labels(PLAIN_NAME)
ANY = labels(PLAIN_NAME | ODD_NAME)
TOKENS = ["a", "b", "at", "FROM", "TRUE", "U", "S", "&", "|", "(", ")", ",", "{", "}", " ", '"q"', "--", "\n", "\x0b"]


@given(PLAIN | ANY, ORDERS)
@settings(max_examples=200)
@example("a at U from b", None)
@example("a at S, C from b, b", ORDER)
@example("(a)AT S", ORDER)
@example("a AT S FROM AT", ORDER)
@example("a\x0b", None)
@example("a\xa0", None)
@example("FALſE & a", None)
def test_both_ways_of_reading_agree_on_labels(text: str, order: LevelOrder | None) -> None:
    check(text, order)


@given(st.lists(st.sampled_from(TOKENS), max_size=14).map("".join) | st.text(max_size=12), ORDERS)
@settings(max_examples=200)
def test_both_ways_of_reading_agree_on_any_text(text: str, order: LevelOrder | None) -> None:
    check(text, order)


@given(ANY, st.data(), ORDERS)
@settings(max_examples=200)
def test_both_ways_of_reading_agree_on_labels_with_a_slip(
    text: str, data: st.DataObject, order: LevelOrder | None
) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 2, len(text))))
    check(text[:start] + data.draw(st.sampled_from(["", *TOKENS])) + text[end:], order)


@pytest.mark.parametrize("count", [MAX_TERMS, MAX_TERMS + 1])
def test_both_ways_of_reading_agree_on_the_limit_of_alternatives(count: int) -> None:
    many = "|".join(f"(x & r{i})" for i in range(count))
    check(many, None)
    check(f"{many} | x", None)  # in the end one alternative, but never more than the limit on the way


@pytest.mark.parametrize("size", [MAX_TEXT, MAX_TEXT + 1])
def test_both_ways_of_reading_agree_on_the_limit_of_length(size: int) -> None:
    check("a".ljust(size), None)
    check(("a&" * size)[: size - 1] + "b", None)


@pytest.mark.parametrize(
    "text", ["a", "a&b", "(a & b) | c", " ( a ) | b\n", "a|b at S", "(a)FROM x", "doctor | chief AT C, S FROM w1, w2"]
)
def test_plain_labels_take_the_fast_path(text: str) -> None:
    assert parse_plain_label(text, ORDER) == parse_any_label(text, ORDER)


@pytest.mark.parametrize("text", ["TRUE", "a & true", '"a"', "a & (b | c)", "((a))", "a AT S{x}", "a AT X", "a --", ""])
def test_other_texts_are_left_to_the_grammar(text: str) -> None:
    assert parse_plain_label(text, ORDER) is None
