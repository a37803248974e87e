"""The laws of the label algebra, over arbitrary labels, clearances and partial orders (SPEC.md, 2.1 to 2.4)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from itertools import chain, combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import Conflict, LabelError
from headgate.labels import (
    FALSE,
    LEAST,
    PUBLIC,
    TRUE,
    Clearance,
    Conjunction,
    Label,
    Level,
    LevelOrder,
    RoleExpression,
    Rules,
    Semantics,
    parse_label,
    parse_level,
    parse_roles,
)
from headgate.labels.plain import labels_of, plain_labels

from .strategies import (
    COMPARTMENTS,
    LEVELS,
    ROLES,
    SOURCES,
    Tree,
    clearances,
    labels,
    levels,
    names,
    orders,
    roles,
    rules,
    subsets,
    trees,
)

EXACT = (Semantics.STRONG, Semantics.AGGREGATE)
ANY = tuple(Semantics)
ALL_ROLE_SETS = [frozenset(held) for held in chain.from_iterable(combinations(ROLES, n) for n in range(6))]

law = settings(deadline=None, max_examples=80)


# Combining


@law
@given(rules(*ANY), labels, labels)
def test_combine_is_commutative(rules: Rules, a: Label, b: Label) -> None:
    assert rules.combine(a, b) == rules.combine(b, a)


@law
@given(rules(*ANY), labels, labels, labels)
def test_combine_is_associative(rules: Rules, a: Label, b: Label, c: Label) -> None:
    assert rules.combine(rules.combine(a, b), c) == rules.combine(a, rules.combine(b, c))


@law
@given(rules(*ANY), labels)
def test_combine_is_idempotent(rules: Rules, a: Label) -> None:
    a = rules.normal(a)
    assert rules.combine(a, a) == a


@law
@given(rules(*ANY), labels)
def test_the_public_label_is_neutral(rules: Rules, a: Label) -> None:
    assert rules.combine(a, PUBLIC) == rules.combine(PUBLIC, a) == rules.normal(a)


@law
@given(rules(*ANY), labels, labels)
def test_a_combination_of_normal_labels_is_normal(rules: Rules, a: Label, b: Label) -> None:
    combined = rules.combine(rules.normal(a), rules.normal(b))
    assert rules.normal(combined) == combined


@law
@given(roles)
def test_true_is_neutral_and_false_absorbs(x: RoleExpression) -> None:
    assert x & TRUE == TRUE & x == x | FALSE == FALSE | x == x
    assert x & FALSE == FALSE & x == FALSE
    assert x | TRUE == TRUE | x == TRUE


@law
@given(roles, roles, roles)
def test_role_expressions_are_a_distributive_lattice(x: RoleExpression, y: RoleExpression, z: RoleExpression) -> None:
    assert x & y == y & x and x | y == y | x
    assert (x & y) & z == x & (y & z) and (x | y) | z == x | (y | z)
    assert x & (x | y) == x | (x & y) == x & x == x | x == x
    assert x & (y | z) == (x & y) | (x & z) and x | (y & z) == (x | y) & (x | z)


@settings(deadline=None, max_examples=200)
@given(rules(*EXACT), labels, labels, clearances, st.booleans())
def test_a_combination_permits_exactly_whom_both_permit(
    rules: Rules, a: Label, b: Label, clearance: Clearance, aggregated: bool
) -> None:
    both = rules.permits(a, clearance, aggregated=aggregated) and rules.permits(b, clearance, aggregated=aggregated)
    assert rules.permits(rules.combine(a, b), clearance, aggregated=aggregated) == both


@law
@given(rules(*EXACT), labels, labels, subsets(SOURCES), st.sampled_from(LEVELS))
def test_a_combination_permits_whom_both_labels_permit_even_where_few_are(
    rules: Rules, a: Label, b: Label, sources: frozenset[str], level: str
) -> None:
    """As above for clearances that hold nearly everything, so that the law is not true for want of permission."""
    clearance = Clearance(frozenset(ROLES), Level(level, frozenset(COMPARTMENTS)), sources, frozenset(SOURCES))
    both = rules.permits(a, clearance, aggregated=True) and rules.permits(b, clearance, aggregated=True)
    assert rules.permits(rules.combine(a, b), clearance, aggregated=True) == both


@law
@given(rules(*ANY), labels, labels, clearances, st.booleans())
def test_under_any_semantics_whom_both_permit_the_combination_permits(
    rules: Rules, a: Label, b: Label, clearance: Clearance, aggregated: bool
) -> None:
    clearance = replace(clearance, roles=frozenset(ROLES), level=Level(LEVELS[-1], frozenset(COMPARTMENTS)))
    if rules.permits(a, clearance, aggregated=aggregated) and rules.permits(b, clearance, aggregated=aggregated):
        assert rules.permits(rules.combine(a, b), clearance, aggregated=aggregated)


@law
@given(st.lists(roles, max_size=12), st.randoms(use_true_random=False))
def test_a_conjunction_is_decided_expression_by_expression_in_any_order(
    parts: list[RoleExpression], random: Random
) -> None:
    whole = Conjunction.of(*parts)
    random.shuffle(parts)
    cut = random.randint(0, len(parts))
    assert Conjunction.of(*parts[:cut]) & Conjunction.of(*parts[cut:]) == whole
    for held in ALL_ROLE_SETS:
        assert whole.satisfied_by(held) == all(part.satisfied_by(held) for part in parts)
        if whole.minimal is not None:
            assert whole.minimal.satisfied_by(held) == whole.satisfied_by(held)


@law
@given(rules(*ANY), st.lists(labels, max_size=6))
def test_all_combined_at_once_is_all_combined_one_by_one(rules: Rules, parts: list[Label]) -> None:
    assert rules.combine_all(parts) == reduce(rules.combine, parts, PUBLIC)


@pytest.mark.parametrize("wards", [10, 100, 1_000, 10_000])
def test_no_combination_is_for_nobody_because_of_its_size(wards: int) -> None:
    parts = [parse_label(f"doctor | ward{n} | owner{n} AT S{{c{n % 100}}}") for n in range(wards)]
    rules = Rules(LevelOrder.total("U", "S"))
    combined = rules.combine_all(parts)
    top = Level("S", frozenset(f"c{n}" for n in range(100)))
    assert rules.permits(combined, Clearance({"doctor"}, top))
    assert rules.permits(combined, Clearance({f"owner{n}" for n in range(wards)}, top))
    assert not rules.permits(combined, Clearance({f"owner{n}" for n in range(1, wards)}, top))
    assert not rules.permits(combined, Clearance({"doctor"}, Level("S", top.compartments - {"c7"})))


def test_a_text_that_leaves_something_out_is_no_label() -> None:
    """Whoever reads a shortened label back must not get a weaker one."""
    choices = [parse_roles(f"a{n} | b{n} | c{n}") for n in range(7)]
    assert str(Conjunction.of(*choices[:6])) == " & ".join(f"(a{n} | b{n} | c{n})" for n in range(6))
    text = str(Conjunction.of(parse_roles("x & y"), *choices, *(parse_roles(f"d{n} | e{n}") for n in range(13))))
    assert text == "x & y & ... (20 policies)"
    with pytest.raises(LabelError):
        parse_roles(text)


@settings(deadline=None, max_examples=150)
@given(st.lists(labels, max_size=5), rules(*ANY))
def test_a_stored_label_is_the_same_label(parts: list[Label], rules: Rules) -> None:
    labels = [*parts, rules.combine_all(parts), rules.combine_all(parts).as_aggregate()]
    assert labels_of(json.loads(json.dumps(plain_labels(labels)))) == labels


def test_a_label_readable_as_an_aggregate_stays_readable_in_results_over_the_aggregate() -> None:
    rules = Rules(semantics={"in1": Semantics.AGGREGATE})
    raw = parse_label("TRUE FROM in1")
    reader = Clearance(sources={"sums"}, aggregate_sources={"in1"})
    derived = rules.combine(raw.as_aggregate(), parse_label("TRUE FROM sums"))
    assert rules.permits(derived, reader)
    assert not rules.permits(rules.combine(derived, raw), reader)  # the raw tuple beside it is protected as before


def test_a_join_reads_a_weak_stream_for_every_reader_of_the_other() -> None:
    rules = Rules(semantics={"in1": Semantics.WEAK})
    raw = parse_label("TRUE FROM in1")
    reader = Clearance(sources={"in2"})
    assert rules.permits(raw, reader, beside={"in1", "in2"})
    assert not rules.permits(raw, reader, beside={"in1"})


def test_weak_semantics_let_a_combination_permit_whom_one_part_denies() -> None:
    """The counterexample, and the reason why weak is the owner's choice and never the default."""
    rules = Rules(semantics={"in1": Semantics.WEAK, "in2": Semantics.WEAK})
    first, second = parse_label("TRUE FROM in1"), parse_label("TRUE FROM in2")
    reader = Clearance(sources={"in1"})
    assert rules.permits(first, reader) and not rules.permits(second, reader)
    assert rules.permits(rules.combine(first, second), reader)


def test_weak_semantics_never_open_a_strong_source() -> None:
    rules = Rules(semantics={"in1": Semantics.WEAK})
    joined = parse_label("TRUE FROM in1, in2")
    assert not rules.permits(joined, Clearance(sources={"in1"}))
    assert rules.permits(joined, Clearance(sources={"in2"}))


# More never sees less


@law
@given(rules(*ANY), labels, clearances, clearances, st.booleans())
def test_more_roles_and_more_sources_never_lose(
    rules: Rules, label: Label, less: Clearance, extra: Clearance, aggregated: bool
) -> None:
    more = Clearance(
        less.roles | extra.roles,
        less.level,
        less.sources | extra.sources,
        less.aggregate_sources | extra.aggregate_sources,
    )
    if rules.permits(label, less, aggregated=aggregated):
        assert rules.permits(label, more, aggregated=aggregated)
        assert rules.permits(label, more, aggregated=True)


@law
@given(rules(*ANY), labels, clearances, levels)
def test_a_higher_level_never_loses(rules: Rules, label: Label, clearance: Clearance, higher: Level) -> None:
    if rules.order.dominates(higher, clearance.level) and rules.permits(label, clearance):
        assert rules.permits(label, replace(clearance, level=higher))


@law
@given(rules(*ANY), labels, clearances, st.booleans())
def test_there_are_reasons_exactly_where_a_label_denies(
    rules: Rules, label: Label, clearance: Clearance, aggregated: bool
) -> None:
    reasons = rules.why_denied(label, clearance, aggregated=aggregated)
    assert bool(reasons) != rules.permits(label, clearance, aggregated=aggregated)


@law
@given(rules(*ANY), labels, clearances, st.booleans())
def test_permits_is_the_three_sentences_of_the_specification(
    rules: Rules, label: Label, clearance: Clearance, aggregated: bool
) -> None:
    required = all(role in clearance.roles for role in label.roles.required)
    chosen = all(any(term <= clearance.roles for term in choice.terms) for choice in label.roles.choices)
    roles_hold = required and chosen
    levels_hold = all(_dominates(rules.order, clearance.level, level) for level in label.levels)

    def passes(source: str) -> bool:
        chosen = rules.semantics.get(source, Semantics.STRONG)
        return (
            source in clearance.sources
            or (chosen == Semantics.WEAK and any(other in clearance.sources for other in label.sources))
            or (
                chosen == Semantics.AGGREGATE
                and (aggregated or source in label.aggregated)
                and source in clearance.aggregate_sources
            )
        )

    expected = roles_hold and levels_hold and all(passes(source) for source in label.sources)
    assert rules.permits(label, clearance, aggregated=aggregated) == expected


# Canonical forms


def _truth(tree: Tree) -> list[bool]:
    return [tree.holds(held) for held in ALL_ROLE_SETS]


@settings(deadline=None, max_examples=150)
@given(trees())
def test_an_expression_is_the_minimal_sets_of_its_truth_table(tree: Tree) -> None:
    expression = parse_roles(str(tree))
    true_at = [held for held in ALL_ROLE_SETS if tree.holds(held)]
    minimal = {held for held in true_at if not any(other < held for other in true_at)}
    assert expression.terms == minimal
    assert expression.names == frozenset().union(*minimal)
    assert [expression.satisfied_by(held) for held in ALL_ROLE_SETS] == _truth(tree)


@settings(deadline=None, max_examples=200)
@given(trees(("a", "b", "TRUE", "FALSE")) | trees(), trees(("a", "b", "TRUE", "FALSE")) | trees())
def test_equal_truth_tables_are_equal_expressions_and_equal_texts(one: Tree, other: Tree) -> None:
    x, y = parse_roles(str(one)), parse_roles(str(other))
    same = _truth(one) == _truth(other)
    assert (x == y) == same
    assert (str(x) == str(y)) == same
    assert not same or hash(x) == hash(y)


def test_the_monotone_functions_of_three_roles_are_twenty() -> None:
    """Dedekind's number: closing three roles, TRUE and FALSE under & and | gives 20 expressions, no more."""
    found = {TRUE, FALSE, *(RoleExpression.role(name) for name in ROLES[:3])}
    while True:
        larger = found | {x & y for x in found for y in found} | {x | y for x in found for y in found}
        if larger == found:
            break
        found = larger
    assert len(found) == len({str(x) for x in found}) == 20


nasty_labels = st.builds(
    Label,
    st.lists(st.frozensets(names, max_size=3), max_size=3).map(RoleExpression.of).map(Conjunction.of),
    st.frozensets(st.builds(Level, names, st.frozensets(names, max_size=2)), max_size=3),
    st.frozensets(names, max_size=3),
)


@settings(deadline=None, max_examples=150)
@given(nasty_labels)
def test_a_printed_label_reads_back_as_itself_whatever_its_names(label: Label) -> None:
    label = replace(label, levels=label.levels - {LEAST})
    text = str(label)
    assert parse_label(text) == label
    assert str(parse_label(text)) == text


@law
@given(names, st.frozensets(names, max_size=3))
def test_a_printed_level_reads_back_as_itself_whatever_its_names(name: str, compartments: frozenset[str]) -> None:
    level = Level(name, compartments)
    assert parse_level(str(level)) == level


@law
@given(nasty_labels, nasty_labels)
def test_different_labels_have_different_texts(one: Label, other: Label) -> None:
    assert (str(one) == str(other)) == (one == other)


# Levels


def _dominates(order: LevelOrder, high: Level, low: Level) -> bool:
    """Slow and plain: is there a way down from `high` to `low`?"""
    reached = {high.name, "U"}
    for _ in order.above:
        reached |= {lower for name in reached for lower in order.above.get(name, ())}
    return low.name in reached and low.compartments <= high.compartments


@law
@given(orders, levels, levels)
def test_dominates_is_a_way_down_and_all_compartments(order: LevelOrder, high: Level, low: Level) -> None:
    assert order.dominates(high, low) == _dominates(order, high, low)


@law
@given(orders, levels, levels, levels)
def test_dominates_is_a_partial_order_with_a_least_element(order: LevelOrder, x: Level, y: Level, z: Level) -> None:
    assert order.dominates(x, x)
    assert order.dominates(x, LEAST)
    if order.dominates(x, y) and order.dominates(y, x):
        assert x == y
    if order.dominates(x, y) and order.dominates(y, z):
        assert order.dominates(x, z)


@law
@given(orders, levels, levels)
def test_a_level_is_higher_than_those_that_it_dominates(order: LevelOrder, high: Level, low: Level) -> None:
    if high != low and order.dominates(high, low):
        assert order.height(high) > order.height(low)
    assert order.height(LEAST) == 0


@law
@given(orders, levels)
def test_one_may_log_in_at_exactly_the_levels_one_is_cleared_for(order: LevelOrder, cleared: Level) -> None:
    offered = order.dominated_by(cleared)
    assert {level.name for level in offered} == {n for n in ("U", *LEVELS) if order.dominates(cleared, Level(n))}
    assert all(order.dominates(cleared, level) for level in offered)


@law
@given(orders, st.frozensets(levels, max_size=6), levels)
def test_maximal_is_an_antichain_that_asks_for_as_much_as_the_whole_set(
    order: LevelOrder, whole: frozenset[Level], login: Level
) -> None:
    kept = order.maximal(whole)
    assert kept <= whole
    assert LEAST not in kept
    assert not any(order.dominates(x, y) for x in kept for y in kept if x != y)
    rules, clearance = Rules(order), Clearance(level=login)
    assert rules.permits(Label(levels=kept), clearance) == rules.permits(Label(levels=whole), clearance)
    assert order.maximal(kept) == kept


@law
@given(orders, st.frozensets(levels, max_size=3), subsets(COMPARTMENTS), levels)
def test_a_level_nobody_declared_is_for_nobody_and_survives_combining(
    order: LevelOrder, others: frozenset[Level], compartments: frozenset[str], login: Level
) -> None:
    undeclared = Level("undeclared", compartments)
    rules = Rules(order)
    label = rules.combine(Label(levels=frozenset({undeclared})), Label(levels=others))
    assert undeclared in label.levels
    assert not rules.permits(label, Clearance(level=login))
    assert not rules.permits(label, Clearance(level=undeclared))


@pytest.mark.parametrize(
    "above",
    [
        {"A": frozenset({"A"})},
        {"A": frozenset({"B"}), "B": frozenset({"A"})},
        {"A": frozenset({"B"}), "B": frozenset({"C"}), "C": frozenset({"A"})},
    ],
)
def test_a_circle_of_levels_is_refused(above: dict[str, frozenset[str]]) -> None:
    with pytest.raises(Conflict, match="above itself"):
        LevelOrder(above)


def test_nothing_stands_below_u() -> None:
    with pytest.raises(Conflict):
        LevelOrder({"C": frozenset(), "U": frozenset({"C"}), "S": frozenset({"U"})})


def test_a_level_that_is_only_mentioned_is_not_declared() -> None:
    order = LevelOrder({"S": frozenset({"C"})})
    assert "C" not in order
    assert not order.dominates(Level("S"), Level("C"))
    assert not order.knows(Level("C"))


def test_a_chain_of_levels_is_a_total_order() -> None:
    chained = [Level(name) for name in ("U", "C", "S", "T")]
    order = LevelOrder.total("U", "C", "S", "T")
    for i, high in enumerate(chained):
        assert [order.dominates(high, low) for low in chained] == [j <= i for j in range(4)]
