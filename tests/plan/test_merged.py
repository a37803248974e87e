"""The merged plan: what it answers depends on the running queries alone, is sound, and leads in no circle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headgate.cql.queries import parse_query
from headgate.errors import Conflict, NotFound
from headgate.plan import atoms
from headgate.plan import nodes as n
from headgate.plan.expressions import Type
from headgate.plan.implication import all_imply
from headgate.plan.lowering import lower
from headgate.plan.merged import MergedPlan, residue
from headgate.plan.queries import Stream, bind_query
from headgate.plan.steps import Operator, different, operators

from .second_opinion import ROWS, met

COLUMNS = {
    "sid": Type.INT,
    "bp": Type.INT,
    "pr": Type.BIGINT,
    "f": Type.FLOAT,
    "d": Type.DOUBLE,
    "name": Type.STRING,
    "flag": Type.BOOLEAN,
}
VITALS = Stream("joe.vitals", tuple(COLUMNS.items()))


def lowered(text: str) -> n.Node:
    return lower(bind_query(parse_query(text), lambda _: VITALS))


def plan_of(*texts: str) -> MergedPlan:
    """Queries named by their numbers."""
    plan = MergedPlan()
    for number, text in enumerate(texts):
        plan.add(str(number), lowered(text))
    return plan


def one(plan: MergedPlan, query: int, kind: type[n.Node]) -> Operator:
    (found,) = (x for x in operators(plan.queries[str(query)]) if isinstance(x.node, kind))
    return found


def selected(plan: MergedPlan, query: int) -> n.Select:
    node = one(plan, query, n.Select).node
    assert isinstance(node, n.Select)
    return node


def bases(*texts: str) -> list[str | None]:
    """For each query's selection the parameters of its base."""
    plan = plan_of(*texts)
    found = [plan.base(selected(plan, number)) for number in range(len(texts))]
    return [base.parameters if base else None for base in found]


def selection_bases(*conditions: str) -> list[str | None]:
    return bases(*(f"SELECT sid WHERE {condition} FROM vitals" for condition in conditions))


def shown(plan: MergedPlan) -> list[tuple[object, ...]]:
    """Everything that a plan says, in a form that can be compared."""
    found = different(plan.queries.values())
    return sorted(
        (key, steps, sorted(plan.readers(x)), sorted(plan.partners(x)), base.key if (base := plan.base(x.node)) else "")
        for (key, steps), x in found.items()
    )


# One by one ---------------------------------------------------------------------------------------------------------


def test_equal_operators_are_one_and_know_their_readers() -> None:
    plan = plan_of(
        "SELECT AVG(bp) WHERE bp > 120 FROM vitals [ROWS 10]",
        "SELECT MAX(bp) WHERE 120 < bp FROM vitals [ROWS 10]",
        "SELECT sid FROM vitals",
    )
    kinds = [type(x.node).__name__ for x in different(plan.queries.values()).values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "Source": 1,
        "Arrivals": 1,
        "Select": 1,
        "Window": 1,
        "Aggregate": 2,
        "Project": 3,
        "ToStream": 2,
    }
    assert plan.readers(one(plan, 0, n.Source)) == {"0", "1"}
    assert plan.readers(one(plan, 2, n.Source)) == {"2"}
    assert plan.readers(one(plan, 0, n.Window)) == {"0", "1"}
    assert plan.readers(one(plan, 0, n.Aggregate)) == {"0"}
    assert plan.partners(one(plan, 0, n.Aggregate)) == {"1"}


def test_a_name_is_given_once_and_removed_once() -> None:
    plan = plan_of("SELECT sid FROM vitals")
    with pytest.raises(Conflict) as twice:
        plan.add("0", lowered("SELECT bp FROM vitals"))
    assert str(twice.value) == "query `0` is in the plan already"
    plan.remove("0")
    with pytest.raises(NotFound) as gone:
        plan.remove("0")
    assert str(gone.value) == "query `0` is not in the plan"


def test_a_selection_is_computed_from_the_nearest_weaker_one() -> None:
    assert selection_bases("bp > 120", "bp > 130", "bp > 110", "bp >= 130", "bp < 5", "bp <= 5", "bp < 3") == [
        "bp > 110",
        "bp >= 130",
        None,
        "bp > 120",
        "bp <= 5",
        None,
        "bp < 5",
    ]


def test_more_conditions_in_common_win() -> None:
    found = selection_bases("bp > 120", "pr > 100", "bp > 120 AND pr > 100", "bp > 125 AND pr > 100 AND sid = 3")
    assert found[3] == "bp > 120 AND pr > 100"
    assert found[2] in ("bp > 120", "pr > 100")


def test_lists_are_computed_from_longer_lists_and_from_ranges() -> None:
    assert selection_bases("sid IN (1, 2)", "sid = 2", "sid IN (1, 2, 3)", "sid IN (2, 9)") == [
        "sid IN (1, 2, 3)",
        "sid IN (1, 2)",
        None,
        None,
    ]
    assert selection_bases("sid IN (4, 6)", "sid >= 4", "sid > 4", "sid < 9")[0] in ("sid >= 4", "sid < 9")
    assert selection_bases("sid IN (4, 6)", "sid > 4") == [None, None]
    assert selection_bases("name = 'b'", "name > 'a'", "name > 'b'") == ["name > 'a'", None, "name > 'a'"]


def test_alternatives_and_null_are_known() -> None:
    assert selection_bases("bp > 5", "bp > 5 OR pr > 7") == ["(bp > 5 OR pr > 7)", None]
    assert selection_bases("sid = 1", "sid IN (1, 2) OR pr > 7")[0] == "(pr > 7 OR sid IN (1, 2))"
    assert selection_bases("name LIKE 'a%'", "name IS NOT NULL")[0] == "NOT (name IS NULL)"


def test_selections_over_different_inputs_are_strangers() -> None:
    assert bases(
        "SELECT sid WHERE bp > 120 FROM vitals",
        "SELECT sid FROM vitals [ROWS 5] WHERE bp > 130",
        "SELECT sid WHERE bp > 140 FROM vitals [ROWS 5]",
    ) == [None, None, None]


def test_only_selections_of_streams_that_make_no_texts_are_computed_from_others() -> None:
    """After a window few tuples are looked at; what texts cost depends on the tuples they are made of."""
    assert bases(*(f"SELECT sid FROM vitals [ROWS 5] WHERE bp > {k}" for k in (1, 2))) == [None, None]
    having = "SELECT COUNT(*) FROM vitals [ROWS 5] GROUP BY sid HAVING COUNT(*) > {}"
    assert bases(having.format(1), having.format(2)) == [None, None]
    assert selection_bases("CONCAT(name, 'x') > 'b'", "CONCAT(name, 'x') > 'c'", "bp > 3") == [None, None, None]
    assert selection_bases("LENGTH(name) > 3", "LENGTH(name) > 5") == [None, "LENGTH(name) > 3"]


def test_conditions_that_sound_alike_are_not_one() -> None:
    first, second = (
        lowered("SELECT sid WHERE (NOT flag) IS NULL FROM vitals"),
        lowered("SELECT sid WHERE NOT (flag IS NULL) FROM vitals"),
    )
    assert first.key != second.key


def test_bounds_of_nothing_and_of_mixed_types_do_no_harm() -> None:
    assert selection_bases("NULL > 'a'", "NULL > 5", "flag > FALSE", "flag > TRUE", "bp > NULL") == [None] * 5


def test_equal_bounds_in_different_words_are_not_computed_from_each_other() -> None:
    for operator in ("<", "<=", ">", ">="):
        assert selection_bases(f"pr {operator} 4000000000", f"pr {operator} 4000000000.0") == [None, None]


def test_selections_with_conditions_that_follow_from_their_own_stay_apart() -> None:
    """Lowering leaves such where there are very many. Each of these two could be computed from the other."""
    plan = MergedPlan()
    conditions = {k: select(f"bp > {k}").conditions for k in (1, 2, 3, 5)}
    first = n.Select(n.Source("joe.vitals"), conditions[5] | conditions[3])
    second = n.Select(n.Source("joe.vitals"), conditions[5] | conditions[2])
    plan.add("first", first)
    plan.add("second", second)
    plan.add("third", n.Select(n.Source("joe.vitals"), conditions[1]))
    assert plan.base(first) is plan.base(second) is None
    for name in ("third", "first", "second"):
        plan.remove(name)
    assert not any(vars(plan).values())


def select(condition: str) -> n.Select:
    (found,) = (x for x in lowered(f"SELECT sid WHERE {condition} FROM vitals").walk() if isinstance(x, n.Select))
    return found


def test_residue_is_what_remains_to_be_checked() -> None:
    plan = plan_of(
        *(f"SELECT sid WHERE {text} FROM vitals" for text in ("bp > 120", "bp > 120 AND pr = 5", "bp > 125"))
    )
    selects = [selected(plan, number) for number in range(3)]
    residues = [residue(select, plan.base(select)) for select in selects]
    assert [sorted(map(str, residue)) for residue in residues] == [["bp > 120"], ["pr = 5"], ["bp > 125"]]


def test_windows_over_one_input_keep_one_sequence() -> None:
    plan = plan_of(
        "SELECT COUNT(*) FROM vitals [ROWS 5]",
        "SELECT COUNT(*) FROM vitals [RANGE 2 SECONDS] WHERE bp > 3",
        "SELECT COUNT(*) FROM vitals [PARTITIONED BY sid ROWS 5]",
        "SELECT COUNT(*) WHERE bp > 3 FROM vitals [ROWS 5]",
        "SELECT SUM(bp) FROM vitals [ROWS 5]",
    )
    windows = [one(plan, number, n.Window) for number in range(5)]
    assert [sorted(plan.readers(x)) for x in windows] == [["0", "4"], ["1"], ["2"], ["3"], ["0", "4"]]
    assert [sorted(plan.partners(x)) for x in windows] == [["1"], ["0", "4"], [], [], ["1"]]


def test_aggregates_of_one_grouping_keep_their_groups_together() -> None:
    plan = plan_of(
        "SELECT AVG(bp) FROM vitals [ROWS 9]",
        "SELECT SUM(bp), AVG(bp) FROM vitals [ROWS 9]",
        "SELECT MIN(pr) FROM vitals [ROWS 9] GROUP BY sid",
        "SELECT RSTREAM AVG(bp) FROM vitals [ROWS 9]",
        "SELECT AVG(bp) AS other FROM vitals [ROWS 9]",
    )
    found = [one(plan, number, n.Aggregate) for number in range(5)]
    assert [sorted(plan.readers(x)) for x in found] == [["0", "1", "4"], ["1"], ["2"], ["3"], ["0", "1", "4"]]
    assert [sorted(plan.partners(x)) for x in found] == [[], ["0", "4"], [], [], []]


def test_only_the_nearest_are_looked_at_and_that_too_depends_on_the_queries_alone() -> None:
    near = [f"SELECT sid WHERE bp > {100 + k} AND sid = {k} FROM vitals" for k in range(atoms.NEAREST)]
    far, asked = "SELECT sid WHERE bp > 90 FROM vitals", "SELECT sid WHERE bp > 200 FROM vitals"
    assert bases(asked, far)[0] == "bp > 90"
    assert bases(asked, far, *near)[0] is None
    assert bases(asked, far, *near[1:])[0] == "bp > 90"


# Any queries --------------------------------------------------------------------------------------------------------

NUMBERS = st.sampled_from(
    ["-1", "0", "1", "2", "2.5", "3", "NULL", "16777216", "16777217", "16777216.5", "4000000000.0"]
)
BIG = st.sampled_from(["9007199254740992", "9007199254740993", "9007199254740992.0", "-3", "1.5"])
OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(["sid", "bp", "pr", "f", "d", "bp", "bp"]))
    number = draw(BIG if column in ("pr", "d") else NUMBERS)
    return f"{column} {draw(OPERATORS)} {number}"


SIMPLE = st.one_of(
    comparisons(),
    comparisons(),
    st.lists(NUMBERS, min_size=1, max_size=4).map(lambda items: f"sid IN ({', '.join(items)})"),
    st.lists(BIG, min_size=1, max_size=3).map(lambda items: f"d IN ({', '.join(items)})"),
    st.sampled_from(["name > 'a'", "name <= 'b'", "name IN ('a', 'b')", "name = 'b'", "name IS NOT NULL", "bp = pr"]),
    st.sampled_from(["flag", "NOT flag", "(NOT flag) IS NULL", "flag = TRUE", "flag <> FALSE", "sid IS NULL"]),
)
CONDITIONS = st.one_of(
    SIMPLE,
    SIMPLE,
    st.lists(SIMPLE, min_size=2, max_size=3).map(" AND ".join),
    st.lists(SIMPLE, min_size=2, max_size=3).map(" OR ".join),
    st.lists(SIMPLE, min_size=2, max_size=3).map(lambda parts: f"NOT ({' AND '.join(parts)})"),
)
SMALL = st.integers(1, 6)
WINDOWS = st.one_of(
    SMALL.map(lambda k: f"ROWS {k}"),
    SMALL.map(lambda k: f"RANGE {k} MILLISECONDS"),
    st.tuples(SMALL, SMALL).map(lambda t: f"RANGE {t[0]} MILLISECONDS SLIDE {t[1]} MILLISECONDS"),
    st.tuples(st.sampled_from(["sid", "bp, sid"]), SMALL).map(lambda t: f"PARTITIONED BY {t[0]} ROWS {t[1]}"),
    st.sampled_from(["NOW", "UNBOUNDED"]),
)
CALLS = st.lists(st.sampled_from(["AVG(bp)", "SUM(bp)", "STDDEV(bp)", "COUNT(*)", "MAX(pr)"]), min_size=1, max_size=2)


@st.composite
def queries(draw: st.DrawFn) -> str:
    where = f"WHERE {draw(CONDITIONS)}" if draw(st.integers(0, 3)) else ""
    if draw(st.booleans()):
        return f"SELECT sid, bp {where} FROM vitals"
    after = f"WHERE {draw(SIMPLE)}" if not draw(st.integers(0, 3)) else ""
    group = draw(st.sampled_from(["", "GROUP BY sid", "GROUP BY sid HAVING COUNT(*) > 1"]))
    return f"SELECT {', '.join(draw(CALLS))} {where} FROM vitals [{draw(WINDOWS)}] {after} {group}"


class _Plans(RuleBasedStateMachine):
    """Queries come and go; whatever the way, the plan is the one that would be built from those that run."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = MergedPlan()
        self.running: dict[str, n.Node] = {}
        self.count = 0

    @rule(text=queries())
    def add(self, text: str) -> None:
        before = {name: root.key for name, root in self.plan.queries.items()}
        name = f"q{self.count}"
        self.count += 1
        self.running[name] = lowered(text)
        self.plan.add(name, lowered(text))
        assert before.items() <= {name: root.key for name, root in self.plan.queries.items()}.items()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[name]
        self.plan.remove(name)

    @invariant()
    def is_a_function_of_the_queries_that_run(self) -> None:
        fresh = MergedPlan()
        for name in sorted(self.running, reverse=True):
            fresh.add(name, self.running[name])
        assert shown(self.plan) == shown(fresh)
        assert dict(self.plan.queries) == self.running

    def teardown(self) -> None:
        for name in self.running:
            self.plan.remove(name)
        assert not any(vars(self.plan).values()), "nothing stays behind"


def test_a_plan_is_a_function_of_the_queries_that_run() -> None:
    run_state_machine_as_test(_Plans, settings=settings(max_examples=25, stateful_step_count=15, deadline=None))


@pytest.mark.long
def test_a_plan_is_a_function_of_the_queries_that_run_long() -> None:
    run_state_machine_as_test(_Plans, settings=settings(max_examples=200, stateful_step_count=40, deadline=None))


MANY = st.lists(queries(), min_size=2, max_size=25)


def check_nodes(plan: MergedPlan) -> None:
    nodes = selects_of(plan)
    for node in nodes:
        seen = [node]
        while (base := plan.base(seen[-1])) is not None:
            assert base not in seen, "bases lead in a circle"
            assert base in nodes
            assert base.inputs == node.inputs
            seen.append(base)
        check_selection(plan, node)


def selects_of(plan: MergedPlan) -> list[n.Select]:
    found = {node.key: node for root in plan.queries.values() for node in root.walk() if isinstance(node, n.Select)}
    return list(found.values())


def check_selection(plan: MergedPlan, select: n.Select) -> None:
    base = plan.base(select)
    if base is None or not isinstance(select.input, n.Source):
        return
    left = residue(select, base)
    assert all_imply(select.conditions, base.conditions)
    assert select.conditions >= left > frozenset()
    for row in ROWS:
        chosen = all(met(condition, row) for condition in select.conditions)
        passed = all(met(condition, row) for condition in base.conditions)
        assert chosen == (passed and all(met(condition, row) for condition in left))


@given(MANY)
@settings(max_examples=30, deadline=None)
@example(["SELECT sid WHERE f >= 16777217 FROM vitals", "SELECT sid WHERE f >= 16777216.5 FROM vitals"])
@example(["SELECT sid WHERE d >= 9007199254740993 FROM vitals", "SELECT sid WHERE d > 9007199254740992 FROM vitals"])
@example(["SELECT sid WHERE sid = 1 FROM vitals", "SELECT sid WHERE sid IN (1, NULL) FROM vitals"])
def test_bases_hold_what_is_computed_from_them_and_lead_in_no_circle(texts: list[str]) -> None:
    check_nodes(plan_of(*texts))


@pytest.mark.long
@given(st.lists(queries(), min_size=10, max_size=40))
@settings(max_examples=250, deadline=None)
def test_bases_hold_what_is_computed_from_them_and_lead_in_no_circle_long(texts: list[str]) -> None:
    check_nodes(plan_of(*texts))


POOL = [
    *(f"bp {operator} {k}" for operator in (">", ">=", "<") for k in (1, 2, 3)),
    *("bp = 2", "bp IN (2, 3)", "bp IN (2, 3, NULL)", "bp IS NOT NULL", "bp > 1 OR pr > 1", "bp > 1 OR pr > 1 OR flag"),
    *("pr > 4000000000", "pr > 4000000000.0", "pr > 1", "flag"),
]


@given(st.lists(st.sets(st.sampled_from(POOL), min_size=1, max_size=5), min_size=2, max_size=20))
@settings(max_examples=60, deadline=None)
def test_selections_that_no_query_has_lead_in_no_circle_either(sets: list[set[str]]) -> None:
    plan = MergedPlan()
    for number, texts in enumerate(sets):
        conditions = frozenset().union(*(select(text).conditions for text in texts))
        plan.add(str(number), n.Select(n.Source("joe.vitals"), conditions))
    check_nodes(plan)


CHOICES = st.fixed_dictionaries(
    {}, optional={"bp >": st.integers(0, 7), "pr >": st.integers(0, 7), "sid =": st.integers(0, 3)}
)


@given(st.lists(CHOICES.filter(bool), min_size=2, max_size=20))
@settings(max_examples=60, deadline=None)
def test_no_better_base_is_missed_as_long_as_bounds_are_few(choices: list[dict[str, int]]) -> None:
    plan = plan_of(
        *(
            f"SELECT sid WHERE {' AND '.join(f'{left} {right}' for left, right in choice.items())} FROM vitals"
            for choice in choices
        )
    )
    selects = selects_of(plan)
    for select in selects:
        able = [other for other in selects if other != select and all_imply(select.conditions, other.conditions)]
        base = plan.base(select)
        assert (base is None) == (not able)
        if base is not None:
            assert len(base.conditions) == max(len(other.conditions) for other in able)
            alike = [other for other in able if len(other.conditions) == len(base.conditions) and other != base]
            assert not any(all_imply(other.conditions, base.conditions) for other in alike)


# Other processes ----------------------------------------------------------------------------------------------------

FIXED = [
    *(f"SELECT sid, bp WHERE bp > {k} AND sid IN ({k % 3}, {k % 5}, 7) FROM vitals" for k in range(6)),
    *(f"SELECT sid WHERE bp > {k} OR pr < {k} FROM vitals" for k in range(3)),
    *(f"SELECT AVG(bp), MAX(pr) WHERE bp > 3 FROM vitals [ROWS {k}] GROUP BY sid, name" for k in range(1, 4)),
    *(f"SELECT STDDEV(bp) FROM vitals [RANGE {k} SECONDS SLIDE 1 SECOND]" for k in range(1, 4)),
    "SELECT DISTINCT a.sid WHERE a.sid = b.sid AND a.bp > 2 AND b.bp > 2 FROM vitals a, vitals [NOW] b",
    "SELECT sid FROM vitals UNION ALL SELECT bp FROM vitals",
]


def dumped() -> str:
    return json.dumps(shown(plan_of(*FIXED)))


@pytest.mark.parametrize("seed", ["1", "2"])
def test_keys_and_bases_are_the_same_in_every_process(seed: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", "from tests.plan.test_merged import dumped; print(dumped())"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout.strip() == dumped()
