"""Texts of equal meaning are one plan, whatever the order of their parts and the names in them."""

from __future__ import annotations

import re
from random import Random

import pytest

from headgate.cql.expressions import RESERVED, TYPES
from headgate.cql.queries import parse_query
from headgate.plan.functions import AGGREGATES, FUNCTIONS
from headgate.plan.lowering import lower
from headgate.plan.nodes import Node
from headgate.plan.queries import Stream, bind_query
from headgate.testing.queries import Features, finder, random_query, random_streams, rewritten


def plan(text: str, streams: tuple[Stream, ...]) -> Node:
    return lower(bind_query(parse_query(text), finder(streams)))


def compare(name: str, queries: range, features: Features) -> int:
    """How many were really written differently, in more than space and case."""
    changed = 0
    for number in queries:
        rng = Random(f"{name} {number}")
        streams = random_streams(rng)
        text = random_query(rng, streams, features)
        other = rewritten(rng, text)
        one, two = plan(text, streams), plan(other, streams)
        assert one == two and one.key == two.key, f"{name} {number}:\n{text}\n{other}\n{_differences(one, two)}"
        changed += sorted(re.findall(r"[\w.]+", text.lower())) != sorted(re.findall(r"[\w.]+", other.lower()))
    return changed


def _differences(one: Node, two: Node) -> str:
    return "\n".join(f"{a}\n{b}" for a, b in zip(one.walk(), two.walk(), strict=False) if str(a) != str(b))


def test_texts_of_equal_meaning_are_one_plan() -> None:
    assert compare("rewritten", range(1_800), Features(depth=1, blocks=1)) > 1_000
    assert compare("rewritten deeply", range(200), Features()) > 100


@pytest.mark.long
def test_very_many_texts_of_equal_meaning_are_one_plan() -> None:
    compare("long", range(40_000), Features(depth=1, blocks=2))
    compare("long and deep", range(10_000), Features())


def test_a_rewritten_text_is_a_function_of_its_seed() -> None:
    for number in range(20):
        streams = random_streams(Random(number))
        text = random_query(Random(number), streams)
        assert text == random_query(Random(number), streams)
        assert rewritten(Random(number), text) == rewritten(Random(number), parse_query(text))


def test_random_queries_have_every_construct() -> None:
    texts = []
    for number in range(1_500):
        rng = Random(f"all {number}")
        texts.append(random_query(rng, random_streams(rng), spelling=False))
    everything = "\n".join(texts)
    words = {*(RESERVED - {"ORDER", "LIMIT"}), *TYPES, *FUNCTIONS, *AGGREGATES}
    words |= {"ISTREAM", "DSTREAM", "RSTREAM", "ROWS", "RANGE", "SLIDE", "NOW", "UNBOUNDED", "PARTITIONED", "LEVEL"}
    words |= {"IS NULL", "IS NOT NULL", "NOT LIKE", "NOT IN", "NOT BETWEEN", "COUNT(*)", "COUNT(DISTINCT", "UNION ALL"}
    assert {word for word in words if word not in everything} == set()
    assert re.search(r"SELECT [^F]*WHERE .* FROM .* WHERE", everything)
    assert re.search(r"FROM (\S+) [^,]*, [^,]*, ", everything)
    for sign in ("<>", "!=", "<=", ">=", "%", "/", " * ", "-(", ".*", "SELECT *", "`", "'", '"'):
        assert sign in everything, sign


def test_features_are_left_out() -> None:
    for number in range(300):
        rng = Random(f"few {number}")
        streams = random_streams(rng)
        text = random_query(
            rng,
            streams,
            blocks=1,
            sources=1,
            windows=("",),
            operators=(),
            distinct=False,
            aggregates=0,
            levels=(),
            roles=(),
        )
        (block,) = bind_query(parse_query(text), finder(streams)).blocks
        assert block.stateless and not block.aggregated and len(block.readings) == 1
