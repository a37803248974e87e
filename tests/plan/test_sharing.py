"""Sharing of two queries: tables and figures of paper 002 (section 4.2, appendix A), and what goes beyond them."""

from __future__ import annotations

from itertools import product

import pytest

from headgate.cql.queries import parse_query
from headgate.plan import nodes as n
from headgate.plan import sharing
from headgate.plan.expressions import Column, Type
from headgate.plan.lowering import lower
from headgate.plan.queries import Stream, bind_query
from headgate.plan.sharing import SharingKind

from . import definitions
from .definitions import OperatorTree, Relation, as_in_the_paper, related

STREAMS = {
    "Vitals": Stream("Vitals", (("sid", Type.INT), ("bp", Type.INT), ("pr", Type.INT))),
    "Position": Stream("Position", (("sid", Type.INT), ("lat", Type.STRING), ("lon", Type.STRING))),
}


def lowered(text: str) -> n.Node:
    return as_in_the_paper(lower(bind_query(parse_query(text), lambda target: STREAMS[target.name])))


JOINED = 'WHERE V.sid = P.sid AND bp > 120 AND lon = "4E" FROM Vitals [ROWS 10] V, Position [ROWS 10] P'
QUERIES = {
    "Q1": lowered("SELECT AVG(bp) FROM Vitals [PARTITIONED BY LEVEL ROWS 20]"),
    "Q2": lowered('SELECT AVG(bp) WHERE LEVEL = "L" FROM Vitals [ROWS 20]'),
    "Q3": lowered("SELECT AVG(bp) WHERE bp > 50 FROM Vitals [PARTITIONED BY LEVEL ROWS 5]"),
    "Q4": lowered(f"SELECT AVG(pr) {JOINED}"),
    "Q5": lowered(f"SELECT V.sid, pr {JOINED}"),
    "Q6": lowered("SELECT sid, bp WHERE bp > 120 FROM Vitals"),
    "Q7": lowered('SELECT sid, bp, pr WHERE LEVEL = "L" AND bp > 120 FROM Vitals'),
    "Q8": lowered("SELECT sid WHERE pr > 100 FROM Vitals"),
}
Q1, Q2, Q3, Q4, Q5, Q6, Q7, Q8 = QUERIES.values()
PAIRS = [*product(QUERIES, repeat=2)]

# (executing, incoming): the cell; all that are not here are `-`.
TABLE_2 = {(name, name): "Complete" for name in QUERIES} | {
    ("Q2", "Q7"): "Loose Select(LEVEL)",
    ("Q4", "Q5"): "Strict Select(lon), Select(bp), Join(sid)",
    ("Q4", "Q6"): "Loose Select(bp)",
    ("Q4", "Q7"): "Loose Select(bp)",
    ("Q5", "Q4"): "Strict Select(lon), Select(bp), Join(sid)",
    ("Q5", "Q6"): "Loose Select(bp)",
    ("Q5", "Q7"): "Loose Select(bp)",
    ("Q6", "Q4"): "Loose Select(bp)",
    ("Q6", "Q5"): "Loose Select(bp)",
    ("Q6", "Q7"): "Loose Select(bp)",
}
WITH_IMPLICATION = TABLE_2 | {
    ("Q3", "Q4"): "Loose Select(bp)",
    ("Q3", "Q5"): "Loose Select(bp)",
    ("Q3", "Q6"): "Loose Select(bp)",
    ("Q3", "Q7"): "Loose Select(bp)",
}


def cell(found: Relation) -> str:
    """As the paper writes it: the kind, and the operators by the columns they are about."""
    if found.kind in (SharingKind.NONE, SharingKind.COMPLETE):
        return "-" if found.kind == SharingKind.NONE else "Complete"
    return f"{found.kind.title()} {', '.join(map(shown, found.named))}"


def shown(node: n.Node) -> str:
    assert isinstance(node, n.Select | n.Join)
    columns = sorted({column.name for condition in node.conditions for column in condition.columns})
    return f"{type(node).__name__}({', '.join(columns)})"


@pytest.mark.parametrize(("executing", "incoming"), PAIRS)
def test_table_2_is_reproduced(executing: str, incoming: str) -> None:
    found = related(QUERIES[incoming], QUERIES[executing], implication=False)
    assert cell(found) == TABLE_2.get((executing, incoming), "-")


@pytest.mark.parametrize(("executing", "incoming"), PAIRS)
def test_implication_adds_selections_that_follow(executing: str, incoming: str) -> None:
    found = related(QUERIES[incoming], QUERIES[executing])
    assert cell(found) == WITH_IMPLICATION.get((executing, incoming), "-")


@pytest.mark.parametrize(("executing", "incoming"), PAIRS)
@pytest.mark.parametrize("implication", [False, True])
def test_kinds_fit_the_definitions_they_are_named_for(executing: str, incoming: str, implication: bool) -> None:
    x, y = QUERIES[incoming], QUERIES[executing]
    kind = related(x, y, implication=implication).kind
    assert (kind == SharingKind.COMPLETE) == sharing.complete(x, y) == (executing == incoming)
    assert (kind == SharingKind.STRICT) == sharing.strict(x, y)
    assert (kind == SharingKind.LOOSE) == (sharing.loose(x, y, implication=implication) and not sharing.strict(x, y))
    if kind in (SharingKind.STRICT, SharingKind.LOOSE):
        assert definitions.partial(x, y, implication=implication)


def test_partial_sharing_looks_both_ways_and_loose_sharing_one_way() -> None:
    assert definitions.partial(Q6, Q7)
    assert definitions.partial(Q7, Q6)
    assert sharing.loose(Q7, Q6)
    assert not sharing.loose(Q6, Q7)
    assert not definitions.partial(Q8, Q6)


def test_a_stream_alone_is_not_shared() -> None:
    assert not definitions.overlap(Q6, Q8)
    assert definitions.overlap(Q6, Q4)
    assert not definitions.overlap(Q6, Q6)
    assert related(Q8, Q6) == Relation(SharingKind.NONE)


def test_a_window_in_common_is_strict_sharing_without_a_name() -> None:
    found = related(lowered("SELECT SUM(bp) FROM Vitals [ROWS 9]"), lowered("SELECT MAX(pr) FROM Vitals [ROWS 9]"))
    assert found == Relation(SharingKind.STRICT, (n.Window(n.Source("Vitals"), "ROWS", rows=9),))
    assert found.named == ()


def test_a_selection_is_subsumed_by_fewer_conditions_and_a_projection_by_more_columns() -> None:
    few, many = select("bp > 120"), select("bp > 120 AND pr < 50")
    assert sharing.subsumed(many, few, implication=False)
    assert not sharing.subsumed(few, many, implication=False)
    assert sharing.subsumed(few, few, implication=False)
    narrow, wide = project("sid"), project("bp, sid")
    assert sharing.subsumed(narrow, wide)
    assert not sharing.subsumed(wide, narrow)


def test_a_selection_is_subsumed_by_one_that_follows_only_with_implication() -> None:
    assert sharing.subsumed(select("bp > 130"), select("bp > 120"))
    assert not sharing.subsumed(select("bp > 130"), select("bp > 120"), implication=False)
    assert not sharing.subsumed(select("bp > 120"), select("bp > 130"))


def test_nothing_is_subsumed_over_another_input_or_where_it_blocks() -> None:
    other = n.Select(n.Window(n.Source("Vitals"), "NOW"), select("bp > 120").conditions)
    assert not sharing.subsumed(select("bp > 120"), other)
    assert not sharing.subsumed(n.Window(n.Source("V"), "ROWS", rows=5), n.Window(n.Source("V"), "ROWS", rows=9))
    assert not sharing.subsumed(select("bp > 120"), project("bp"))


def test_decomposing_leaves_what_the_other_does_not_do() -> None:
    few, many = select("bp > 120"), select("bp > 120 AND pr < 50")
    assert definitions.decompose(many, few) == (few, n.Select(few, select("pr < 50").conditions))
    narrow, wide = project("sid"), project("bp, sid")
    assert definitions.decompose(narrow, wide) == (wide, n.Project(wide, (("sid", Column(0, "sid", Type.INT)),)))
    with pytest.raises(ValueError, match="is not subsumed by"):
        definitions.decompose(few, wide)


def test_figure_3c_shares_the_selection_of_q6() -> None:
    vitals = n.Source("Vitals")
    high, rest = select("bp > 120"), n.Select(select("bp > 120"), select('LEVEL = "L"').conditions)
    merged = definitions.merge(definitions.operator_tree(Q6), definitions.decomposed(Q7, Q6))
    assert merged == OperatorTree(
        frozenset({vitals, high, rest, Q6, Q7}),
        frozenset({(vitals, high), (high, Q6), (high, rest), (rest, Q7)}),
    )


def test_figure_4_shares_selections_windows_and_join() -> None:
    merged = definitions.merge(definitions.operator_tree(Q4), definitions.operator_tree(Q5))
    shared = {"Source": 2, "Select": 2, "Window": 2, "Join": 1}
    own = {"Aggregate": 1, "Project": 2, "ToStream": 2}
    names = [type(node).__name__ for node in merged.nodes]
    assert {name: names.count(name) for name in names} == shared | own
    (join,) = (node for node in merged.nodes if isinstance(node, n.Join))
    assert {type(reader) for node, reader in merged.edges if node == join} == {n.Aggregate, n.Project}
    assert definitions.operator_tree(join).edges <= merged.edges


def test_merging_in_either_order_gives_the_same() -> None:
    for x, y in product(map(definitions.operator_tree, QUERIES.values()), repeat=2):
        assert definitions.merge(x, y) == definitions.merge(y, x)


def select(condition: str) -> n.Select:
    (found,) = (x for x in lowered(f"SELECT sid WHERE {condition} FROM Vitals").walk() if isinstance(x, n.Select))
    return found


def project(columns: str) -> n.Project:
    root = lowered(f"SELECT {columns} FROM Vitals")
    assert isinstance(root, n.Project)
    return root
