"""Many write to one store at once, in threads and in processes: nothing is lost, and the audit trail stays whole."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conftest import ADMIN, System

from access.stores import in_memory, in_store

WRITER = Path(__file__).with_name("crash_writer.py")


def _start(url: str, prefix: str, first: int, last: int, threads: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), url, prefix, str(first), str(last), str(threads)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_writers_in_threads_and_processes_lose_nothing(system: System) -> None:
    system.run("CREATE ROLE worker")
    writers = {prefix: _start(system.url, prefix, 0, 25, 4) for prefix in ("a", "b")}

    def own(number: int) -> None:
        name = f"own_{number}"
        system.run(f"CREATE USER {name}; GRANT ROLE worker TO USER {name}; CREATE STREAM {name} (n INT)")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(own, range(25)))
    for prefix, process in writers.items():
        out, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert sorted(map(int, out.split())) == list(range(25)), prefix
    expected = {f"{prefix}_{number}" for prefix in ("own", "a", "b") for number in range(25)}
    system.headgate.principal(system.root)
    rows = in_memory(system.headgate)
    assert rows == in_store(system)
    assert {row.name for row in rows["users"].values()} == expected | {ADMIN, ""}
    assert {row.user for row in rows["memberships"].values() if row.role == "worker"} == expected
    assert {row.name for row in rows["objects"].values() if row.kind == "STREAM"} == expected
    assert system.headgate.verify_audit() == []
    assert system.sql("SELECT count(*) FROM audit WHERE action = 'CREATE USER'") == [(len(expected),)]


def test_the_trail_is_intact_whenever_it_is_looked_at(system: System) -> None:
    """Verifying while others write must not take their records for damage."""
    other, stop = system.another(), threading.Event()
    found: list[str] = []

    def watch() -> None:
        while not stop.is_set():
            found.extend(other.verify_audit())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(100):
            system.run(f"CREATE ROLE r{number}")
    finally:
        stop.set()
        watcher.join()
    assert found == []
