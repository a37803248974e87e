"""A server whose levels are apart: what each reader receives over HTTPS, and what happens when rights change."""

from __future__ import annotations

import json
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


def read(server: Server, level: str, most: int) -> list[int]:
    """The first results of ned at a level."""
    found: list[int] = []
    with server.client("ned", level=level) as client, client.stream("GET", "/v1/streams/root.pulse/results") as answer:
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
