"""A server whose levels are apart: what each reader receives over HTTPS, and what happens when rights change."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PASSWORD
from server import serving
from server.serving import Server, events, served

WARD = f"""
CREATE LEVEL S ABOVE U; CREATE LEVEL TS ABOVE S;
CREATE ROLE nurse; CREATE ROLE sender;
CREATE USER ned PASSWORD '{PASSWORD}' CLEARANCE TS; GRANT ROLE nurse TO USER ned;
CREATE USER sam PASSWORD '{PASSWORD}' CLEARANCE TS; GRANT ROLE sender TO USER sam;
CREATE STREAM pulse (pat INT, rate INT, lev STRING) LEVEL FROM lev SOURCE publish;
GRANT VIEW OBJECT, PUBLISH ON STREAM pulse TO sender;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM pulse TO nurse;
"""


@pytest.fixture(params=["replicated", "kernelized"])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(serving, "ARCHITECTURE", request.param)
    with served(tmp_path, WARD) as found:
        yield found


def read(server: Server, level: str, most: int, stream: str = "root.pulse") -> list[int]:
    """The first results of ned at a level."""
    found: list[int] = []
    with server.client("ned", level=level) as client, client.stream("GET", f"/v1/streams/{stream}/results") as answer:
        assert answer.status_code == 200, answer.read()
        for event in events(answer.iter_lines()):
            if "values" in event["data"]:
                found.append(event["data"]["values"]["rate"])
            if len(found) == most:
                return found
    return found


def publish(server: Server, *rates: tuple[int, str]) -> None:
    """A row may have any level that its sender's session dominates, so a sender at U sends at U."""
    for rate, level in rates:
        with server.client("sam", level=level) as client:
            row = json.dumps({"pat": 1, "rate": rate, "lev": level})
            headers = {"Content-Type": "application/x-ndjson"}
            answer = client.post("/v1/streams/root.pulse/tuples", content=row + "\n", headers=headers)
            assert answer.status_code == 200, answer.text


def test_a_reader_receives_what_its_level_dominates(server: Server) -> None:
    for level in ("U", "S", "TS"):
        server.run("SUBSCRIBE TO root.pulse", "ned", level)
    with server.client("sam") as client:
        answer = client.post(
            "/v1/streams/root.pulse/tuples",
            content='{"pat": 1, "rate": 1, "lev": "U"}\n{"pat": 1, "rate": 4, "lev": "U"}\n',
            headers={"Content-Type": "application/x-ndjson"},
        )
        assert answer.status_code == 200, answer.text
    assert read(server, "U", 2) == read(server, "TS", 2) == [1, 4]


DUE = """
CREATE QUERY due DEADLINE 2 SECONDS QOS (SAMPLE 50 PERCENT) AS SELECT pat, rate FROM root.pulse; START QUERY due;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM due TO nurse; GRANT VIEW OBJECT ON QUERY due TO nurse
"""


def numbers(server: Server, user: str) -> list[list[str]]:
    """What SHOW DEADLINES says of levels: the level, and how many transactions were admitted, were not, were in time,
    and missed."""
    (found,) = server.run("SHOW DEADLINES", user)
    return [[row[4], *row[6:]] for row in found["rows"]]


def test_deadlines_are_governed_in_the_processor_of_each_level(server: Server) -> None:
    """Operators see the numbers of levels up to their own, in the metrics those of all; others see none."""
    server.run(DUE, "root")
    for level in ("U", "S"):
        server.run("SUBSCRIBE TO root.due", "ned", level)
    publish(server, (1, "U"), (2, "U"))
    assert read(server, "S", 2, "root.due") == read(server, "U", 2, "root.due") == [1, 2]
    for _ in range(200):  # they are told after the results
        if {x.timely for x in server.engine.counts.due[0]} == {2}:
            break
        time.sleep(0.05)
    assert {(x.level, x.admitted, x.timely) for x in server.engine.counts.due[0]} == {("U", 2, 2), ("S", 2, 2)}
    assert numbers(server, "root") == [["U", "2", "0", "2", "0"]]
    assert numbers(server, "ned") == [[""] * 5]
