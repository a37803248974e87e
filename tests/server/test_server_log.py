"""What a server writes for its operator, who may not read tuples: the log at its most talkative, beside sources and
requests that are wrong in every way, and each wrong thing holds a value that would be recognised."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, cast

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import PASSWORD

from headgate.client import Client, connect
from headgate.client.trust import given
from headgate.client.wire import Malformed
from headgate.errors import HeadgateError
from headgate.ingress.folder_log import folder_source
from headgate.server.engine import SparkEngine
from server.serving import Server
from server.test_process import HEADGATE, environment, headgate
from server.test_results import stream_of
from server.test_sockets import opened, until_closed

MARK = "CANARY"
FILES: dict[str, bytes] = {
    "json/a.json": b'{"a": 1, "w": "good"}\n{"a": "CANARY-1", "w": "x"}\nCANARY-2 is no JSON\n{"a": 1, "CANARY-3": ',
    "csv/a.csv": b'a,w,p\n1,good,nurse\nCANARY-4,x,nurse\n2,"CANARY-5\n3,x,"CANARY-6 &&& ("\n',
    "parquet/a.parquet": b"PAR1 CANARY-7 is no Parquet PAR1",
    "orc/a.orc": b"ORC CANARY-8 is no ORC",
    "gz/a.json.gz": b"CANARY-9 is not packed",
}
SCRIPT = f"""CREATE ROLE nurse; CREATE USER ned PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER ned, joe;
CREATE STREAM json (a INT, w STRING) SOURCE json (path = '{{0}}/json');
CREATE STREAM csv (a INT, w STRING, p STRING) ROLES FROM p SOURCE csv (path = '{{0}}/csv', header = 'true');
CREATE STREAM parquet (a INT, w STRING) SOURCE parquet (path = '{{0}}/parquet');
CREATE STREAM other (a INT, w STRING) SOURCE parquet (path = '{{0}}/other');
CREATE STREAM orc (a INT, w STRING) SOURCE orc (path = '{{0}}/orc');
CREATE STREAM gz (a INT, w STRING) SOURCE json (path = '{{0}}/gz');
CREATE STREAM sent (a INT, w STRING, p STRING) ROLES FROM p SOURCE publish;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM json, csv, parquet, other, orc, gz, sent TO nurse"""
STREAMS = ("json", "csv", "parquet", "other", "orc", "gz", "sent")


def wrong(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content)
    (folder / "other").mkdir()
    pq.write_table(pa.table({"a": ["CANARY-10"], "w": [[{"CANARY-11": 1}]]}), folder / "other" / "a.parquet")


def ask_wrongly(joe: Client) -> None:
    for rows in ([{"a": "CANARY-12"}], [{"a": 1, "w": "CANARY-13", "p": "CANARY-14 &&"}], [{"a": {"CANARY-15": 1}}]):
        with pytest.raises(Malformed):
            joe.publish("joe.sent", rows)
    for script in (
        "SELECT 'CANARY-16' FROM",
        "CREATE USER x PASSWORD 'CANARY-17' 'y'",
        "EXPLAIN SELECT CANARY FROM sent",
    ):
        with pytest.raises(HeadgateError):
            joe.execute(script)
    with pytest.raises(HeadgateError):
        joe.login("ned", "CANARY-18")


@pytest.mark.long
def test_the_log_of_a_server_holds_no_value_whatever_is_wrong(tmp_path: Path) -> None:
    home, data, told = tmp_path / "home", tmp_path / "data", tmp_path / "log"
    data.mkdir()
    wrong(data)
    headgate(home, "init", "--admin", "joe")
    command = [str(HEADGATE), "--home", str(home), "--log-level", "debug", "serve", "--port", "0"]
    with open(told, "wb") as log:
        process = subprocess.Popen(command, env=environment(), stderr=log, stdout=log)
    pause = threading.Event()
    try:
        while "serving at" not in told.read_text():
            pause.wait(0.1)
        address = next(x for x in told.read_text().splitlines() if x.startswith("serving at")).split()[2]
        certificate = home / "tls" / "authority.pem"
        with connect(address, "joe", PASSWORD, certificate=certificate) as joe:
            joe.execute(SCRIPT.format(data))
        with connect(address, "joe", PASSWORD, certificate=certificate) as joe:
            for stream in STREAMS:
                joe.execute(f"SUBSCRIBE TO joe.{stream}")
            token = bytes.fromhex((home / "metrics.token").read_text()).hex()
            with httpx.Client(base_url=address, verify=given(certificate)) as client:
                for _ in range(1200):
                    text = client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).text
                    if "headgate_sources_failed 0.0" not in text and "headgate_rejected_total{reason" in text:
                        break
                    pause.wait(0.1)
            assert MARK not in text
            with connect(address, "joe", PASSWORD, certificate=certificate) as again:
                ask_wrongly(again)
            joe.publish("joe.sent", [{"a": 1, "w": "CANARY-19", "p": "nurse"}])
            next(x for x in joe.subscribe("joe.sent") if x.values is not None)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
    text = told.read_text()
    assert "cannot be read" in text and "batch done" in text
    assert [line for line in text.splitlines() if MARK in line] == []


def test_a_fault_behind_a_websocket_is_logged_without_its_text(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The attack: an error whose text repeats a value passes the server, and the web server beneath logs it."""

    def fails(*_: object) -> bytes:
        raise ValueError(f"{MARK}-20")

    stream = stream_of(server, "faulty")
    monkeypatch.setattr("headgate.server.rendering.Lines.begin", fails)
    with caplog.at_level(logging.DEBUG), opened(server, stream, server.token("ned")) as socket:
        assert list(until_closed(socket)) == []
    told = caplog.text + "".join(capfd.readouterr())
    assert "a request failed" in told and MARK not in told


def test_the_operator_reads_why_the_engine_does_not_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = SparkEngine(cast(Any, Subscribed()), tmp_path, tuple, master="local[1]", ingress=folder_source(tmp_path))

    def run() -> None:
        engine._asked.set()
        raise HeadgateError("cannot start Spark: Py4JJavaError", hint="its own messages are in `spark.err`")

    engine._run = run  # type: ignore[method-assign]
    engine._work()
    (found,) = caplog.records
    assert (found.levelname, found.getMessage()) == ("ERROR", "the engine failed")
    assert found.__dict__["headgate_facts"] == {
        "reason": "cannot start Spark: Py4JJavaError (its own messages are in `spark.err`)",
        "again": "1 s",
        "error": "HeadgateError",
    }


class Subscribed:
    """A Headgate at which somebody has subscribed."""

    def has_subscriptions(self) -> bool:
        return True
