"""The grammar in docs/sendlog.md is the one that is read."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from labels.ebnf import read_grammar, sentences, symbols

from headgate.sendlog.functions import FUNCTIONS
from headgate.sendlog.parser import parse

PAGE = (Path(__file__).parents[2] / "docs/sendlog.md").read_text()
WORDS = """
variable = "X" | "Y" | "N" ; constant = "bob" | "read" ; predicate = "p" | "may-access" ; function = "f_sha" ;
label = "r1" ; number = "3" | "2.5" ; count = "2" ; overlay = "Chord" ; text = "'two words'" ;
"""
FOUND = re.search(r"```ebnf\n(.*?)```", PAGE, re.DOTALL)
GRAMMAR = read_grammar((FOUND[1] if FOUND else "") + WORDS)


def test_the_grammar_has_a_rule_for_every_symbol() -> None:
    assert {symbol for node in GRAMMAR.values() for symbol in symbols(node)} <= set(GRAMMAR)


@settings(max_examples=150, deadline=None)
@given(sentences(GRAMMAR, "program", st.just("name")))
def test_every_sentence_of_the_grammar_is_read(sentence: list[str]) -> None:
    parse(" ".join(word.replace("'", '"') for word in sentence))


def test_the_page_names_every_function() -> None:
    assert {name for name in FUNCTIONS if name.startswith("f_")} == set(re.findall(r"f_\w+", PAGE))
