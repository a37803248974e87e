"""Results over a connection: in order, resumed without gap or repeat, under the rights of the moment they are sent."""

from __future__ import annotations

import fcntl
import json
import select
import socket
import ssl
import struct
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from conftest import ADMIN, PASSWORD

from headgate.egress.delivery_log import DeliveryLog, Entry
from headgate.protocol import ARROW_STREAM, JSON_LINES
from headgate.recovery.pipeline import Pipeline
from headgate.server.connections import Link
from server.serving import Server, events, served

TEXT = "x" * 2000
ROWS = 2000


def stream_of(server: Server, name: str) -> str:
    """A new stream that nurses read, and sam publishes to."""
    server.run(
        f"""CREATE STREAM {name} (n INT, text STRING) LABEL 'nurse' SOURCE publish;
        GRANT VIEW OBJECT, PUBLISH ON STREAM {name} TO sender;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM {name} TO nurse"""
    )
    server.run(f"SUBSCRIBE TO root.{name}", "ned")
    return f"root.{name}"


def publish(server: Server, stream: str, numbers: range, text: str = "") -> None:
    answer = server.publish(*({"n": n, "text": text} for n in numbers), stream=stream)
    assert answer.status_code == 200, answer.text


def processed(server: Server, stream: str, total: int) -> None:
    """Waits until the engine has taken so many tuples of a stream."""
    until = time.monotonic() + 60
    while server.engine.counts.tuples[stream] < total:
        assert time.monotonic() < until
        time.sleep(0.005)


@contextmanager
def opened(server: Server, stream: str, user: str = "ned", **more: Any) -> Iterator[httpx.Response]:
    with server.client(user) as client, client.stream("GET", f"/v1/streams/{stream}/results", **more) as answer:
        assert answer.status_code == 200, answer.read()
        yield answer


def received(answer: httpx.Response, count: int) -> list[dict[str, Any]]:
    found = []
    for event in events(answer.iter_lines()):
        found.append(event)
        if len(found) == count:
            break
    return found


def test_a_reader_goes_on_anywhere_without_gap_or_repeat(server: Server) -> None:
    stream = stream_of(server, "resumed")
    for begin in range(0, 1000, 100):
        publish(server, stream, range(begin, begin + 100))
    with opened(server, stream) as answer:
        whole = received(answer, 1000)
    assert [x["data"]["values"]["n"] for x in whole] == list(range(1000))
    for place in (0, 1, 99, 100, 255, 256, 998):
        with opened(server, stream, headers={"Last-Event-ID": whole[place]["id"]}) as answer:
            assert received(answer, 999 - place) == whole[place + 1 :]


def test_positions_say_nothing(server: Server) -> None:
    stream = stream_of(server, "opaque")
    publish(server, stream, range(10))
    with opened(server, stream) as answer:
        found = [x["id"] for x in received(answer, 10)]
    assert len(set(found)) == 10 and {len(x) for x in found} == {43}


def test_all_forms_have_the_same_results(server: Server) -> None:
    stream = stream_of(server, "formed")
    publish(server, stream, range(300), "hello")
    with opened(server, stream) as answer:
        sent = received(answer, 300)
    with opened(server, stream, headers={"Accept": JSON_LINES}, params={"follow": "false"}) as answer:
        lines = [json.loads(line) for line in answer.read().splitlines()]
    with opened(server, stream, headers={"Accept": ARROW_STREAM}, params={"follow": "false"}) as answer:
        table = pa.ipc.open_stream(answer.read()).read_all()
    assert lines == [{"position": x["id"], **x["data"]} for x in sent]
    assert table.column("n").to_pylist() == [x["data"]["values"]["n"] for x in sent]
    assert table.column("headgate_position").to_pylist() == [x["id"] for x in sent]
    assert table.column("headgate_label").to_pylist() == [x["data"]["label"] for x in sent]
    assert table.schema.types == [pa.string(), pa.timestamp("ms", "UTC"), pa.string(), pa.int32(), pa.string()]


def test_live_results_come_to_an_open_connection(server: Server) -> None:
    stream = stream_of(server, "live")
    with opened(server, stream, params={"begin": "now"}) as answer:
        lines = events(answer.iter_lines())
        for n in range(3):
            publish(server, stream, range(n, n + 1))
            assert next(lines)["data"]["values"]["n"] == n


@pytest.mark.parametrize("how", ["log out", "END SESSIONS", "LOCK", "UNSUBSCRIBE"])
def test_a_stream_ends_when_session_or_subscription_end(server: Server, how: str) -> None:
    stream = stream_of(server, f"ending_{how.replace(' ', '').lower()}")
    name = f"eve_{how.replace(' ', '').lower()}"
    server.run(f"CREATE USER {name} PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER {name}")
    server.run(f"SUBSCRIBE TO {stream}", name)
    with opened(server, stream, name) as answer:
        lines = events(answer.iter_lines())
        publish(server, stream, range(1))
        assert next(lines)["event"] == "result"
        if how == "log out":
            with server.client(name) as client:
                assert client.post("/v1/logout").status_code == 200
        elif how == "UNSUBSCRIBE":
            server.run(f"UNSUBSCRIBE FROM {stream}", name)
        else:
            server.run(f"ALTER USER {name} {how}")
        publish(server, stream, range(1, 2))
        rest = list(lines)
    assert [x["data"].get("values") for x in rest] == [None] * len(rest)
    assert "closed" in rest[-1]["data"]


def test_a_session_with_fewer_roles_does_not_read_what_the_others_subscribed_to(server: Server) -> None:
    stream = stream_of(server, "roles")
    publish(server, stream, range(1))
    with server.client() as client:
        body = {"user": "ned", "password": PASSWORD, "roles": []}
        token = client.post("/v1/login", json=body).json()["token"]
        answer = client.get(f"/v1/streams/{stream}/results", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 404  # without the role the stream does not exist


def test_what_was_lost_is_said(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(server, "lost")
    log = server.parts.logs.of("U")
    assert isinstance(log, DeliveryLog)
    monkeypatch.setattr(log, "_most", 100_000)
    monkeypatch.setattr(log, "_segment_size", 50_000)
    with opened(server, stream, params={"begin": "now"}) as answer:
        lines = events(answer.iter_lines())
        for begin in range(0, 200, 20):
            publish(server, stream, range(begin, begin + 20), TEXT)
        while next(lines)["data"].get("values", {}).get("n") != 199:  # what was published is delivered some time later
            continue
    with opened(server, stream) as answer:
        found = []
        for event in events(answer.iter_lines()):
            found.append(event)
            if event["data"].get("values", {}).get("n") == 199:
                break
    assert found[0]["event"] == "notice" and "lost" in found[0]["data"]
    expected, told = 0, False  # the log may go on removing while it is read: every gap has its notice
    for event in found:
        if event["event"] == "notice":
            told = True
            continue
        number = event["data"]["values"]["n"]
        assert number > expected if told else number == expected
        expected, told = number + 1, False
    assert expected == 200
    with opened(server, stream, headers={"Last-Event-ID": found[-1]["id"]}, params={"follow": "false"}) as answer:
        assert received(answer, 1) == []  # nothing was lost for whoever had read all


def test_what_is_lost_while_a_connection_is_open_is_said(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(server, "behind")
    log = server.parts.logs.of("U")
    assert isinstance(log, DeliveryLog)
    monkeypatch.setattr(log, "_most", 100_000)
    monkeypatch.setattr(log, "_segment_size", 50_000)
    real, all_are_there = log.read, threading.Event()

    def late(*given: Any) -> list[Entry]:
        assert all_are_there.wait(60)
        return real(*given)

    monkeypatch.setattr(log, "read", late)
    with opened(server, stream) as answer:  # when it is opened, nothing is lost
        for begin in range(0, 200, 20):
            publish(server, stream, range(begin, begin + 20), TEXT)
        while not log._trimmed:
            time.sleep(0.02)
        all_are_there.set()
        first, second = received(answer, 2)
    assert "lost" in first["data"] and second["data"]["values"]["n"] > 0


class Lazy:
    """A reader that asks for results and then reads nothing; it knows how many bytes have come to its machine."""

    def __init__(self, server: Server, stream: str, user: str = "ned", query: str = "") -> None:
        port = int(server.address.rpartition(":")[2])
        self._plain = socket.socket()
        self._plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._plain.settimeout(20)
        self._plain.connect(("127.0.0.1", port))
        context = ssl.create_default_context(cafile=server.home / "tls" / "authority.pem")
        self.socket = context.wrap_socket(self._plain, server_hostname="127.0.0.1")
        asked = f"GET /v1/streams/{stream}/results{query} HTTP/1.1\r\nHost: x\r\n"
        self.socket.sendall(f"{asked}Authorization: Bearer {server.token(user)}\r\n\r\n".encode())

    def arrived(self) -> int:
        """Bytes that are in the kernel of the reader's machine."""
        return int(struct.unpack("i", fcntl.ioctl(self.socket.fileno(), termios.FIONREAD, b"\0\0\0\0"))[0])

    def wait_until_full(self) -> None:
        """Until bytes wait at the server that this machine does not take, for some looks in a row."""
        same, last = 0, (0, 0)
        while same < 5:
            select.select([], [], [], 0.02)
            now = self.arrived(), self._waiting_at_the_server()
            same, last = (same + 1, now) if now == last and all(now) else (0, now)

    def _waiting_at_the_server(self) -> int:
        """The send queue of the server's end of this connection, as the kernel tells it."""
        mine, its = (f":{x[1]:04X}" for x in (self.socket.getsockname(), self.socket.getpeername()))
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            if local.endswith(its) and remote.endswith(mine):
                return int(queues.partition(":")[0], 16)
        return 0

    def raw_rest(self, most: int) -> int:
        """All bytes that can still be read, as they come over the network, or more than `most`."""
        raw = socket.socket(fileno=self.socket.detach())
        raw.settimeout(1)
        total = 0
        try:
            while (got := raw.recv(65536)) and total < most:
                total += len(got)
        except OSError:
            pass
        raw.close()
        return total

    def close(self) -> None:
        self.socket.close()


def revoked_with_full_buffers(server: Server, name: str) -> None:
    stream = stream_of(server, name)
    publish(server, stream, range(ROWS), TEXT)
    lazy = Lazy(server, stream)
    lazy.wait_until_full()
    server.run(f"REVOKE READ TUPLE ON STREAM {name} FROM nurse")
    arrived = lazy.arrived()
    assert lazy.raw_rest(2 * arrived) <= arrived, "bytes left the server after REVOKE had returned"


def test_after_a_revocation_nothing_reaches_the_machine_of_a_reader_with_full_buffers(server: Server) -> None:
    for trial in range(3):
        revoked_with_full_buffers(server, f"revoked_{trial}")


def test_what_an_answer_that_has_ended_left_in_buffers_is_taken_back_too(server: Server) -> None:
    """The attack: ask for what is there now, and do not read it; the answer is complete, and waits in buffers."""
    stream = stream_of(server, "complete")
    publish(server, stream, range(30), TEXT)
    with opened(server, stream) as answer:
        received(answer, 30)
    lazy = Lazy(server, stream, query="?follow=false")
    lazy.wait_until_full()
    server.run("REVOKE READ TUPLE ON STREAM complete FROM nurse")
    arrived = lazy.arrived()
    assert lazy.raw_rest(2 * arrived) <= arrived, "bytes left the server after REVOKE had returned"


def test_without_the_reset_bytes_would_still_arrive(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack succeeds where nothing takes back what was sent."""

    async def nothing(_: object) -> None: ...

    monkeypatch.setattr("headgate.server.dispatch.Dispatcher.settle", nothing)
    with pytest.raises(AssertionError, match="after REVOKE"):
        revoked_with_full_buffers(server, "unguarded")


@pytest.mark.long
def test_after_200_revocations_nothing_reaches_the_machine_of_a_reader(server: Server) -> None:
    for trial in range(200):
        revoked_with_full_buffers(server, f"long_revoked_{trial}")


def test_a_reader_that_never_reads_harms_nobody(server: Server) -> None:
    stream = stream_of(server, "lazy")
    server.run(f"SUBSCRIBE TO {stream}", "dora")
    lazy = [Lazy(server, stream) for _ in range(5)]
    publish(server, stream, range(ROWS), TEXT)
    with opened(server, stream, "dora") as answer:
        assert len(received(answer, ROWS)) == ROWS
    for x in lazy:
        x.close()


def test_a_suspended_reader_is_told_and_goes_on_when_it_has_the_right_again(server: Server) -> None:
    stream = stream_of(server, "suspended")
    publish(server, stream, range(1))
    with opened(server, stream) as answer:
        lines = events(answer.iter_lines())
        assert next(lines)["data"]["values"]["n"] == 0
        server.run("REVOKE READ TUPLE ON STREAM suspended FROM nurse")
        assert "suspended" in next(lines)["data"]
        publish(server, stream, range(1, 2))
        processed(server, stream, 2)
        server.run("GRANT READ TUPLE ON STREAM suspended TO nurse")
        assert next(lines)["data"] == {"continues": "results come again"}
        publish(server, stream, range(2, 3))
        assert next(lines)["data"].get("values", {}).get("n") == 2


def test_a_reader_that_has_everything_keeps_its_connection(server: Server) -> None:
    """Its machine acknowledges what it has some 40 ms later; the revocation comes before that."""
    resets = server.resets()
    for trial in range(10):
        stream = stream_of(server, f"kept_{trial}")
        with opened(server, stream, params={"begin": "now"}) as answer, server.client(ADMIN) as admin:
            admin.get("/healthz")  # its connection stands
            lines = events(answer.iter_lines())
            publish(server, stream, range(1))
            assert next(lines)["data"]["values"]["n"] == 0
            script = f"REVOKE READ TUPLE ON STREAM kept_{trial} FROM nurse"
            admin.post("/v1/statements", json={"script": script}).raise_for_status()
            assert "suspended" in next(lines)["data"]
    assert server.resets() == resets


def test_a_machine_that_acknowledges_nothing_is_not_waited_for_long(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_of(server, "silent")
    monkeypatch.setattr(Link, "unacknowledged", lambda _: 1 << 20)
    monkeypatch.setattr(Link, "unsent", lambda _: 0)
    resets = server.resets()
    with opened(server, stream, params={"begin": "now"}) as answer:
        lines = events(answer.iter_lines())
        publish(server, stream, range(1))
        assert next(lines)["data"]["values"]["n"] == 0
        begin = time.monotonic()
        server.run("REVOKE READ TUPLE ON STREAM silent FROM nurse")
        assert time.monotonic() - begin < 10
        with pytest.raises(httpx.TransportError):
            assert all("values" not in x["data"] for x in lines)
    assert server.resets() == resets + 1
    assert caplog.messages == []


def test_readers_with_the_same_rights_share_a_view_and_are_not_told_what_came_before_them(tmp_path: Path) -> None:
    with served(tmp_path, limits={"architecture": "trusted"}) as server:
        stream, pipeline = stream_of(server, "shared"), server.engine.pipeline
        assert isinstance(pipeline, Pipeline)
        server.run(f"CREATE USER nan PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER nan")
        publish(server, stream, range(3))
        with opened(server, stream) as answer:
            received(answer, 3)
        server.run(f"SUBSCRIBE TO {stream}", "nan")
        publish(server, stream, range(3, 5))
        with opened(server, stream, "nan") as answer:
            assert [x["data"]["values"]["n"] for x in received(answer, 2)] == [3, 4]
        names = {x.outgoing.user: (x.name, x.query) for x in server.headgate.snapshot().standings}
        (view,) = pipeline.profile(names["nan"][1])
        assert set(view.subscribers) == {names["ned"][0], names["nan"][0]}
        for user, given in (("ned", 5), ("nan", 2)):
            (own,) = pipeline.profile(names[user][1], names[user][0])
            assert {x.given for x in own.steps.values()} == {given}
