"""Who shares with whom, seen by somebody who wants to learn of others what must not be learned."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cql.queries import parse_query
from headgate.errors import Conflict
from headgate.labels import Level
from headgate.plan.expressions import Type
from headgate.plan.lowering import lower
from headgate.plan.merged import MergedPlan
from headgate.plan.nodes import Node, Select, Source
from headgate.plan.queries import Stream, bind_query
from headgate.plan.secure import Mode, SecurePlan, SharingClass
from headgate.plan.steps import Operator, different, reading

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


def common(plan: SecurePlan, a: str, b: str) -> bool:
    """Whether two queries have a step in common, or one is computed from a selection of the other."""
    return any(
        {a, b} <= merged.readers(x) | merged.partners(x) or (isinstance(x.node, Select) and {a, b} <= served(merged, x))
        for merged in plan.plans.values()
        for x in different(merged.queries.values()).values()
        if not isinstance(x.node, Source)
    )


def served(plan: MergedPlan, x: Operator) -> frozenset[str]:
    base = plan.base(x.node)
    return plan.readers(x) | (plan.readers(Operator(base, (reading(base),))) if base is not None else frozenset())


def may_share(one: tuple[Node, Mode, Level], other: tuple[Node, Mode, Level]) -> bool:
    """SPEC 4.4, word by word."""
    (x, mode, level), (y, other_mode, other_level) = one, other
    return mode == other_mode and level == other_level and streams(x) == streams(y)


def streams(root: Node) -> set[str]:
    return {node.stream for node in root.walk() if isinstance(node, Source)}


ADDED = st.tuples(st.sampled_from(ROOTS), st.sampled_from(Mode), st.sampled_from(LEVELS))


@given(st.lists(ADDED, min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_only_queries_that_may_share_have_anything_in_common(added: list[tuple[Node, Mode, Level]]) -> None:
    plan = SecurePlan()
    for number, (root, mode, level) in enumerate(added):
        plan.add(str(number), root, mode=mode, level=level)
    for (i, one), (j, other) in combinations(enumerate(added), 2):
        if not may_share(one, other):
            assert plan.plan_of(str(i)) is not plan.plan_of(str(j))
            assert not common(plan, str(i), str(j))
        elif one[0] == other[0]:
            assert common(plan, str(i), str(j))


def test_what_other_levels_run_changes_nothing_in_a_plan() -> None:
    alone, beside = SecurePlan(), SecurePlan()
    for number, root in enumerate(ROOTS):
        alone.add(f"own {number}", root, mode=EXACT, level=LOW)
        beside.add(f"own {number}", root, mode=EXACT, level=LOW)
        for level in (HIGH, HIGH_A, HIGH_B):
            beside.add(f"{level} {number}", root, mode=EXACT, level=level)
    for sharing, plan in alone.plans.items():
        other = beside.plans[sharing]
        assert dict(other.queries) == dict(plan.queries) and other.steps() == plan.steps()
        nodes = [x.node for x in different(plan.queries.values()).values()]
        assert [plan.base(node) for node in nodes] == [other.base(node) for node in nodes]


def test_a_name_is_given_once_over_all_classes() -> None:
    plan = SecurePlan()
    plan.add("a", ROOTS[0], mode=EXACT, level=LOW)
    with pytest.raises(Conflict) as twice:
        plan.add("a", ROOTS[1], mode=CUMULATIVE, level=HIGH)
    assert str(twice.value) == "query `a` is in the plan already"
    assert [*plan.plans] == [SharingClass(EXACT, LOW, frozenset({"vitals"}))]
