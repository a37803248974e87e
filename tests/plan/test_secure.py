"""Who shares with whom, seen by somebody who wants to learn of others what must not be learned."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cql.queries import parse_query
from headgate.errors import Conflict, NotFound
from headgate.labels import Level
from headgate.plan.expressions import Type
from headgate.plan.lowering import lower
from headgate.plan.nodes import Node, Source
from headgate.plan.queries import Stream, bind_query
from headgate.plan.secure import Mode, SecurePlan, SharingClass

LOW, HIGH, HIGH_A, HIGH_B = Level("U"), Level("S"), Level("S", frozenset("a")), Level("S", frozenset("b"))
LEVELS = [LOW, HIGH, HIGH_A, HIGH_B]
EXACT, CUMULATIVE = Mode.EXACT, Mode.CUMULATIVE
COLUMNS = (("sid", Type.INT), ("bp", Type.INT), ("pr", Type.INT))

TEXTS = [
    "SELECT sid WHERE bp > 120 FROM vitals",
    "SELECT sid WHERE bp > 130 FROM vitals",
    "SELECT sid WHERE bp > 130 AND pr = 3 FROM vitals",
    "SELECT AVG(bp) WHERE bp > 120 FROM vitals [ROWS 10]",
    "SELECT MAX(bp) WHERE bp > 120 FROM vitals [ROWS 20]",
    "SELECT a.sid WHERE a.sid = b.sid AND a.bp > 120 FROM vitals [ROWS 10] a, other [ROWS 10] b",
]


def lowered(text: str) -> Node:
    return lower(bind_query(parse_query(text), lambda target: Stream(target.name, COLUMNS)))


ROOTS = [lowered(text) for text in TEXTS]


def state_keys(plan: SecurePlan, name: str) -> set[str]:
    """The names of all running state that a query reads or is computed from; streams keep none."""
    sharing, merged = plan.class_of(name), plan.plan_of(name)
    nodes = [node for node in merged.queries[name].walk() if not isinstance(node, Source)]
    nodes += [base for node in nodes if (base := merged.base(node)) is not None]
    return {sharing.state_key(node) for node in nodes}


def may_share(trusted: bool, one: tuple[Node, Mode, Level], other: tuple[Node, Mode, Level]) -> bool:
    """SPEC 4.4, word by word."""
    (x, mode, level), (y, other_mode, other_level) = one, other
    if mode != other_mode:
        return False
    if mode == EXACT:
        return trusted or level == other_level
    return level == other_level and streams(x) == streams(y)


def streams(root: Node) -> set[str]:
    return {node.stream for node in root.walk() if isinstance(node, Source)}


ADDED = st.tuples(st.sampled_from(ROOTS), st.sampled_from(Mode), st.sampled_from(LEVELS))


@given(st.booleans(), st.lists(ADDED, min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_state_is_shared_only_by_queries_that_may_share(trusted: bool, added: list[tuple[Node, Mode, Level]]) -> None:
    plan = SecurePlan(trusted=trusted)
    for number, (root, mode, level) in enumerate(added):
        plan.add(str(number), root, mode=mode, level=level)
    for (i, one), (j, other) in combinations(enumerate(added), 2):
        if not may_share(trusted, one, other):
            assert plan.class_of(str(i)) != plan.class_of(str(j))
            assert not state_keys(plan, str(i)) & state_keys(plan, str(j))
        elif one[0] == other[0]:
            assert state_keys(plan, str(i)) == state_keys(plan, str(j))


@given(st.lists(ADDED, max_size=10), st.lists(ADDED, max_size=10), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_what_others_do_changes_nothing_that_a_level_sees(
    own: list[tuple[Node, Mode, Level]], foreign: list[tuple[Node, Mode, Level]], order: random.Random
) -> None:
    """Queries of other levels come and go between those of a low observer, who sees what it would see alone."""
    own = [(root, mode, LOW) for root, mode, _ in own]
    foreign = [(root, mode, level) for root, mode, level in foreign if level != LOW]
    alone, beside = SecurePlan(trusted=False), SecurePlan(trusted=False)
    arrivals = [*((f"own {k}", x) for k, x in enumerate(own)), *((f"foreign {k}", x) for k, x in enumerate(foreign))]
    order.shuffle(arrivals)
    for name, (root, mode, level) in arrivals:
        if level == LOW:
            alone.add(name, root, mode=mode, level=level)
        beside.add(name, root, mode=mode, level=level)
        assert beside.seen_from(LOW) == alone.seen_from(LOW)
    for name, (_, _, level) in arrivals:
        if level != LOW:
            beside.remove(name)
            assert beside.seen_from(LOW) == alone.seen_from(LOW)


@pytest.mark.parametrize(("low", "high"), [*combinations(LEVELS, 2)])
@pytest.mark.parametrize("mode", Mode)
def test_levels_never_share_outside_a_trusted_processor(low: Level, high: Level, mode: Mode) -> None:
    plan = SecurePlan(trusted=False)
    plan.add("low", ROOTS[3], mode=mode, level=low)
    plan.add("high", ROOTS[3], mode=mode, level=high)
    assert not state_keys(plan, "low") & state_keys(plan, "high")


def test_a_trusted_processor_shares_exact_queries_of_all_levels() -> None:
    plan = SecurePlan(trusted=True)
    plan.add("low", ROOTS[1], mode=EXACT, level=LOW)
    keys = {plan.class_of("low").state_key(node) for node in ROOTS[1].walk()}
    plan.add("high", ROOTS[0], mode=EXACT, level=HIGH)
    (select,) = (node for node in ROOTS[1].walk() if type(node).__name__ == "Select")
    base = plan.plan_of("low").base(select)
    assert base is not None and base.parameters == "bp > 120"
    plan.remove("high")
    assert plan.plan_of("low").base(select) is None
    assert {plan.class_of("low").state_key(node) for node in ROOTS[1].walk()} == keys
    assert plan.seen_from(LOW) == plan.seen_from(HIGH) == {}


@pytest.mark.parametrize("trusted", [False, True])
def test_cumulative_queries_never_cross_levels(trusted: bool) -> None:
    plan = SecurePlan(trusted=trusted)
    plan.add("low", ROOTS[3], mode=CUMULATIVE, level=LOW)
    plan.add("high", ROOTS[3], mode=CUMULATIVE, level=HIGH)
    assert plan.class_of("low") != plan.class_of("high")
    assert not state_keys(plan, "low") & state_keys(plan, "high")


@pytest.mark.parametrize("trusted", [False, True])
def test_cumulative_and_exact_queries_share_no_state(trusted: bool) -> None:
    plan = SecurePlan(trusted=trusted)
    plan.add("exact", ROOTS[3], mode=EXACT, level=HIGH)
    plan.add("cumulative", ROOTS[3], mode=CUMULATIVE, level=HIGH)
    assert not state_keys(plan, "exact") & state_keys(plan, "cumulative")


def test_cumulative_queries_of_different_streams_share_nothing_though_one_stream_is_common() -> None:
    plan = SecurePlan(trusted=False)
    plan.add("one", ROOTS[3], mode=CUMULATIVE, level=HIGH)
    plan.add("both", ROOTS[5], mode=CUMULATIVE, level=HIGH)
    assert not state_keys(plan, "one") & state_keys(plan, "both")
    assert plan.class_of("both").streams == frozenset({"vitals", "other"})


def test_levels_streams_and_modes_cannot_be_mistaken_for_each_other() -> None:
    """Names with quotes, commas and braces in them make different classes have different state all the same."""
    levels = [None, Level("S"), Level("S", frozenset({"a", "b"})), Level("S", frozenset({"a, b"})), Level('S{"a"}')]
    stream_sets = [None, frozenset(), frozenset({"a", "b"}), frozenset({"a, b"}), frozenset({'a", "b'})]
    classes = [SharingClass(*parts) for parts in product(Mode, levels, stream_sets)]
    assert len({sharing.state_key(ROOTS[0]) for sharing in classes}) == len(classes)


def test_a_class_is_forgotten_with_its_last_query() -> None:
    plan = SecurePlan(trusted=False)
    plan.add("a", ROOTS[0], mode=EXACT, level=LOW)
    plan.add("b", ROOTS[0], mode=EXACT, level=LOW)
    assert [*plan.plans] == [SharingClass(EXACT, LOW)]
    plan.remove("a")
    plan.remove("b")
    assert not plan.plans


def test_a_name_is_given_once_over_all_classes() -> None:
    plan = SecurePlan(trusted=False)
    plan.add("a", ROOTS[0], mode=EXACT, level=LOW)
    with pytest.raises(Conflict) as twice:
        plan.add("a", ROOTS[1], mode=CUMULATIVE, level=HIGH)
    assert str(twice.value) == "query `a` is in the plan already"
    with pytest.raises(NotFound) as missing:
        plan.remove("b")
    assert str(missing.value) == "query `b` is not in the plan"
    assert [*plan.plans] == [SharingClass(EXACT, LOW)]
