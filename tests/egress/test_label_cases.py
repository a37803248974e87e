"""The golden label cases through the result filter, which is given every result, permitted or not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from labels.golden import COMBINATIONS, DECISIONS, EVERYTHING, ORDER, Combination, Decision, named
from worlds.decided import READER, Way, ingested

from headgate.labels import Level, Rules, parse_label

RULES = Rules(ORDER)


@pytest.mark.parametrize("case", named(DECISIONS))
def test_the_filter_lets_a_result_out_exactly_if_the_table_permits_it(case: Decision) -> None:
    way = Way(case.text, case.clearance, case.rules, case.aggregated)
    results = way.filtered()
    assert [x.subscribers for x in results] == ([(READER,)] if case.permitted else [])


@pytest.mark.parametrize("case", named(COMBINATIONS))
def test_a_result_of_two_tuples_carries_the_combination_of_the_table(case: Combination) -> None:
    roles = frozenset(f"R{n}" for n in range(1, 9)) | EVERYTHING.roles
    left, right, both = (parse_label(text, ORDER) for text in (case.left, case.right, case.combined))
    sources = left.sources | right.sources
    for level in ("U", "T{CRYPTO, NATO}"):
        top = parse_label(f"TRUE AT {level}").levels
        everything = replace(
            EVERYTHING,
            roles=roles,
            level=next(iter(top), Level("U")),
            sources=frozenset("s"),
            aggregate_sources=frozenset(),
        )
        way = Way("TRUE", everything, RULES)
        bare = [str(replace(label, sources=frozenset())) for label in (left, right)]
        taken = ingested(bare, RULES)
        way.taken.dictionary.labels.update(taken.dictionary.labels)
        results = way.filtered(taken.batch.labels.tolist())
        expected = RULES.combine(replace(both, sources=frozenset({"s"})), replace(parse_label("TRUE"), levels=top))
        permitted = RULES.permits(expected, everything)
        assert [list(map(str, x.kinds)) for x in results] == ([[str(expected)]] if permitted else [])
        if level == "U" and permitted:
            assert str(replace(results[0].kinds[0], sources=sources)) == case.combined
