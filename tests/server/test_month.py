"""A month of a server, compressed: what it keeps, holds open and takes for a batch does not grow.

In a month somebody publishes a small request each second. The long version does that with the real process and Spark
for HEADGATE_MONTH_DAYS (2), each day 86,400 requests, one after the other by some senders at once, as fast as they are
answered. What is compressed, then, is time, and nothing is left out: each request is one tuple, has a number, and is
acknowledged. But requests that come together share a file, and files that come together share a batch: there are fewer
of both than in a month, and the test prints how many. What is bounded by bytes or by batches (the delivery log, Spark's
log of files, its offsets) reaches its bound within the first hours; `log_bytes` is smaller for that.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
from conftest import PASSWORD

from headgate.client import connect
from headgate.client.trust import given
from headgate.protocol import JSON_LINES
from server.serving import served
from server.test_process import SCRIPT, headgate, received, serving
from server.test_results import stream_of

LOG_BYTES = 1 << 20
DAY = 86_400
"""Requests of a day."""
SENDERS = 8
SAMPLES = 96
NAMES = {"home": 1.15, "server": 1.05, "java": 1.10, "handles": 1.10, "lag": 1.5}
"""What must stay flat, and by how much it may differ."""


def size_of(folder: Path) -> int:
    found = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                found += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
    return found


def test_what_a_server_keeps_is_bounded_from_the_first_day_on(tmp_path: Path) -> None:
    with served(tmp_path, limits={"log_bytes": 100_000}) as server:
        stream = stream_of(server, "month")
        seen: list[int] = []
        with server.client("sam") as client:
            for second in range(40):
                row = json.dumps({"n": second, "text": "x" * 10_000}) + "\n"
                headers = {"Content-Type": JSON_LINES}
                client.post(f"/v1/streams/{stream}/tuples", content=row, headers=headers).raise_for_status()
                seen.append(server.parts.logs.size)
        assert max(seen[20:]) <= 150_000
        assert size_of(tmp_path / "ingress") < 1 << 20
        with server.client("ned") as client:
            text = client.get(f"/v1/streams/{stream}/results?follow=false").text
        assert "event: notice" in text and "lost" in text  # whoever did not read in time is told


@dataclass(frozen=True)
class Sample:
    published: int
    home: int
    server: int
    java: int
    handles: int
    lag: float


def processes(root: int) -> list[int]:
    """A process and all that it started."""
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        for task in Path(f"/proc/{process}/task").glob("*"):
            try:
                waiting += map(int, (task / "children").read_text().split())
            except OSError:
                continue
    return found


def sample(home: Path, root: int, client: httpx.Client, token: str) -> Sample:
    metrics = client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).text.splitlines()
    lag = max((float(x.rpartition(" ")[2]) for x in metrics if x.startswith("headgate_lag_seconds{")), default=0.0)
    published = next(float(x.split()[1]) for x in metrics if x.startswith("headgate_published_total"))
    java = handles = 0
    for process in processes(root):
        try:
            if Path(f"/proc/{process}/exe").resolve().name == "java":
                java = max(java, resident(process))  # not those that begin to become something else
            handles += len(os.listdir(f"/proc/{process}/fd"))
        except OSError:
            continue
    return Sample(int(published), size_of(home), resident(root), java, handles, lag)


def resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class Sender(threading.Thread):
    """Publishes single tuples, one after the other, until `stop`."""

    def __init__(self, address: str, certificate: Path, number: int, stop: threading.Event) -> None:
        super().__init__()
        self._address, self._certificate, self._number, self._ending = address, certificate, number, stop
        self.fault: BaseException | None = None
        self.published = 0

    def run(self) -> None:
        try:
            with connect(self._address, "joe", PASSWORD, certificate=self._certificate) as joe:
                publisher = joe.publisher("joe.pulse", producer=f"p{self._number}")
                while not self._ending.is_set():
                    publisher.send([{"pat": self._number, "rate": 101 + self.published % 50}])
                    self.published += 1
        except BaseException as error:
            self.fault = error


@pytest.mark.long
def test_a_month_of_a_real_server_stays_flat(tmp_path: Path) -> None:
    total = round(DAY * float(os.environ.get("HEADGATE_MONTH_DAYS", "2")))
    home = tmp_path / "home"
    headgate(home, "init", "--admin", "joe")
    (home / "server.toml").write_text(f"log_bytes = {LOG_BYTES}\n")
    (home / "server.toml").chmod(0o600)
    certificate = home / "tls" / "authority.pem"
    begin = time.monotonic()
    with serving(home, SPARK_DRIVER_MEMORY="512m") as address:  # Java fills what it may have before it cleans up
        words = {x: Path(f"/proc/{x}/cmdline").read_bytes().split(b"\0") for x in processes(os.getpid())}
        (root,) = [process for process, said in words.items() if b"serve" in said]
        with connect(address, "joe", PASSWORD, certificate=certificate) as joe:
            joe.execute(SCRIPT)
            joe.publish("joe.pulse", [{"pat": 1, "rate": 130}])
            with connect(address, "ned", PASSWORD, certificate=certificate) as ned:
                assert received(ned, 1)[0].values == {"pat": 1, "rate": 130}  # the engine works
        stop = threading.Event()
        senders = [Sender(address, certificate, number, stop) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        found: list[Sample] = []
        token = bytes.fromhex((home / "metrics.token").read_text()).hex()
        with httpx.Client(base_url=address, verify=given(certificate), timeout=60) as client:
            while sum(x.published for x in senders) < total and not any(x.fault for x in senders):
                if sum(x.published for x in senders) >= total * len(found) / SAMPLES:
                    found.append(sample(home, root, client, token))
                stop.wait(1)
            stop.set()
            for sender in senders:
                sender.join(60)
            found.append(sample(home, root, client, token))
            metrics = client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).text.splitlines()
        flat = report(found, total)
    (batches,) = [float(x.split()[1]) for x in metrics if x.startswith("headgate_batches_total")]
    with closing(sqlite3.connect(home / "ingress" / "ingress.db")) as store:
        (files,) = store.execute("SELECT number FROM latest").fetchone()
    assert [x.fault for x in senders if x.fault] == []
    seconds = time.monotonic() - begin
    print(f"\n{sum(x.published for x in senders):,} requests, {files:,} files, {batches:,.0f} batches")
    print(f"in {seconds:,.0f} s: {total / seconds:.0f} times as fast as one request a second")
    assert flat == dict.fromkeys(NAMES, True)


def report(found: list[Sample], total: int) -> dict[str, bool]:
    """By half days; of what follows the first day's worth, the second half is compared with the first."""
    halves = max(1, round(2 * total / DAY))
    for part in range(halves):
        some = found[part * len(found) // halves : (part + 1) * len(found) // halves]
        print(f"day {part / 2 + 0.5:.1f}: " + ", ".join(f"{x} {shown(x, some)}" for x in NAMES))
    later = found[len(found) * DAY // total :] if total > DAY else found[len(found) // 3 :]
    half, flat = len(later) // 2, dict[str, bool]()
    for name, most in NAMES.items():
        before, after = (median(name, some) for some in (later[:half], later[half:]))
        flat[name] = after <= most * before + (0.05 if name == "lag" else 0)
        print(f"{name}: {before:,.6g}, then {after:,.6g}")
    return flat


def median(name: str, some: list[Sample]) -> float:
    return float(np.median([getattr(x, name) for x in some]))


def shown(name: str, some: list[Sample]) -> str:
    value = median(name, some)
    return f"{value / (1 << 20):,.1f} MB" if name in ("home", "server", "java") else f"{value:,.3g}"
