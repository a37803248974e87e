"""Definitions are read once and written once: texts of earlier versions read as before, and damage stays alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import System
from hypothesis import given
from hypothesis import strategies as st

from headgate.access.definitions import (
    ColumnDefinition,
    Damaged,
    Definition,
    Nothing,
    QueryDefinition,
    SchemaDefinition,
    SourceDefinition,
    StreamDefinition,
    read_definition,
    read_limits,
    write_definition,
    write_limits,
)
from headgate.access.limits import exceeded
from headgate.errors import StoreError
from headgate.labels import Semantics

COLUMNS = [{"name": "pat", "type": "INT"}, {"name": "bp", "type": "INT", "label": "doctor"}]
AS_COLUMNS = (ColumnDefinition("pat", "INT"), ColumnDefinition("bp", "INT", "doctor"))
EARLIER: list[tuple[str, dict[str, Any], Definition]] = [
    ("SYSTEM", {}, Nothing()),
    ("OPERATOR", {}, Nothing()),
    ("SCHEMA", {"columns": COLUMNS}, SchemaDefinition(AS_COLUMNS)),
    (
        "STREAM",
        {"columns": COLUMNS, "label": "TRUE", "semantics": "STRONG", "source": "root.s"},
        StreamDefinition(AS_COLUMNS, "root.s"),
    ),
    (
        "STREAM",
        {
            "columns": [],
            "cumulative": True,
            "event_time": "at",
            "input": {"format": "json", "options": {"path": "/data", "a": "b"}},
            "label": "nurse",
            "labels": {"ROLES": "policy", "LEVEL": "level"},
            "lateness": 5000,
            "semantics": "WEAK",
            "skew": 0,
            "source": "root.t~2",
            "table": True,
        },
        StreamDefinition(
            (),
            "root.t~2",
            "nurse",
            Semantics.WEAK,
            "at",
            (("LEVEL", "level"), ("ROLES", "policy")),
            SourceDefinition("json", (("a", "b"), ("path", "/data"))),
            5000,
            0,
            True,
            True,
        ),
    ),
    (
        "STREAM",
        {"columns": [], "label": "TRUE", "lateness": 0, "made_of": [3], "semantics": "STRONG", "source": "root.q"},
        StreamDefinition((), "root.q", made_of=(3,)),
    ),
    (
        "QUERY",
        {
            "cumulative": False,
            "inputs": [3],
            "narrowed": False,
            "operators": [["window", {"kinds": ["ROWS"], "rows": 20}], ["project", {}]],
            "output": 4,
            "roles": ["ADMIN"],
            "running": True,
            "sources": [3, 3],
            "text": "SELECT pat FROM s",
        },
        QueryDefinition(
            (3,),
            4,
            (("window", (("kinds", ("ROWS",)), ("rows", 20))), ("project", ())),
            ("ADMIN",),
            True,
            text="SELECT pat FROM s",
            sources=(3, 3),
        ),
    ),
    (
        "QUERY",
        {"broken": True, "inputs": [], "operators": [], "output": 4, "roles": [], "running": False},
        QueryDefinition((), 4, broken=True),
    ),
]


@pytest.mark.parametrize(("kind", "plain", "meant"), EARLIER)
def test_a_text_of_an_earlier_version_is_read_and_written_back_as_the_same(
    kind: str, plain: dict[str, Any], meant: Definition
) -> None:
    read = read_definition(kind, json.dumps(plain))
    assert read == meant
    assert hash(read) == hash(meant)
    given = {key: value for key, value in plain.items() if value not in (False, 0) or key in ("running", "skew")}
    assert json.loads(write_definition(read)) == given
    assert read_definition(kind, write_definition(read)) == read


NAMES = st.text('abc "é', max_size=3)
NUMBERS = st.lists(st.integers(1, 9), max_size=3).map(tuple)
COLUMN = st.builds(ColumnDefinition, NAMES, st.sampled_from(["INT", "STRING"]), NAMES)
PAIRS = st.dictionaries(NAMES, NAMES, max_size=3).map(lambda x: tuple(sorted(x.items())))
LIMIT = st.integers(0, 9) | st.floats(0, 9) | st.lists(NAMES, max_size=2).map(tuple)
PARAMETERS = st.dictionaries(NAMES, LIMIT, max_size=3).map(lambda x: tuple(sorted(x.items())))
STREAMS = st.builds(
    StreamDefinition,
    st.lists(COLUMN, max_size=2).map(tuple),
    NAMES,
    NAMES,
    st.sampled_from(Semantics),
    NAMES,
    PAIRS,
    st.none() | st.builds(SourceDefinition, NAMES, PAIRS),
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.booleans(),
    st.booleans(),
    st.none() | NUMBERS,
)
QUERIES = st.builds(
    QueryDefinition,
    NUMBERS,
    st.integers(1, 9),
    st.lists(st.tuples(NAMES, PARAMETERS), max_size=2).map(tuple),
    st.lists(NAMES, max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.just("SELECT 1"),
    NUMBERS,
)


@given(st.tuples(st.just("STREAM"), STREAMS) | st.tuples(st.just("QUERY"), QUERIES))
def test_every_definition_reads_back_as_itself(found: tuple[str, Definition]) -> None:
    kind, definition = found
    assert read_definition(kind, write_definition(definition)) == definition


@given(PARAMETERS)
def test_limits_read_back_as_themselves(limits: tuple[tuple[str, Any], ...]) -> None:
    assert read_limits(write_limits(limits)) == limits


BROKEN = [
    "",
    "{",
    "[]",
    "null",
    "{}",
    '{"columns": [{}]}',
    '{"columns": 3}',
    '{"columns": [], "source": "s", "label": 1',
]


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("kind", ["STREAM", "QUERY"])
def test_a_text_that_cannot_be_read_is_kept_as_it_is(kind: str, text: str) -> None:
    assert read_definition(kind, text) == Damaged(text)
    assert write_definition(Damaged(text)) == text


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_limits_that_cannot_be_read_allow_nothing(text: str) -> None:
    assert exceeded(read_limits(text), {"rows": 1})


def test_damage_of_one_object_harms_no_other(system: System) -> None:
    system.run("CREATE STREAM s (a INT); CREATE STREAM t (a INT); CREATE QUERY q AS SELECT a FROM s; START QUERY q")
    system.run("CREATE QUERY p AS SELECT a FROM t; START QUERY p; SUBSCRIBE TO q; SUBSCRIBE TO p; SUBSCRIBE TO t")
    system.sql("UPDATE objects SET definition = '{' WHERE kind = 'QUERY' AND name = 'q'")
    system.sql("UPDATE objects SET definition = '{}' WHERE kind = 'STREAM' AND name = 's'")
    system.reopen()
    system.root = system.login("root")
    assert [row[-1] for row in system.rows("SHOW QUERIES")] == ["running", "damaged"]
    assert [row[3] for row in system.rows("SHOW STREAMS") if row[0] in "st"] == ["damaged", "a INT"]
    assert [(row[0], row[-1]) for row in system.rows("SHOW SUBSCRIPTIONS")] == [("p", ""), ("q", "damaged"), ("t", "")]
    told = system.run("UNSUBSCRIBE FROM q; SUBSCRIBE TO q")[-1].text
    assert told == "subscribed to stream root.q; it cannot be run"
    with pytest.raises(StoreError) as caught:
        system.run("STOP QUERY q")
    assert caught.value.message == "cannot use query root.q: its definition in the store is damaged"
    snapshot = system.headgate.snapshots.now()
    words = {x.outgoing.stream: x.word for x in snapshot.standings}
    assert words == {"root.p": "", "root.q": "ended", "root.t": ""}
    system.run("DROP QUERY q; DROP STREAM s")
    assert [row[0] for row in system.rows("SHOW QUERIES")] == ["p"]
