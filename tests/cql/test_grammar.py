"""SPEC.md section 3, executed: the parser reads the grammar on the page, all of it and nothing else.

The queries inside statements are those of section 4.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labels.ebnf import accepts, damaged, key_words, sentences, symbols, terminals

import headgate.cql
from headgate.access.statements import HANDLERS
from headgate.cql.parser import parse_script
from headgate.cql.statements import Statement
from headgate.cql.units import UNITS
from headgate.errors import TextError
from headgate.labels import Semantics
from headgate.labels.roles import RESERVED

from .grammar import GRAMMAR, LOOSE, OPEN, OPEN_IN_QUERIES, QUERIES, STATEMENTS, STRICT
from .grammar import RESERVED as RESERVED_IN_QUERIES
from .values import plain_statement

KEY_WORDS = key_words(STATEMENTS)
MODULES = (
    "parser",
    "definitions",
    "continuous",
    "deadline_clauses",
    "units",
    "overload",
    "rights",
    "reading",
    "queries",
    "expressions",
)


def test_the_grammar_has_a_rule_for_every_symbol() -> None:
    used = set().union(*(symbols(node) for node in STATEMENTS.values()))
    assert used - STATEMENTS.keys() == OPEN | {"level"} | {"blocks", "query", "duration"}
    assert QUERIES.keys() >= {"blocks", "query", "duration"}
    assert set().union(*(symbols(node) for node in STRICT.values())) <= STRICT.keys()


def test_every_rule_is_needed_for_scripts() -> None:
    reached: set[str] = set()
    new = {"script"}
    while new:
        reached |= new
        new = set().union(*(symbols(GRAMMAR[name]) for name in new)) - reached - OPEN - OPEN_IN_QUERIES
    assert reached == GRAMMAR.keys()


def _words_of_the_parser() -> set[str]:
    """All strings of capitals in the parser's modules: what it compares words with."""
    folder = Path(headgate.cql.__file__).parent
    trees = [ast.parse((folder / f"{name}.py").read_text()) for name in MODULES]
    texts = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    found = [text for text in texts if isinstance(text, str) and re.fullmatch(r"`?(?:X|[A-Z]{2,})(?: [A-Z]+)*`?", text)]
    return set(" ".join(found).replace("`", "").split()) | {semantics.value for semantics in Semantics}


def test_parser_and_document_have_the_same_key_words() -> None:
    words = _words_of_the_parser()
    units = {f"{unit}S" for unit in UNITS}
    assert words | units == KEY_WORDS | key_words(QUERIES) | RESERVED_IN_QUERIES


spaces = st.sampled_from([" ", "  ", "\n", "\t", "\r\n", "/* ; */", " -- '\n", "/**/"])


def spelled(data: st.DataObject, tokens: list[str]) -> str:
    """Tokens with random space between; key words in random case."""
    shown = [data.draw(st.sampled_from([t, t.lower(), t.title()])) if t in KEY_WORDS else t for t in tokens]
    return data.draw(spaces).join(shown)


names = st.sampled_from(["a", "b", "c1", "Rolle", '"ROLE"', '"TRUE"', '"a b"', '"a""b"', '"--"', '"é"', '"日本"'])
STATEMENT_RULES = sorted(symbols(STATEMENTS["statement"]))


@pytest.mark.parametrize("rule", STATEMENT_RULES)
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_every_sentence_of_the_grammar_is_read(rule: str, data: st.DataObject) -> None:
    tokens = data.draw(sentences(LOOSE, rule, names))
    assert accepts(LOOSE, rule, tokens)
    _read(spelled(data, tokens))


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_every_script_of_the_grammar_is_read(data: st.DataObject) -> None:
    tokens = data.draw(sentences(LOOSE, "script", names))
    statements = _read(spelled(data, tokens))
    assert all(type(statement) in HANDLERS for statement in statements)
    assert [plain_statement(x) for x in _read(" ".join(tokens))] == [plain_statement(x) for x in statements]


def _read(text: str) -> tuple[Statement, ...]:
    """A grammar cannot say that something is given once; that refusal alone is no disagreement."""
    statements, refusal = _answer(text)
    assert refusal is None or _given_twice(refusal), f"{refusal} in {text!r}"
    return statements


def _answer(text: str) -> tuple[tuple[Statement, ...], TextError | None]:
    try:
        return parse_script(text), None
    except TextError as error:
        return (), error


def _given_twice(refusal: TextError) -> bool:
    return refusal.message.endswith("is given twice")


@pytest.mark.parametrize("rule", STATEMENT_RULES)
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_the_parser_reads_exactly_the_sentences_of_the_grammar(rule: str, data: st.DataObject) -> None:
    """Where a key word stands for a name a sentence may be read either way; the parser then takes the key word."""
    spare = ["A", "_B1", "'A'", "17", *sorted(terminals(STRICT))]
    tokens = data.draw(damaged(sentences(STRICT, rule, names), spare))
    text = " ".join(tokens)
    statements, refusal = _answer(text)
    if refusal is None:
        assert accepts(LOOSE, "script", tokens), f"{text!r} was read as {statements}"
    else:
        assert _given_twice(refusal) or not accepts(STRICT, "script", tokens), f"{refusal} in {text!r}"


def test_numbers_are_whole_where_things_are_counted() -> None:
    for text in (
        "CREATE ROLE a MAX QUERIES {}",
        "CREATE ROLE a MAX STATE {}",
        "ALTER ROLE a MAX RESULTS {}",
        "CREATE SEPARATION s STATIC OF a, b AT MOST {}",
        "SHOW AUDIT LIMIT {}",
    ):
        assert parse_script(text.format(7))
        with pytest.raises(TextError, match="expected a whole number"):
            parse_script(text.format(7.5))
    assert parse_script("GRANT USE ON OPERATOR window TO a WITH (seconds = 7.5)")
    assert parse_script("SET SYSTEM idle_minutes = 7.5")


def test_a_level_is_read_as_in_labels() -> None:
    for word in RESERVED:
        with pytest.raises(TextError, match="expected a level"):
            parse_script(f"CREATE USER joe CLEARANCE {word}")
        assert parse_script(f'CREATE USER joe CLEARANCE "{word}"')


def test_the_open_symbols_are_described_in_section_1() -> None:
    section = re.search(r"^## 1\. .*?(?=^## )", (Path(__file__).parents[2] / "SPEC.md").read_text(), re.M | re.S)
    assert section is not None
    for symbol in sorted(OPEN):
        assert re.search(rf"\*(plain )?{symbol}\*", section[0]), f"section 1 does not say what a {symbol} is"
