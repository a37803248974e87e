"""What a reader could learn from an exit without reading a result: each test is an attack, and fails."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import PASSWORD

from headgate.protocol import ARROW_STREAM
from server.serving import Server, served
from server.test_results import opened, received

HIDDEN = 12


def heartbeats(server: Server, seconds: float) -> int:
    """Signs of life that a nurse gets, who sees no tuple."""
    found, until = 0, time.monotonic() + seconds
    with opened(server, "root.pulse") as answer:
        for line in answer.iter_lines():
            found += line == ":"
            if time.monotonic() > until:
                return found
    return found


def test_signs_of_life_do_not_tell_of_results_for_others(tmp_path: Path) -> None:
    """The attack: if results for others put off the next sign of life, whoever gets none knows of them."""
    with served(tmp_path, limits={"heartbeat_seconds": 1}) as server:
        for user in ("ned", "dora"):
            server.run("SUBSCRIBE TO root.pulse", user)
        quiet = heartbeats(server, 3)
        stop = threading.Event()

        def publish() -> None:
            while not stop.wait(0.2):
                server.publish({"pat": 1, "rate": 1, "policy": "doctor"})

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            with opened(server, "root.pulse", "dora") as answer:
                received(answer, HIDDEN)  # they come, every 0.2 seconds
            beside_hidden = heartbeats(server, 3)
        finally:
            stop.set()
            thread.join()
        assert abs(quiet - beside_hidden) <= 1


COLUMNS = {"i": "INT", "b": "BIGINT", "d": "DOUBLE", "t": "STRING", "at": "TIMESTAMP", "x": "BINARY"}
VALUES = {
    "i": 0x5EC2E700,
    "b": 0x5EC2E700_5EC2E700,
    "d": 6.283185307179586e123,
    "t": "hidden name",
    "at": "2001-02-03T04:05:06.789Z",
    "x": "aGlkZGVuIGJ5dGVz",
}
TRACES = {
    "i": (0x5EC2E700).to_bytes(4, "little"),
    "b": (0x5EC2E700_5EC2E700).to_bytes(8, "little"),
    "d": struct.pack("<d", 6.283185307179586e123),
    "t": b"hidden name",
    "at": (981173106789000).to_bytes(8, "little"),
    "x": b"hidden bytes",
}


def arrow_bytes(server: Server, user: str, stream: str, rows: int) -> bytes:
    """All of an Arrow stream that has this many rows."""
    while True:
        with server.client(user) as client:
            answer = client.get(f"/v1/streams/{stream}/results?follow=false", headers={"Accept": ARROW_STREAM})
        if pa.ipc.open_stream(answer.content).read_all().num_rows >= rows:
            return answer.content


def leaks(server: Server, name: str) -> dict[str, set[str]]:
    """Columns that are in the bytes that a nurse and a doctor get, though each is NULL for the nurse."""
    columns = ", ".join(f"{column} {type_} LABEL 'doctor'" for column, type_ in COLUMNS.items())
    server.run(
        f"""CREATE STREAM {name} (pat INT, {columns}) LABEL 'nurse' SOURCE publish;
        CREATE QUERY {name}_pairs AS SELECT a.pat, {", ".join(f"b.{x}" for x in COLUMNS)}
          FROM {name} [ROWS 2] AS a, {name} [ROWS 2] AS b WHERE a.pat = b.pat;
        START QUERY {name}_pairs;
        GRANT VIEW OBJECT, PUBLISH ON STREAM {name} TO sender;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM {name}, {name}_pairs TO nurse"""
    )
    for user in ("ned", "dora"):
        server.run(f"SUBSCRIBE TO root.{name}; SUBSCRIBE TO root.{name}_pairs", user)
    for n in range(3):
        answer = server.publish({"pat": n, **VALUES}, stream=f"root.{name}")
        assert answer.status_code == 200, answer.text
    found = {}
    for user in ("ned", "dora"):
        content = b"".join(arrow_bytes(server, user, f"root.{name}{x}", 2) for x in ("", "_pairs"))
        found[user] = {column for column, trace in TRACES.items() if trace in content}
    return found


def test_the_bytes_of_an_arrow_stream_do_not_have_what_is_hidden(server: Server) -> None:
    """The attack: read the buffers of a column where it is NULL."""
    assert leaks(server, "beneath") == {"ned": set(), "dora": set(TRACES)}


def test_without_clearing_hidden_values_lie_beneath_null(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.server.rendering.cleared", lambda column: column)
    assert leaks(server, "uncleared")["ned"]


def test_metrics_do_not_tell_an_administrator_of_what_is_above_its_level(tmp_path: Path) -> None:
    """The attack: an administrator at a low level reads names and counts of streams of a higher one."""
    with served(tmp_path, "CREATE COMPARTMENT nato; SET SYSTEM max_sessions = 20") as server:
        script = f"""CREATE LEVEL S ABOVE U; CREATE USER boss PASSWORD '{PASSWORD}' CLEARANCE S{{nato}};
        GRANT ROLE ADMIN TO USER boss"""
        with server.client("root") as root:
            assert root.get("/metrics").status_code == 403
            server.run(script)
            assert root.get("/metrics").json()["error"]["message"].startswith("cannot show metrics: they tell of all")
        for level in ("U", "S", "U{nato}", "S{nato}"):  # CHANGE SYSTEM is a right at level U, which is the lowest
            with server.client("boss", level=level) as boss:
                assert boss.get("/metrics").status_code == 403, level
        with server.client(headers={"Authorization": "Bearer operator"}) as operator:
            assert operator.get("/metrics").status_code == 200


def test_metrics_are_for_an_administrator_where_there_are_no_levels(tmp_path: Path) -> None:
    with served(tmp_path, "CREATE ROLE nurse") as server, server.client("root") as root:
        assert "headgate_ready" in root.get("/metrics").text
