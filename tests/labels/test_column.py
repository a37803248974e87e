"""Columns of label texts are read as the grammar reads each text: the same labels, and the same texts are none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.errors import LabelError
from headgate.labels import Conjunction, Label, LevelOrder, compiled, parse_label, parse_roles
from headgate.labels.column import LabelColumn, read_labels, read_roles
from headgate.labels.compiled import MOST_PRODUCTS, NO_REST, ODD
from headgate.labels.roles import MAX_TERMS
from headgate.labels.text import MAX_DEPTH, MAX_TEXT
from headgate.lexing import MAX_NAME

ORDER = LevelOrder.total("U", "C", "S")


def by_grammar(text: str, order: LevelOrder | None) -> Label | None:
    try:
        return parse_label(text, order)
    except LabelError:
        return None


def roles_by_grammar(text: str) -> Label | None:
    try:
        return Label(Conjunction.of(parse_roles(text)))
    except LabelError:
        return None


def agrees(column: LabelColumn, expected: Sequence[Label | None]) -> None:
    labels = list(column.labels)
    found = [None if n < 0 else labels[n] for n in column.index.tolist()]
    assert found == list(expected)
    assert len(set(labels)) == len(labels) == len(set(expected) - {None})


def check(texts: list[str], order: LevelOrder | None = None) -> None:
    agrees(read_labels(pa.array(texts, pa.string()), order), [by_grammar(text, order) for text in texts])
    agrees(read_roles(pa.array(texts, pa.string())), [roles_by_grammar(text) for text in texts])


def rest_of(text: str) -> int:
    """Where the compiled reader says that a text goes on after its roles."""
    data = np.frombuffer(text.encode() or b"", np.uint8)
    return int(compiled.read_texts(data, np.array([0, len(data)]), np.uint64(1))[0][0])


SPACE = st.sampled_from(["", "", "", " ", "\t", "\r\n", " /* c */ ", " -- c\n"])
NAME = st.sampled_from(
    [*"abcde_", "R1", "at1", "tru", "TRUEx", "True", "FALSE", "false", '"a"', '"a b"', "x" * MAX_NAME]
)


def _pair(symbol: str) -> st.SearchStrategy[str]:
    return st.tuples(SPACE, st.just(symbol), SPACE).map("".join)


def _joined(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    both = st.tuples(part, st.lists(st.tuples(_pair("&") | _pair("|"), part).map("".join), max_size=4))
    return both.map(lambda x: x[0] + "".join(x[1]))


ROLES = st.recursive(_joined(NAME), lambda inner: _joined(inner.map(lambda x: f"({x})") | NAME), max_leaves=12)
CLAUSE = st.sampled_from(
    [
        *("", "", "", " AT S", " at C, S", "\nAT S{X, Y}", " FROM in1", " AT C FROM in1, in2"),
        *(" AT", " FROM AT", " AT Q", "AT S", " x"),
    ]
)
NOISE = st.text(st.sampled_from("ab1_ &|(){},\"'`-/*.;\té\u202e\x00"), max_size=12)
TEXT = st.tuples(ROLES, CLAUSE).map("".join) | NOISE | st.tuples(ROLES, NOISE).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.lists(TEXT, max_size=12), st.sampled_from([None, ORDER]))
@example(["a", '"a"', "a & a", "(a)", "a | (a & b)", "a AT U", "a AT S", "a at C, S"], ORDER)
@example(["", " ", "&", "a &", "a b", "(a", "a)", "()", "at", "a AT", "a AT S AT S", "TRUE", "FALSE", "true|b"], None)
@example(["(a|b)&(c|d)&(a|c)", "a & FALSE", "FALSE | a", "TRUE & a", "a | TRUE", "(FALSE)", "((a))&((a))"], None)
def test_a_column_is_read_as_the_grammar_reads_each_text(texts: list[str], order: LevelOrder | None) -> None:
    check(texts, order)


def many(count: int, join: str = "|") -> str:
    return join.join(f"r{n}" for n in range(count))


def product(*sizes: int) -> str:
    return "&".join(f"({many(size).replace('r', 'abcdefg'[n])})" for n, size in enumerate(sizes))


@pytest.mark.parametrize(
    "text",
    [
        *(many(count) for count in (MAX_TERMS - 1, MAX_TERMS, MAX_TERMS + 1)),
        f"({many(MAX_TERMS)}) | x",
        f"({many(MAX_TERMS + 1)}) | TRUE",
        f"({many(MAX_TERMS)} | x) & y",
        many(1000, "&"),
        f"{many(1000, '&')} | {many(1000, '&')}",
        product(11, 11),
        product(12, 12),
        product(2, 2, 2, 2, 2, 2, 2),
        product(2, 2, 2, 2, 2, 2, 2) + "&(h|i)",
        product(16, 16),
        product(1, MOST_PRODUCTS),
        product(64, 64),
        product(64, 65),
        f"({product(11, 11)}) & ({product(11, 11)})",
        *("(" * depth + "a" + ")" * depth for depth in (1, MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1)),
        *("a&(" * depth + "b|c" + ")" * depth for depth in (5, MAX_DEPTH, MAX_DEPTH + 1)),
        *("x" * size for size in (MAX_NAME, MAX_NAME + 1, MAX_TEXT)),
        *("a" + " " * size for size in (MAX_TEXT - 1, MAX_TEXT)),
        *("a AT S" + " " * size for size in (MAX_TEXT - 12, MAX_TEXT - 6, MAX_TEXT - 5)),
        *("é" * size for size in (MAX_NAME, MAX_TEXT)),
        '"' + "é" * MAX_NAME + '"',
        "|".join(f"(r{n} & s{n})" for n in range(MAX_TERMS)) + " AT S",
    ],
    ids=lambda text: f"{text[:12]}..{len(text)}",
)
def test_at_every_limit_a_column_agrees_with_the_grammar(text: str) -> None:
    check([text, "a", text + " ", f"{text} & zz"])


def test_what_is_plain_or_nested_is_read_by_the_compiled_loop_and_only_the_rest_by_the_grammar() -> None:
    for text in ("a", " a & b|c ", "(a|(b & c))&TRUE", many(MAX_TERMS), product(11, 11), "x" * MAX_NAME, "FALSE"):
        assert rest_of(text) == NO_REST, text
    assert rest_of("a & (b|c) AT S") == 10
    for text in ("", '"a"', "a & é", "a -- b", "at", "a &", "(a", "a)", "(a AT S)", many(MAX_TERMS + 1), "1", "a 1"):
        assert rest_of(text) == ODD, text


def test_null_broken_and_missing_texts_are_unreadable_in_every_form_of_a_column() -> None:
    texts = [None, "a", "b & a", "a", "(", "a & b", None]
    expected = [None if text is None else by_grammar(text, None) for text in texts]
    column = pa.array(texts, pa.string())
    with_null = pa.array([None, "a", "b & a", "(", "a & b"])
    for given_ in (
        column,
        column.cast(pa.large_string()),
        column.dictionary_encode(),
        pa.chunked_array([column[:3], column[3:], column[:0]]),
        pa.array(["x", *texts, "y"]).slice(1, len(texts)),
        pa.array(["x", *texts, "y"]).dictionary_encode().slice(1, len(texts)),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1, 3, 4, None]), with_null),
    ):
        agrees(read_labels(given_), expected)
    broken = pa.array([b"a", b"\xff", b"a AT \xff", b"a & \xc3\xa9"], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 4, broken.buffers())
    agrees(read_labels(broken), [parse_label("a"), None, None, None])
    for none in (pa.array([], pa.string()), pa.nulls(3), pa.nulls(2, pa.string()), pa.chunked_array([], pa.string())):
        agrees(read_labels(none), [None] * len(none))


def test_very_many_names_and_labels_get_numbers_of_their_own() -> None:
    texts = [f"name{n} & other{n % 7} | x{n}y" for n in range(5000)]
    column = read_labels(pa.array(texts * 2))
    assert len(column.labels) == 5000
    assert column.index.tolist() == [*range(5000)] * 2
    for n in (0, 1, 2500, 4999):
        assert column.labels[n] == parse_label(texts[n])
    assert column.labels[-1] == parse_label(texts[-1]) and column.labels[1:3] == [*map(parse_label, texts[1:3])]
