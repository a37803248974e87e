"""A subscription is suspended while its rights permit no result at all (SPEC.md, 3.6): a reader who gets nothing must
not take that for a quiet stream."""

from __future__ import annotations

import pytest
from conftest import System

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
