"""Every query printed in the papers is read, bound and lowered, and means what the paper says of it."""

from __future__ import annotations

import pytest

from headgate.cql.queries import parse_query
from headgate.plan import nodes as n
from headgate.plan.expressions import AggregateCall, Column, In, Literal, Type
from headgate.plan.lowering import lower
from headgate.plan.queries import Query, Stream, bind_query
from headgate.testing.queries import finder

STREAMS = (
    Stream("HRStr", (("ts", Type.TIMESTAMP), ("patID", Type.INT), ("devID", Type.INT), ("pulseRate", Type.INT))),
    Stream(
        "BPStr",
        (
            *(("ts", Type.TIMESTAMP), ("patID", Type.INT), ("devID", Type.INT)),
            *(("systolic", Type.INT), ("diastolic", Type.INT)),
        ),
    ),
    Stream("Vitals", (("sid", Type.INT), ("bp", Type.INT), ("pr", Type.INT))),
    Stream("Position", (("sid", Type.INT), ("lat", Type.STRING), ("lon", Type.STRING))),
    Stream("in1", (("x", Type.INT), ("y", Type.DOUBLE))),
    Stream("in2", (("x", Type.INT), ("z", Type.STRING))),
)
# Paper 000, section 3.2.
JOIN = "SELECT in1.* FROM in1, in2 WHERE in1.x = in2.x"
# Paper 001, sections 3 and 4.1.
CQ1 = """SELECT HRStr.patId, AVG(pulseRate), AVG(systolic), AVG(diastolic)
    FROM HRStr [Range 2 Minutes], BPStr [Range 2 Minutes]
    WHERE HRStr.patID = BPStr.patID
    GROUP BY patID"""
CQ1_AS_DOCTOR = f"AS doctor {CQ1}"
# Paper 002, section 4.1.
Q = "SELECT AVG(bp), AVG(pr) FROM Vitals[ROWS 100], Position[ROWS 100] WHERE Vitals.sid = Position.sid"
LEVEL_BEFORE = 'SELECT AVG(bp) WHERE LEVEL = "S" FROM Vitals [ROWS 100]'
LEVEL_INSIDE = 'SELECT AVG(bp) FROM Vitals [ROWS 100 LEVEL = "S"]'
LEVEL_AFTER = 'SELECT AVG(bp) FROM Vitals [ROWS 100] WHERE LEVEL = "S"'
PARTITIONED = 'SELECT AVG(bp) WHERE LEVEL = "S" OR "TS" FROM Vitals [PARTITIONED BY LEVEL ROWS 100]'
# Paper 002, Table 1.
Q1 = "SELECT AVG(bp) FROM Vitals [PARTITIONED BY LEVEL ROWS 20]"
Q2 = 'SELECT AVG(bp) WHERE LEVEL = "L" FROM Vitals [ROWS 20]'
Q3 = "SELECT AVG(bp) WHERE bp > 50 FROM Vitals [PARTITIONED BY LEVEL ROWS 5]"
Q4 = """SELECT AVG(pr) WHERE V.sid = P.sid AND bp > 120 AND lon = "4E"
    FROM Vitals [ROWS 10] V, Position [ROWS 10] P"""
Q5 = """SELECT V.sid,pr WHERE V.sid = P.sid AND bp > 120 AND lon = "4E"
    FROM Vitals [ROWS 10] V, Position [ROWS 10] P"""
Q6 = "SELECT sid, bp WHERE bp > 120 FROM Vitals"
Q7 = 'SELECT sid, bp, pr WHERE LEVEL = "L" AND bp > 120 FROM Vitals'
Q8 = "SELECT sid WHERE pr > 100 FROM Vitals"
ALL = {
    "join": JOIN,
    "CQ1": CQ1,
    "CQ1 as doctor": CQ1_AS_DOCTOR,
    "Q": Q,
    "partitioned": PARTITIONED,
    "level before": LEVEL_BEFORE,
    "level inside": LEVEL_INSIDE,
    "level after": LEVEL_AFTER,
    "Q1": Q1,
    "Q2": Q2,
    "Q3": Q3,
    "Q4": Q4,
    "Q5": Q5,
    "Q6": Q6,
    "Q7": Q7,
    "Q8": Q8,
}
LEVEL = Column(0, "LEVEL", Type.STRING)


def bound(text: str) -> Query:
    return bind_query(parse_query(text), finder(STREAMS))


def plan(text: str) -> n.Node:
    return lower(bound(text))


def operators(text: str) -> list[str]:
    return [type(node).__name__ for node in plan(text).walk()]


def level(*names: str) -> In:
    return In(LEVEL, frozenset(Literal(name, Type.STRING) for name in names))


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_a_query_of_the_papers_is_planned(text: str) -> None:
    tree = plan(text)
    assert {node.stream for node in tree.walk() if isinstance(node, n.Source)} <= {stream.name for stream in STREAMS}
    exact = ("HRStr", "BPStr", "Vitals", "Position", '"S"', '"TS"', '"L"', '"4E"')
    small = text.lower()
    for word in exact:
        small = small.replace(word.lower(), word)
    assert plan(small).key == tree.key


def test_the_join_yields_the_columns_of_one_side() -> None:
    assert bound(JOIN).columns == (("x", Type.INT), ("y", Type.DOUBLE))
    assert operators(JOIN) == ["Source", "Window", "Source", "Window", "Join", "Project", "ToStream"]


def test_roles_are_kept_apart_from_what_a_query_means() -> None:
    assert [role.text for role in parse_query(CQ1_AS_DOCTOR).roles] == ["doctor"]
    assert parse_query(CQ1).roles == ()
    assert plan(CQ1) == plan(CQ1_AS_DOCTOR)
    (block,) = bound(CQ1).blocks
    assert [name for name, _ in block.items] == ["patID", "avg_pulseRate", "avg_systolic", "avg_diastolic"]
    assert [reading.window.range for reading in block.readings if reading.window] == [120_000, 120_000]
    assert len(block.groups) == 1


def test_a_level_before_the_window_and_inside_it_is_the_same_and_after_it_is_not() -> None:
    before, inside, after = plan(LEVEL_BEFORE), plan(LEVEL_INSIDE), plan(LEVEL_AFTER)
    assert before == inside and before.key == inside.key
    assert before != after and before.key != after.key
    assert operators(LEVEL_BEFORE)[:3] == ["Source", "Select", "Window"]
    assert operators(LEVEL_AFTER)[:3] == ["Source", "Window", "Select"]


def test_a_list_of_levels_chooses_what_enters_and_the_partitions_are_the_groups() -> None:
    tree = plan(PARTITIONED)
    (select,) = (node for node in tree.walk() if isinstance(node, n.Select))
    (aggregate,) = (node for node in tree.walk() if isinstance(node, n.Aggregate))
    assert select.conditions == {level("S", "TS")}
    assert aggregate.groups == {LEVEL}


def test_conditions_before_the_window_go_to_their_source_and_the_join_keeps_its_own() -> None:
    tree = plan(Q4)
    (join,) = (node for node in tree.walk() if isinstance(node, n.Join))
    assert [str(condition) for condition in join.conditions] == ["sid = sid@1"]
    assert [type(node).__name__ for node in join.walk()] == [
        *("Source", "Select", "Window"),
        *("Source", "Select", "Window", "Join"),
    ]
    assert join in list(plan(Q5).walk())


def test_selections_without_a_window_have_no_state() -> None:
    for text in (Q6, Q7, Q8):
        assert bound(text).blocks[0].stateless
        assert not any(node.blocking for node in plan(text).walk())


def test_equal_aggregates_of_the_table_are_equal_operators() -> None:
    mean = AggregateCall("AVG", Column(0, "bp", Type.INT), False, Type.DOUBLE)
    for text in (Q1, Q2, Q3):
        (aggregate,) = (node for node in plan(text).walk() if isinstance(node, n.Aggregate))
        assert aggregate.calls == {mean}
    assert plan(Q1) == plan(Q1.lower().replace("vitals", "Vitals"))
