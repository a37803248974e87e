"""A month of a server, compressed: what it keeps, holds open and takes for a batch does not grow.

Each request stands for a second. The long version runs the real process with Spark, as many requests as fit into
HEADGATE_MONTH_SECONDS (600).
"""

from __future__ import annotations

import json
import os
import threading
import time
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


@pytest.mark.long
def test_a_month_of_a_real_server_stays_flat(tmp_path: Path) -> None:
    seconds = float(os.environ.get("HEADGATE_MONTH_SECONDS", "600"))
    home = tmp_path / "home"
    headgate(home, "init", "--admin", "joe")
    (home / "server.toml").write_text(f"log_bytes = {LOG_BYTES}\n")
    (home / "server.toml").chmod(0o600)
    certificate = home / "tls" / "authority.pem"
    with serving(home, SPARK_DRIVER_MEMORY="512m") as address:  # Java fills what it may have before it cleans up
        words = {x: Path(f"/proc/{x}/cmdline").read_bytes().split(b"\0") for x in processes(os.getpid())}
        (root,) = [process for process, said in words.items() if b"serve" in said]
        with connect(address, "joe", PASSWORD, certificate=certificate) as joe:
            joe.execute(SCRIPT)
            joe.publish("joe.pulse", [{"pat": 1, "rate": 130}])
            with connect(address, "ned", PASSWORD, certificate=certificate) as ned:
                assert received(ned, 1)[0].values == {"pat": 1, "rate": 130}  # the engine works
        stop, failed = threading.Event(), list[BaseException]()

        def send(me: int) -> None:
            try:
                with connect(address, "joe", PASSWORD, certificate=certificate) as joe:
                    publisher = joe.publisher("joe.pulse", producer=f"p{me}")
                    n = 0
                    while not stop.is_set():
                        publisher.send([{"pat": me, "rate": 101 + n % 50}])
                        n += 1
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=send, args=(me,)) for me in range(2)]
        for thread in threads:
            thread.start()
        found: list[Sample] = []
        token = bytes.fromhex((home / "metrics.token").read_text()).hex()
        with httpx.Client(base_url=address, verify=given(certificate), timeout=60) as client:
            end = time.monotonic() + seconds
            while time.monotonic() < end and not failed:
                stop.wait(seconds / 60)
                found.append(sample(home, root, client, token))
        stop.set()
        for thread in threads:
            thread.join(60)
    print(*found, sep="\n")
    assert not failed, failed
    report(found)


def report(found: list[Sample]) -> None:
    """The last third beside the second: by then the limits of the logs were reached."""
    third = len(found) // 3
    second, last = found[third : 2 * third], found[2 * third :]
    for name, most in (("home", 1.15), ("server", 1.05), ("java", 1.10), ("handles", 1.10), ("lag", 1.5)):
        before, after = (float(np.median([getattr(x, name) for x in some])) for some in (second, last))
        print(f"{name}: {before:,.3f} then {after:,.3f}")
        assert after <= most * before + (0.05 if name == "lag" else 0), name
