"""A subscription is suspended while its rights permit no result at all (SPEC.md, 3.6): a reader who gets nothing must
not take that for a quiet stream."""

from __future__ import annotations

import pytest
from conftest import System

from headgate.access.permissions import Permission
from headgate.cql.names import Target
from headgate.errors import Position

SECRET = "correct horse"
SETUP = f"""
CREATE ROLE nurse;
CREATE USER ann PASSWORD '{SECRET}'; GRANT ROLE nurse TO USER ann;
CREATE STREAM hr (ts TIMESTAMP, pat INT, v INT) EVENT TIME ts;
CREATE STREAM bp (ts TIMESTAMP, pat INT, v INT) EVENT TIME ts SEMANTICS AGGREGATE;
CREATE STREAM weak (ts TIMESTAMP, pat INT, v INT) EVENT TIME ts SEMANTICS WEAK;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM hr, bp, weak TO nurse;
CREATE QUERY both AS SELECT h.pat, b.v FROM hr [RANGE 5 SECONDS] h, bp [RANGE 5 SECONDS] b WHERE h.pat = b.pat;
CREATE QUERY mean AS SELECT AVG(h.v) AS m FROM hr [RANGE 5 SECONDS] h, bp [RANGE 5 SECONDS] b WHERE h.pat = b.pat;
CREATE QUERY over AS SELECT pat FROM both;
CREATE QUERY either AS SELECT pat FROM hr UNION ALL SELECT pat FROM bp;
CREATE QUERY beside AS SELECT h.pat FROM hr [RANGE 5 SECONDS] h, weak [RANGE 5 SECONDS] w WHERE h.pat = w.pat;
START QUERY both; START QUERY mean; START QUERY over; START QUERY either; START QUERY beside;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM both, mean, over, either, beside TO nurse;
"""
NAMES = ["both", "mean", "over", "either", "beside", "bp"]


@pytest.mark.parametrize(
    ("script", "suspended"),
    [
        ("", set()),
        ("REVOKE READ TUPLE ON STREAM bp FROM nurse", {"both", "mean", "over", "bp"}),
        (
            "REVOKE READ TUPLE ON STREAM bp FROM nurse; GRANT AGGREGATE READ ON STREAM bp TO nurse",
            {"both", "over", "bp"},
        ),
        ("REVOKE READ TUPLE ON STREAM weak FROM nurse", set()),
        ("REVOKE READ TUPLE ON STREAM both FROM nurse", {"both", "over"}),
        ("REVOKE READ TUPLE ON STREAM hr FROM nurse", {"both", "mean", "over", "beside"}),
    ],
    ids=["nothing lost", "one side of a join", "all but aggregates", "a weak stream", "an output between", "the other"],
)
def test_a_subscription_without_a_possible_result_is_suspended(
    sqlite_system: System, script: str, suspended: set[str]
) -> None:
    sqlite_system.run(SETUP)
    ann = sqlite_system.headgate.login("ann", SECRET)
    for name in NAMES:
        sqlite_system.run(f"SUBSCRIBE TO root.{name}", ann)
    if script:
        sqlite_system.run(script)
    standings = sqlite_system.headgate.snapshot().standings
    assert {x.outgoing.stream.removeprefix("root.") for x in standings if x.word == "suspended"} == suspended
    shown = {row[0] for row in sqlite_system.rows("SHOW SUBSCRIPTIONS", ann) if row[-1] == "suspended"}
    assert shown == suspended
    sqlite_system.run("; ".join(f"UNSUBSCRIBE FROM root.{name}" for name in NAMES), ann)
    told = [sqlite_system.run(f"SUBSCRIBE TO root.{name}", ann)[-1].text for name in NAMES]
    assert {name for name, text in zip(NAMES, told, strict=True) if "; it is suspended: " in text} == suspended


def test_why_says_what_a_result_is_computed_from(sqlite_system: System) -> None:
    sqlite_system.run(SETUP)
    sqlite_system.run("REVOKE VIEW OBJECT, READ TUPLE ON STREAM bp FROM nurse")
    ann = sqlite_system.headgate.login("ann", SECRET)

    def why(token: str, stream: str) -> list[str]:
        target = Target("STREAM", stream, "root", Position(0, 1, 1))
        found = sqlite_system.headgate.why(token, "ann", Permission.READ_TUPLE, target)
        assert found.decision
        return [line for line in found.details if "computed from" in line]

    assert why(sqlite_system.root, "both") == ["what it is computed from: DENIED (stream root.bp)"]
    assert why(ann, "both") == ["what it is computed from: DENIED (streams that you may not see)"]
    assert why(ann, "beside") == why(ann, "hr") == []


def test_who_subscribes_to_a_query_that_does_not_run_is_told(sqlite_system: System) -> None:
    sqlite_system.run(SETUP)
    ann = sqlite_system.headgate.login("ann", SECRET)
    sqlite_system.run("STOP QUERY both")
    told = "subscribed to stream root.both; its query is stopped: START QUERY root.both"
    assert sqlite_system.run("SUBSCRIBE TO both")[-1].text == told
    told = "subscribed to stream root.both; its query does not run"
    assert sqlite_system.run("SUBSCRIBE TO root.both", ann)[-1].text == told
    sqlite_system.run("DROP STREAM hr")
    assert sqlite_system.run("SUBSCRIBE TO mean")[-1].text == "subscribed to stream root.mean; its query does not run"
