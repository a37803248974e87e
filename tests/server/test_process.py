"""The real thing: `headgate serve` with Spark, in a process of its own, used by another user of the system."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from conftest import PASSWORD

from headgate.client import Client, Received, connect
from headgate.client.trust import given

HEADGATE = Path(sys.executable).with_name("headgate")
SCRIPT = f"""CREATE USER ned PASSWORD '{PASSWORD}'; CREATE ROLE nurse; GRANT ROLE nurse TO USER ned;
CREATE STREAM pulse (pat INT, rate INT) LABEL 'nurse' SOURCE publish;
CREATE QUERY fast AS SELECT pat, rate FROM pulse WHERE rate > 100; START QUERY fast;
GRANT VIEW OBJECT, READ TUPLE ON STREAM pulse TO nurse;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM fast TO nurse"""
OUTSIDER = """
import json, os, ssl, sys, urllib.request
home, url, certificate, password = sys.argv[1:]
opened = []
for folder, folders, files in os.walk(home):
    opened += [folder, *files]
for name in ("headgate.db", "audit.key", "tls/server.key", "ingress/ingress.db", "engine/delivery"):
    try:
        opened.append(open(os.path.join(home, name)).name)
    except OSError:
        pass
context = ssl.create_default_context(cafile=certificate)
def ask(path, body, token=""):
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request, context=context))
token = ask("/v1/login", {"user": "ned", "password": password})["token"]
(may,) = ask("/v1/statements", {"script": "SHOW STREAMS"}, token)
print(json.dumps({"uid": os.getuid(), "opened": opened, "may": may["rows"]}))
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    return kept | {"HEADGATE_PASSWORD": PASSWORD} | more


def headgate(home: Path, *words: str) -> None:
    subprocess.run([HEADGATE, "--home", home, *words], env=environment(), check=True, capture_output=True)


@contextmanager
def serving(home: Path, **more: str) -> Iterator[str]:
    """The address of a server that is ready; it is asked to end, and ends without a fault."""
    command = [str(HEADGATE), "--home", str(home), "serve", "--port", "0"]
    process = subprocess.Popen(command, env=environment(**more), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving at https://"), line + process.stderr.read()
        address = line.split()[2]
        with httpx.Client(verify=given(home / "tls" / "authority.pem")) as client:
            pause = threading.Event()
            for _ in range(1200):
                if client.get(f"{address}/readyz").status_code == 200:
                    break
                pause.wait(0.1)
            else:
                raise AssertionError("it is never ready")
        yield address
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=60)[1]
        assert (process.returncode, rest) == (0, "")
    finally:
        process.kill()
        process.communicate()


def joined(address: str, home: Path, user: str) -> Client:
    return connect(address, user, PASSWORD, certificate=home / "tls" / "authority.pem")


def received(client: Client, count: int, after: str = "") -> list[Received]:
    found = []
    results = client.subscribe("joe.fast", after=after)
    for result in results:
        found.append(result)
        if len(found) == count:
            break
    results.close()  # type: ignore[attr-defined]
    return found


def values(found: list[Received]) -> list[tuple[int, int]]:
    return [(x.values["pat"], x.values["rate"]) for x in found if x.values is not None]


def test_a_server_serves_everyone_over_https_and_stops(tmp_path: Path) -> None:
    begun(tmp_path, tmp_path / "home")


def begun(folder: Path, home: Path) -> list[Received]:
    """A server with the first results; all but the first two are still to be read."""
    headgate(home, "init", "--admin", "joe")
    with serving(home) as address:
        with joined(address, home, "joe") as joe:
            joe.execute(SCRIPT)
        with joined(address, home, "joe") as joe, joined(address, home, "ned") as ned:
            ned.execute("SUBSCRIBE TO joe.fast")
            assert joe.publish("joe.pulse", [{"pat": n, "rate": 95 + n} for n in range(10)]) == 10
            first = received(ned, 2)
            assert values(first) == [(6, 101), (7, 102)]
        outsider(folder, home, address)
    return first


@pytest.mark.long
def test_a_server_goes_on_where_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = begun(tmp_path, home)
    with serving(home) as address, joined(address, home, "joe") as joe, joined(address, home, "ned") as ned:
        joe.publish("joe.pulse", [{"pat": 20, "rate": 120}])
        assert values(received(ned, 3, first[-1].position)) == [(8, 103), (9, 104), (20, 120)]
        joe.execute("REVOKE READ TUPLE ON STREAM fast FROM nurse")
        assert [x for x in ned.subscribe("joe.fast", follow=False) if x.values is not None] == []


def outsider(folder: Path, home: Path, address: str) -> None:
    """Another user of the system: with address, certificate and password it may do what its rights allow, and it can
    open nothing of the server's."""
    if os.geteuid() != 0:  # only root can become another user; the modes of files say the rest
        assert home.stat().st_mode & 0o077 == 0
        return
    place = Path(shutil.copy(home / "tls" / "authority.pem", folder / "authority.pem"))
    for path in (place, *folder.parents[:4], folder):
        path.chmod(path.stat().st_mode | 0o055)
    words = ["/usr/bin/python3", "-c", OUTSIDER, str(home), address, str(place), PASSWORD]
    done = subprocess.run(words, user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["uid"], told["opened"]) == (65534, [])
    assert {row[0] for row in told["may"]} == {"fast", "pulse"}


def test_a_home_that_others_can_open_is_not_served(tmp_path: Path) -> None:
    home = tmp_path / "home"
    headgate(home, "init", "--admin", "joe")
    (home / "audit.key").chmod(0o644)
    command = [str(HEADGATE), "--home", str(home), "serve", "--port", "0"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "other users can open" in done.stderr and "chmod -R go=" in done.stderr


def test_a_client_needs_nothing_of_the_engine() -> None:

    command = [sys.executable, "-c", "import sys, headgate.client; print([x for x in sys.modules if x.startswith(P)])"]
    for part in ("pyspark", "sqlalchemy", "numba", "duckdb", "headgate.access", "headgate.service"):
        told = subprocess.run(
            [*command[:2], command[2].replace("P)", f"{part!r})")], capture_output=True, text=True, check=True
        )
        assert told.stdout == "[]\n", part
