"""EXPLAIN ANALYZE: what running operators did; and that a reader learns nothing from it of what it may not see."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import PASSWORD, System

from headgate.egress.mailbox import Mailbox
from headgate.errors import AccessDenied, Conflict
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.operators.profile import Step
from headgate.plan.analysis import _numbers
from headgate.recovery.pipeline import Pipeline
from headgate.recovery.query_graph import QueryGraph

SETUP = f"""
CREATE ROLE doctor; CREATE ROLE nurse;
CREATE USER ned PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER ned;
CREATE USER dora PASSWORD '{PASSWORD}'; GRANT ROLE doctor TO USER dora; GRANT ROLE nurse TO USER dora;
CREATE STREAM hr (at TIMESTAMP, pat INT, hr INT, policy STRING) EVENT TIME at ROLES FROM policy;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM hr TO nurse, doctor;
CREATE QUERY q AS SELECT pat, SUM(hr) AS s WHERE hr > 60 FROM hr [ROWS 3] GROUP BY pat;
START QUERY q;
GRANT VIEW OBJECT ON QUERY q TO nurse, doctor;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM q TO nurse, doctor;
"""
OTHERS = """
CREATE QUERY weaker AS SELECT pat, hr WHERE hr > 10 FROM hr [ROWS 9];
CREATE QUERY joined AS SELECT a.pat WHERE a.hr > 60 AND b.hr > 60 FROM hr [ROWS 3] a, hr [ROWS 3] b WHERE a.pat = b.pat;
CREATE QUERY same AS SELECT pat, SUM(hr) AS s, AVG(hr) AS m WHERE hr > 60 FROM hr [ROWS 3] GROUP BY pat;
START QUERY weaker; START QUERY joined; START QUERY same;
SUBSCRIBE TO weaker; SUBSCRIBE TO joined; SUBSCRIBE TO same;
"""
Row = tuple[int, int, int, str]
SEEN: list[Row] = [
    (1, 1, 50, "nurse"),
    (2, 1, 70, "nurse"),
    (3, 2, 80, "nurse"),
    (4, 1, 90, "nurse"),
    (5, 2, 99, "nurse"),
]
HIDDEN: list[Row] = [(1, 7, 95, "doctor"), (4, 1, 61, "doctor"), (9, 2, 62, "doctor")]


class Ward:
    """A system with a live pipeline, fed by hand."""

    def __init__(self, system: System, folder: Path) -> None:
        self.system, self.folder, self.number = system, folder, 0
        system.run(SETUP)
        self.ned = system.headgate.login("ned", PASSWORD)
        self.dora = system.headgate.login("dora", PASSWORD)
        system.run("SUBSCRIBE TO root.q", self.ned)
        self.pipeline = self.begin()

    def begin(self) -> Pipeline:
        found = Pipeline(
            self.folder,
            self.system.headgate,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [Mailbox()],
            self.system.clock,
        )
        self.system.headgate.engine = found
        return found

    def take(self, rows: Sequence[Row]) -> None:
        at, pat, hr, policy = zip(*rows, strict=True)
        table = pa.table(
            {
                "at": pa.array([x * 1_000_000 for x in at], pa.timestamp("us", tz="UTC")),
                "pat": pa.array(pat, pa.int32()),
                "hr": pa.array(hr, pa.int32()),
                "policy": pa.array(policy),
            }
        )
        self.pipeline.take("root.hr", self.number, table)
        self.number += 1

    def analyzed(self, token: str = "", what: str = "root.q") -> str:
        return self.system.run(f"EXPLAIN ANALYZE QUERY {what}", token)[-1].text


@pytest.fixture
def ward(sqlite_system: System, tmp_path: Path) -> Iterator[Ward]:
    found = Ward(sqlite_system, tmp_path / "engine")
    yield found
    found.pipeline.close()


def test_a_reader_sees_what_its_own_view_did_and_no_times(ward: Ward) -> None:
    """The tuple of the last time is not final yet, so no window has it."""
    ward.take(SEEN)
    assert ward.analyzed(ward.ned).splitlines() == [
        "root.q: exact, level U",
        "counted since the engine began, or since you subscribed if that was later",
        "",
        "  ISTREAM   -- in 3, out 3",
        "  └─ PROJECT pat, SUM(hr) AS s",
        "     └─ AGGREGATE SUM(hr) BY pat   -- in 3, out 3",
        "        └─ WINDOW ROWS 3   -- in 3, out 3, holds 3 rows, about 300 bytes",
        "           └─ SELECT hr > 60   -- in 4, out 3",
        "              └─ SOURCE root.hr   -- in 4, out 4",
    ]


def test_tuples_and_queries_that_a_reader_may_not_see_change_nothing_in_its_numbers(ward: Ward) -> None:
    """The same world twice: first without, then with tuples for doctors and queries of others, that share with it."""
    for row in SEEN:
        ward.take([row])
    alone = ward.analyzed(ward.ned)
    ward.system.run("UNSUBSCRIBE FROM root.q; SUBSCRIBE TO root.q", ward.ned)
    ward.system.run(OTHERS)
    ward.system.run("SUBSCRIBE TO root.q", ward.dora)
    ward.take([*HIDDEN[:1], *SEEN[:2]])
    ward.system.run("SUBSCRIBE TO root.q")
    ward.take(SEEN[2:3])
    ward.take([*SEEN[3:4], *HIDDEN[1:2]])
    ward.system.run("STOP QUERY joined; REVOKE ROLE doctor FROM USER dora")
    ward.take(SEEN[4:])
    ward.take(HIDDEN[2:])
    assert ward.analyzed(ward.ned) == alone
    assert "view of dora" in ward.analyzed() and "95" not in alone


def test_an_operator_sees_every_view_with_times(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.q", ward.dora)
    ward.take([*SEEN, *HIDDEN])  # of these one waits, and two are late for dora
    head, *views = ward.analyzed().split("\n\nview of ")
    assert re.search(r"counted since the engine began \(\d+-\d+-\d+ \d+:\d+:\d+ UTC\)", head)
    shown = {view.split()[0]: view.splitlines() for view in views}
    assert shown.keys() == {"dora", "ned"}
    assert any("in 3, out 3, holds 2 groups, about 192 bytes, " in line for line in shown["ned"])
    assert re.search(r"SOURCE root.hr   -- in 4, out 4, \d+\.\d ms$", shown["ned"][-1])
    assert re.search(r"SOURCE root.hr   -- in 5, out 5, \d+\.\d ms$", shown["dora"][-1])


def test_counts_go_on_when_queries_come_and_go_and_begin_at_zero_with_the_engine(ward: Ward) -> None:
    ward.take(SEEN[:3])
    ward.system.run(OTHERS)
    ward.take(SEEN[3:])
    ward.system.run("STOP QUERY joined")
    ward.pipeline.settle()  # made anew, and nothing came yet
    kept = ward.analyzed(ward.ned)
    assert "SOURCE root.hr   -- in 4, out 4" in kept
    ward.pipeline.close()
    ward.pipeline = ward.begin()
    assert "SOURCE root.hr   -- in 0, out 0" in ward.analyzed(ward.ned)
    ward.take([(9, 1, 70, "nurse")])
    again = ward.analyzed(ward.ned)
    assert "SOURCE root.hr   -- in 1, out 1" in again
    assert re.findall("holds .*", again) == re.findall("holds .*", kept)  # what is held was not lost


def test_a_batch_that_fails_for_somebody_else_is_not_counted_twice(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    ward.system.run("CREATE QUERY bad AS SELECT COUNT(*) AS n FROM hr [ROWS 5]; START QUERY bad; SUBSCRIBE TO bad")
    ward.take(SEEN[:2])
    batch = QueryGraph.batch

    def faulty(graph: QueryGraph, *given: Any, **more: Any) -> Any:
        found = batch(graph, *given, **more)
        if any(x.output == "root.bad" for x in graph._processors.stages.running.values()):
            raise RuntimeError("a fault of the query bad")
        return found

    monkeypatch.setattr(QueryGraph, "batch", faulty)
    ward.take(SEEN[2:])
    assert "SOURCE root.hr   -- in 4, out 4" in ward.analyzed(ward.ned)


def test_numbers_that_a_caller_may_not_have_are_refused(ward: Ward) -> None:
    run = ward.system.run
    with pytest.raises(AccessDenied, match=r"cannot analyze query root.q: you have not subscribed to its results"):
        ward.analyzed(ward.dora)
    run("SUBSCRIBE TO root.q", ward.dora)
    narrow = ward.system.headgate.login("dora", PASSWORD, roles=frozenset({"nurse"}))
    with pytest.raises(AccessDenied, match="your subscription has roles that this session has not"):
        ward.analyzed(narrow)
    run("REVOKE READ TUPLE ON STREAM q FROM nurse")
    with pytest.raises(AccessDenied, match="your rights do not cover its results now"):
        ward.analyzed(ward.ned)
    run("ALTER STREAM hr ALLOW CUMULATIVE")
    run("CREATE QUERY c CUMULATIVE AS SELECT COUNT(*) AS n FROM hr [ROWS 5]; START QUERY c")
    run("GRANT VIEW OBJECT ON QUERY c TO nurse; GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM c TO nurse")
    run("SUBSCRIBE TO root.c", ward.ned)
    with pytest.raises(AccessDenied, match="its readers share one view"):
        ward.analyzed(ward.ned, "root.c")
    run("STOP QUERY c")
    with pytest.raises(Conflict, match=r"cannot analyze query root.c: it does not run"):
        ward.analyzed(what="root.c")
    ward.system.headgate.engine = None
    with pytest.raises(Conflict, match=r"cannot analyze query root.q: no engine runs it"):
        ward.analyzed()


def test_a_reader_of_a_block_without_windows_is_not_told_what_came_in(ward: Ward) -> None:
    """Sources leave out what no query needs, so that depends on the queries of others."""
    ward.system.run("CREATE QUERY p AS SELECT pat WHERE hr > 60 FROM hr; START QUERY p")
    ward.system.run(
        "GRANT VIEW OBJECT ON QUERY p TO nurse; GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM p TO nurse"
    )
    ward.system.run("SUBSCRIBE TO root.p", ward.ned)
    ward.take([*SEEN, *HIDDEN])
    assert ward.analyzed(ward.ned, "root.p").splitlines()[3:] == [
        "  PROJECT pat   -- in 4, out 4",
        "  └─ SELECT hr > 60   -- out 4",
        "     └─ SOURCE root.hr",
    ]


def no_counts(*_: object) -> dict[tuple[str, str], dict[str, Step]]:
    return {}


def everything(operator: object, done: object, told: object, **_: bool) -> Iterator[str]:
    return _numbers(operator, done, told, everything=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fault",
    [
        ("headgate.recovery.saved_counts.SavedCounts.for_queries", no_counts),
        ("headgate.plan.analysis._numbers", everything),
    ],
    ids=["counts begin anew with others' queries", "times for everyone"],
)
def test_an_error_in_hiding_would_be_found(fault: tuple[str, Any], ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*fault)
    with pytest.raises(AssertionError):
        test_tuples_and_queries_that_a_reader_may_not_see_change_nothing_in_its_numbers(ward)
