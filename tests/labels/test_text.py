"""SPEC.md sections 1 and 2, executed: the grammar, the examples, the table and the limits are read from the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import HeadgateError, LabelError
from headgate.labels import Conjunction, Label, Level, LevelOrder, parse_label, parse_level, parse_roles
from headgate.labels.roles import RESERVED
from headgate.lexing import Token, quote, tokenize

from .ebnf import NAME, Symbol, accepts, damaged, key_words, read_grammar, sentences, symbols, terminals
from .strategies import names

SPEC = (Path(__file__).parents[2] / "SPEC.md").read_text(encoding="utf-8")

PARSERS: dict[str, Callable[[str], object]] = {"label": parse_label, "roles": parse_roles, "level": parse_level}

run = settings(deadline=None, max_examples=80)


def section(number: str) -> str:
    """The text under one heading, up to the next heading of any rank."""
    match = re.search(rf"^#+ {re.escape(number)}\.? .*?\n(.*?)(?=^#|\Z)", SPEC, re.MULTILINE | re.DOTALL)
    assert match is not None, f"SPEC.md has no section {number}"
    return match[1]


def _block(number: str) -> str:
    match = re.search(r"```ebnf\n(.*?)```", section(number), re.DOTALL)
    assert match is not None
    return match[1]


GRAMMAR = read_grammar(_block("2"))


# The grammar


def test_the_grammar_has_a_rule_for_every_symbol_but_name() -> None:
    used = set().union(*(symbols(node) for node in GRAMMAR.values()))
    assert used - GRAMMAR.keys() == {NAME}


def test_every_rule_of_the_grammar_is_needed_for_labels() -> None:
    reached: set[str] = set()
    new = {"label"}
    while new:
        reached |= new
        new = set().union(*(symbols(GRAMMAR[name]) for name in new)) - reached - {NAME}
    assert reached == GRAMMAR.keys()
    assert GRAMMAR.keys() == {"label", "roles", "and", "factor", "role", "level", "source"}


def test_every_parser_is_a_rule_of_the_grammar() -> None:
    assert PARSERS.keys() <= GRAMMAR.keys()
    assert GRAMMAR["role"] == GRAMMAR["source"] == Symbol(name=NAME)


def test_the_key_words_of_the_grammar_are_the_reserved_words() -> None:
    assert key_words(GRAMMAR) == RESERVED
    named = re.search(r"^(.*) are key words here", section("2"), re.MULTILINE)
    assert named is not None
    assert set(re.findall(r"`(\w+)`", named[1])) == RESERVED


written_names = st.one_of(
    st.sampled_from(["a", "b", "c", "S", "in1", '"TRUE"', '"at"', '"a b"', '"a""b"', '"--"', '"("']),
    names.map(lambda name: quote(name, RESERVED)),
)
spaces = st.sampled_from([" ", "  ", "\n", "\t", "\r\n", "/* ( */", " -- |\n", "/**/"])


def spaced(draw: st.DrawFn, tokens: list[str]) -> str:
    """Tokens with random space between; key words in random case."""
    shown = [draw(st.sampled_from([t, t.lower(), t.title()])) if t in RESERVED else t for t in tokens]
    return draw(spaces).join(shown)


@st.composite
def texts(draw: st.DrawFn, start: str) -> tuple[list[str], str]:
    tokens = draw(sentences(GRAMMAR, start, written_names))
    return tokens, spaced(draw, tokens)


@pytest.mark.parametrize("start", PARSERS)
@run
@given(data=st.data())
def test_every_sentence_of_the_grammar_is_read(start: str, data: st.DataObject) -> None:
    tokens, text = data.draw(texts(start))
    assert accepts(GRAMMAR, start, tokens)
    PARSERS[start](text)


@pytest.mark.parametrize("start", PARSERS)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_the_parser_reads_exactly_the_sentences_of_the_grammar(start: str, data: st.DataObject) -> None:
    sentence = sentences(GRAMMAR, start, st.sampled_from(["a", "b", '"at"']))
    tokens = data.draw(damaged(sentence, ["a", "b", '"at"', *sorted(terminals(GRAMMAR))]))
    text = " ".join(tokens)
    if accepts(GRAMMAR, start, tokens):
        PARSERS[start](text)
    else:
        with pytest.raises(LabelError):
            PARSERS[start](text)


@pytest.mark.parametrize("start", PARSERS)
@run
@given(data=st.data())
def test_whatever_the_text_a_parser_answers_or_names_a_place_in_it(start: str, data: st.DataObject) -> None:
    _, text = data.draw(texts(start))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        width = data.draw(st.integers(0, 2))
        put_in = data.draw(st.one_of(st.sampled_from(list("\"'()|&{},-/*\\\x00\ud800\u200b é1")), st.characters()))
        text = text[:place] + put_in + text[place + width :]
    _answers_or_names_a_place(PARSERS[start], text)


@run
@given(st.text(max_size=40))
def test_any_text_at_all_is_read_or_refused_with_a_place(text: str) -> None:
    for parser in PARSERS.values():
        _answers_or_names_a_place(parser, text)


def _answers_or_names_a_place(parser: Callable[[str], object], text: str) -> None:
    refusal: LabelError | None = None
    try:
        value = parser(text)
    except LabelError as error:
        refusal = error
    if refusal is None:
        assert parser(str(value)) == value
    else:
        assert refusal.position is not None
        assert 0 <= refusal.position.offset <= len(text)
        assert refusal.message and "\n" not in str(refusal)


# Section 1: words and names


def test_the_names_of_section_1_are_read_as_they_say() -> None:
    shown = re.findall(r'`("(?:[^"`]|"")+")`', section("1"))
    assert shown == ['"head nurse"', '"say ""ah"""']
    assert [tokenize(text)[0].text for text in shown] == ["head nurse", 'say "ah"']


def test_the_string_of_section_1_is_one_string() -> None:
    assert "`'it''s'`" in section("1")
    assert tokenize("'it''s'")[0] == Token("string", "it's", 0, 7)


def test_the_comments_of_section_1_are_comments() -> None:
    assert "`-- to the end of the line` and `/* ... */` are comments." in section("1")
    assert [token.kind for token in tokenize("-- to the end of the line\n /* ... */")] == ["end"]


@pytest.mark.parametrize("spelling", ["GRANT", "Grant", "grant", "doctor", "Doctor"])
def test_names_are_exact(spelling: str) -> None:
    assert parse_roles(spelling).names == {spelling}


@run
@given(names)
def test_every_name_of_section_1_can_be_a_role_a_level_a_compartment_and_a_source(name: str) -> None:
    written = '"' + name.replace('"', '""') + '"'
    label = parse_label(f"{written} AT {written}{{{written}}} FROM {written}")
    assert label.roles.names == label.sources == {name}
    assert label.levels == {Level(name, frozenset({name}))}


@pytest.mark.parametrize("bad", ["", " a", "a ", "a\u0301", "a\x07", "a\u200b", "a\ue000", "a\u0378", "x" * 129])
def test_what_section_1_does_not_call_a_name_is_refused_everywhere(bad: str) -> None:
    for text in (f'"{bad}"', f'a AT "{bad}"', f'a AT S{{"{bad}"}}', f'a FROM "{bad}"'):
        with pytest.raises(LabelError, match="a name must"):
            parse_label(text)


@run
@given(
    st.text(
        st.characters(
            exclude_characters="'\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
            codec="utf-8",
        ),
        min_size=4,
    )
)
def test_no_error_repeats_a_string(secret: str) -> None:
    for text in (f"a & '{secret}'", f"a AT '{secret}'", f"a FROM '{secret}'", f"'{secret}", f"a b '{secret}'"):
        with pytest.raises(LabelError) as caught:
            parse_label(text)
        assert caught.value.message in {
            "expected a role, `(`, `TRUE` or `FALSE`, found a string",
            "expected a level, found a string",
            "expected a source, found a string",
            "this string is not closed",
            "expected `&`, `|`, `AT`, `FROM` or the end of the text, found `b`",
        }


# Section 2: limits, examples, table


def test_the_limits_of_section_2_are_exact() -> None:
    said = re.search(
        r"Limits of a text: ([\d,]+) characters, (\d+) nested parentheses, (\d+) levels; (\d+) alternatives",
        section("2"),
    )
    assert said is not None
    length, depth, levels, alternatives = (int(number.replace(",", "")) for number in said.groups())
    for fits, too_much in (
        ("a".ljust(length), "a".ljust(length + 1)),
        ("(" * depth + "a" + ")" * depth, "(" * (depth + 1) + "a" + ")" * (depth + 1)),
        ("a AT " + ",".join(f"l{i}" for i in range(levels)), "a AT " + ",".join(f"l{i}" for i in range(levels + 1))),
        ("|".join(f"r{i}" for i in range(alternatives)), "|".join(f"r{i}" for i in range(alternatives + 1))),
    ):
        parse_label(fits)
        with pytest.raises(LabelError):
            parse_label(too_much)


def test_the_limit_of_a_name_is_exact() -> None:
    said = re.search(r"A name has 1 to (\d+) characters", section("1"))
    assert said is not None
    longest = int(said[1])
    parse_label("x" * longest)
    with pytest.raises(LabelError):
        parse_label("x" * (longest + 1))


def test_the_equalities_of_section_2_1_hold() -> None:
    pairs = re.findall(r"`([^`]+)`\s+is\s+`([^`]+)`", section("2.1"))
    assert len(pairs) == 2
    for left, right in pairs:
        assert parse_label(left) == parse_label(right)
        assert str(parse_label(left)) == right


def test_the_dominance_of_section_2_1_holds() -> None:
    said = re.search(r"`([^`]+)` is\s+dominated by `([^`]+)` if `(\w+)` is dominated by `(\w+)`", section("2.1"))
    assert said is not None
    low, high = parse_level(said[1]), parse_level(said[2])
    assert LevelOrder.total("U", said[3], said[4]).dominates(high, low)
    assert not LevelOrder.total("U", said[4], said[3]).dominates(high, low)
    apart = LevelOrder({said[3]: frozenset(), said[4]: frozenset()})
    assert not apart.dominates(high, low)


def _rows(number: str) -> list[tuple[str, str]]:
    lines = [line for line in section(number).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert cells[0] == ["text", "canonical"]
    return [(left.replace("\\|", "|"), right.replace("\\|", "|")) for left, right in cells[2:]]


@pytest.mark.parametrize(("left", "right"), _rows("2.4"))
def test_each_row_of_the_table_in_section_2_4_holds(left: str, right: str) -> None:
    said = re.fullmatch(r"`([^`]+)`(?: \(with `(\w+)` below `(\w+)`\))?", left)
    assert said is not None
    order = LevelOrder.total("U", said[2], said[3]) if said[2] else LevelOrder()
    assert f"`{parse_label(said[1], order)}`" == right


def test_the_table_in_section_2_4_has_rows() -> None:
    assert len(_rows("2.4")) >= 4


def test_at_u_is_not_printed() -> None:
    assert "`AT U` says nothing and is not printed" in section("2.1")
    assert str(parse_label("a AT U")) == "a"
    assert parse_label("a AT U") == parse_label("a") == Label(Conjunction.of(parse_roles("a")))


# One parser for a part is as strict as the parser for the whole


@pytest.mark.parametrize("text", ["a AT S", "a FROM b", "a,b", "a)", ""])
def test_roles_alone_take_nothing_else(text: str) -> None:
    with pytest.raises(LabelError):
        parse_roles(text)


@pytest.mark.parametrize("text", ["S, C", "S FROM a", "S{A}{B}", "S | C", "(S)", "", "TRUE"])
def test_a_level_alone_takes_nothing_else(text: str) -> None:
    with pytest.raises(LabelError):
        parse_level(text)


def test_a_level_must_be_known_where_an_order_is_given() -> None:
    order = LevelOrder.total("U", "C")
    assert parse_level("C{A}", order) == Level("C", frozenset({"A"}))
    assert parse_level("U", order) == Level("U")
    with pytest.raises(LabelError, match="unknown level `S`"):
        parse_level("S", order)


def test_every_error_is_one_line_in_lower_case_and_names_no_type() -> None:
    for text in ("", "a AT", "a b", "(", '"', "'", "1a", "é", "a AT S{", '"\n"'):
        with pytest.raises(HeadgateError) as caught:
            parse_label(text)
        assert re.fullmatch(r"[a-z][^\n]*", caught.value.message)
        assert not re.search(r"\b(Token|Cursor|RoleExpression|frozenset|None)\b", str(caught.value))
