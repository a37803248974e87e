"""SPEC.md section 4, executed: queries are read by the grammar on the page, all of it and nothing else."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from random import Random

import pytest
from labels.ebnf import Checker, Symbol, accepts, key_words, symbols, terminals

from headgate.cql import expressions
from headgate.cql.queries import QuerySyntax, parse_query
from headgate.errors import TextError
from headgate.lexing import tokenize

from .grammar import LOOSE, OPEN_IN_QUERIES, QUERIES, RESERVED, SPEC, STATEMENTS, STRICT, Speaker

KEY_WORDS = key_words(QUERIES)
BORROWED = {"names", "object", "type"}
SPEAKER = Speaker(LOOSE)
STRICT_SPEAKER = Speaker(STRICT)
SPARE = sorted({"A", "_B1", "`AT`", "'A'", '""', "17", "F"} | terminals({name: STRICT[name] for name in QUERIES}))
SPACES = (" ", " ", "\n", "\t", "\r\n", "/* ; */", " -- '\n", "/**/")


def test_the_grammar_has_a_rule_for_every_symbol() -> None:
    used = set().union(*(symbols(node) for node in QUERIES.values()))
    assert used - QUERIES.keys() == {"string", "number"} | OPEN_IN_QUERIES | BORROWED
    assert STATEMENTS.keys() >= BORROWED
    for symbol in sorted(OPEN_IN_QUERIES - {"function"}):
        assert f"*{symbol}*" in SPEC, f"section 4 does not say what a {symbol} is"


def test_every_rule_is_needed_for_queries() -> None:
    reached: set[str] = set()
    new = {"query"}
    while new:
        reached |= new
        new = set().union(*(symbols(QUERIES[name]) for name in new)) & QUERIES.keys() - reached
    assert reached == QUERIES.keys()


def test_the_words_that_cannot_be_names_are_those_of_the_document() -> None:
    assert expressions.RESERVED == RESERVED


def answer(text: str) -> QuerySyntax | TextError:
    try:
        return parse_query(text)
    except TextError as error:
        return error


def beyond_limits(error: TextError) -> bool:
    return bool(re.search(r"must not (have|be|read) (more|nested|longer)", error.message))


def spelled(rng: Random, tokens: list[str]) -> str:
    shown = [rng.choice((t, t.lower(), t.title())) if t in KEY_WORDS else t for t in tokens]
    return rng.choice(SPACES).join(shown)


def without_places(value: object) -> object:
    if isinstance(value, tuple):
        return [without_places(member) for member in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    named = [(f.name, without_places(getattr(value, f.name))) for f in fields(value) if f.name != "position"]
    return type(value).__name__, named


def read_all(seed: str, sentences: int) -> int:
    rng = Random(seed)
    read = 0
    for _ in range(sentences):
        tokens = SPEAKER.sentence(rng, "query", rng.randrange(12, 40))
        if len(tokens) > 400:
            continue
        text = spelled(rng, tokens)
        found = answer(text)
        assert accepts(LOOSE, "query", tokens), text
        if isinstance(found, TextError):
            assert beyond_limits(found), f"{found} in {text!r}"
            continue
        read += 1
        assert without_places(found) == without_places(parse_query(" ".join(tokens)))
    return read


def compare_all(seed: str, sentences: int) -> tuple[int, int]:
    """Damaged sentences: what the parser reads is a sentence, what it refuses is none. Where a key word stands for a
    name a sentence may be read either way; the parser then takes the key word."""
    rng = Random(seed)
    read = refused = 0
    for _ in range(sentences):
        tokens = STRICT_SPEAKER.sentence(rng, "query", rng.randrange(12, 36))[:200]
        for _ in range(rng.randint(1, 3)):
            place, width = rng.randrange(len(tokens) + 1), rng.randrange(2)
            tokens[place : place + width] = rng.choices(SPARE, k=rng.randrange(2))
        text = " ".join(tokens)
        found = answer(text)
        if isinstance(found, TextError):
            refused += 1
            assert beyond_limits(found) or not accepts(STRICT, "query", tokens), f"{found} in {text!r}"
        else:
            read += 1
            assert accepts(LOOSE, "query", tokens), f"{text!r} was read"
    return read, refused


def test_every_sentence_of_the_grammar_is_read() -> None:
    assert read_all("sentence", 200) > 120


def test_the_parser_reads_exactly_the_sentences_of_the_grammar() -> None:
    read, refused = compare_all("damaged", 300)
    assert read > 25 and refused > 100


@pytest.mark.long
def test_very_many_sentences_are_read_exactly_by_the_grammar() -> None:
    assert read_all("long sentence", 3_000) > 2_000
    read, refused = compare_all("long damaged", 10_000)
    assert read > 800 and refused > 3_000


def test_an_error_stands_where_no_sentence_goes_on() -> None:
    """Everything before the place of an error begins some sentence: the recogniser gets past it."""
    rng = Random("place")
    for _ in range(100):
        tokens = STRICT_SPEAKER.sentence(rng, "query", 24)[:60]
        cut = rng.randrange(len(tokens))
        text = " ".join(tokens[:cut])
        found = answer(text)
        if isinstance(found, TextError):
            assert found.position is not None and found.position.offset == len(text), text
        else:
            assert cut in Checker(LOOSE, tokens).ends(Symbol(name="query"), 0)


@pytest.mark.parametrize("number", ["0", "1.5", "0.0", "9999999999999999999"])
@pytest.mark.parametrize(
    "window", ["ROWS {}", "RANGE {} SECONDS", "RANGE 1 DAY SLIDE {} SECONDS", "PARTITIONED BY a ROWS {}"]
)
def test_windows_are_made_of_whole_numbers_from_1(window: str, number: str) -> None:
    assert parse_query(f"SELECT a FROM s [{window.format(1)}]")
    with pytest.raises(TextError):
        parse_query(f"SELECT a FROM s [{window.format(number)}]")


def test_a_text_in_double_quotes_may_be_any_text() -> None:
    for text in ("", " S", "a\nb", "x" * 500, "it's"):
        quoted = text.replace('"', '""')
        (block,) = parse_query(f'SELECT "{quoted}" AS a FROM s').blocks
        assert isinstance(block.items[0].expression, expressions.LiteralSyntax)
        assert block.items[0].expression.value == text


def test_every_position_is_that_of_a_token() -> None:
    rng = Random("positions")
    for _ in range(50):
        text = spelled(rng, STRICT_SPEAKER.sentence(rng, "query", 24)[:150])
        found = answer(text)
        starts = {token.offset for token in tokenize(text)}
        assert all(place in starts for place in _offsets(found))


def _offsets(value: object) -> list[int]:
    if isinstance(value, TextError):
        return [value.position.offset] if value.position and not beyond_limits(value) else []
    if isinstance(value, tuple):
        return [place for member in value for place in _offsets(member)]
    if is_dataclass(value) and hasattr(value, "offset"):
        return [value.offset]
    if is_dataclass(value):
        return [place for f in fields(value) for place in _offsets(getattr(value, f.name))]
    return []
