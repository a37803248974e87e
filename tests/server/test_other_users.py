"""Other users of the operating system: with address, certificate and password they do all that their rights allow, and
open nothing of the server's.

Only root can become somebody else. Where the tests run as another user, the modes of all files say the same: nobody but
the server's user can open one.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conftest import PASSWORD
from documents import ROOT

from headgate.server.home import check_private
from server.serving import Server

OUTSIDER = """
import json, os, ssl, sys, urllib.error, urllib.request
home, source, url, certificate, user, password = sys.argv[1:]
opened = []
for folder, folders, files in os.walk(home):
    opened += [folder, *files]
names = ("headgate.db", "audit.key", "positions.key", "tls/server.key", "ingress/ingress.db", "engine/delivery",
         "engine/state", "engine/owners", "metrics.token")
for path in [source, *(os.path.join(home, name) for name in names)]:
    for act in (lambda: open(path).close(), lambda: os.listdir(path), lambda: os.stat(path)):
        try:
            act()
            opened.append(path)
        except OSError:
            pass
for act in (lambda: os.mkdir(os.path.join(home, "mine")), lambda: os.symlink("/etc/passwd", os.path.join(home, "l"))):
    try:
        act()
        opened.append("written")
    except OSError:
        pass
context = ssl.create_default_context(cafile=certificate)
token = ""
def ask(path, body=None, **headers):
    if token:
        headers["Authorization"] = "Bearer " + token
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json", **headers})
    try:
        answer = urllib.request.urlopen(request, context=context)
        return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
wrong = ask("/v1/login", {"user": user, "password": password + "x"})[0]
token = json.loads(ask("/v1/login", {"user": user, "password": password, "level": "U"})[1])["token"]
found = {
    "uid": os.getuid(), "opened": opened, "wrong": wrong,
    "publish": ask("/v1/streams/root.pulse/tuples", b'{"pat": 77, "rate": 1, "policy": "doctor"}\\n',
                   **{"Content-Type": "application/x-ndjson"})[0],
    "subscribe": ask("/v1/statements", {"script": "SUBSCRIBE TO root.pulse"})[0],
    "results": ask("/v1/streams/root.pulse/results?follow=false")[0],
    "secret": ask("/v1/streams/root.secret/results?follow=false")[0],
    "rejected": ask("/v1/streams/root.pulse/rejected")[0],
    "metrics": ask("/metrics")[0],
    "create": ask("/v1/statements", {"script": "CREATE USER mallory"})[0],
    "streams": sorted(row[0] for row in json.loads(ask("/v1/statements", {"script": "SHOW STREAMS"})[1])[0]["rows"]),
}
print(json.dumps(found))
"""


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that everyone can open."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # noqa: S103
        yield Path(name)


def nobody_else_can_open(home: Path) -> None:
    check_private(home)
    for folder, folders, files in os.walk(home):
        if os.stat(folder).st_mode & 0o077:
            raise AssertionError(folder)
        for name in (*folders, *files):
            assert os.lstat(os.path.join(folder, name)).st_uid == os.getuid()


@pytest.mark.parametrize(
    ("user", "uid", "may"),
    [
        ("sam", 65534, {"publish": 200, "subscribe": 403, "results": 409, "streams": ["pulse"]}),
        ("ned", 65533, {"publish": 403, "subscribe": 200, "results": 200, "streams": ["pulse"]}),
        ("stranger", 65532, {"publish": 404, "subscribe": 404, "results": 404, "streams": []}),
    ],
)
def test_another_user_of_the_system_does_what_its_rights_allow_and_opens_nothing(
    server: Server, outside: Path, user: str, uid: int, may: dict[str, object]
) -> None:
    nobody_else_can_open(server.home)
    if os.geteuid() != 0:
        return
    source = outside / "source.json"
    source.write_text('{"a": 1}\n')
    source.chmod(0o600)
    certificate = Path(shutil.copy(server.home / "tls" / "authority.pem", outside / "authority.pem"))
    certificate.chmod(0o644)
    given = (server.home, source, server.address, certificate, user, PASSWORD)
    done = subprocess.run(
        ["/usr/bin/python3", "-c", OUTSIDER, *map(str, given)],
        user=uid,
        group=uid,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["uid"], told["wrong"]) == (uid, 401)
    opened = [path for path in told["opened"] if path != str(source)]  # that it is there, everyone may see
    assert opened == []
    refused = {"secret": 404, "rejected": 403 if user != "stranger" else 404, "metrics": 403, "create": 403}
    streams = told.pop("streams")
    assert {name: told[name] for name in (*may, *refused) if name != "streams"} == {
        name: value for name, value in {**may, **refused}.items() if name != "streams"
    }
    assert set(may["streams"]) <= set(streams) and "secret" not in streams  # type: ignore[call-overload]


def typed(account: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, typed by an account of this system that has nothing but this folder."""
    code = "import sys; from headgate.cli import main; main(sys.argv[1:])"
    packages = [ROOT / "src", Path(httpx.__file__).parents[1]]
    return subprocess.run(
        ["/usr/bin/python3", "-c", code, *words],
        user=account,
        group=pwd.getpwnam(account).pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"HOME": str(folder), "HEADGATE_PASSWORD": PASSWORD, "PYTHONPATH": ":".join(map(str, packages))},
        timeout=60,
    )


def can_type() -> bool:
    """Only root can become somebody else, who needs an interpreter for the packages of this one."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return os.geteuid() == 0 and Path(f"/usr/bin/python{version}").exists()


@pytest.mark.long
def test_accounts_of_the_system_use_the_command_and_see_nothing_of_each_other(server: Server, outside: Path) -> None:
    nobody_else_can_open(server.home)
    if not can_type():
        return
    certificate = Path(shutil.copy(server.home / "tls" / "authority.pem", outside / "authority.pem"))
    certificate.chmod(0o644)
    server.run(
        """CREATE STREAM hall (n INT, policy STRING) ROLES FROM policy SOURCE publish;
        GRANT VIEW OBJECT, PUBLISH ON STREAM hall TO sender;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM hall TO nurse"""
    )
    accounts = {"daemon": "sam", "games": "ned", "nobody": "dora"}
    at = ["--server", server.address, "--server-certificate", str(certificate)]
    for account, user in accounts.items():
        folder = outside / account
        folder.mkdir()
        os.chown(folder, pwd.getpwnam(account).pw_uid, -1)
        done = typed(account, folder, *at, "login", user, "--level", "U")
        assert (done.returncode, done.stdout) == (0, f"{user} is logged in\n"), done.stderr
    for account in ("games", "nobody"):
        script = outside / account / "mine.cql"
        script.write_text("SUBSCRIBE TO root.hall;")
        assert typed(account, outside / account, *at, "run", "mine.cql").returncode == 0
    rows = outside / "rows.json"
    rows.write_text("".join(f'{{"n": {n}, "policy": "{("nurse", "doctor")[n % 2]}"}}\n' for n in range(6)))
    sent = typed("daemon", outside / "daemon", *at, "publish", "root.hall", str(rows))
    assert sent.stdout == "6 tuples published\n", sent.stderr
    for account, seen in (("games", [0, 2, 4]), ("nobody", list(range(6)))):
        told = typed(account, outside / account, *at, "watch", "root.hall", "--json", "--most", str(len(seen)))
        assert [json.loads(line)["values"]["n"] for line in told.stdout.splitlines()] == seen
    refused = typed("games", outside / "games", *at, "publish", "root.hall", str(rows))
    assert (refused.returncode, refused.stdout) == (1, "") and "PUBLISH" in refused.stderr
    assert "there is no stream" in typed("daemon", outside / "daemon", *at, "watch", "root.secret").stderr
    kept = [x for x in (outside / "games").rglob("*") if x.is_file() and x.name != "mine.cql"]
    assert kept
    for path in kept:  # the session of another account
        looked = subprocess.run(
            ["/bin/cat", str(path)], user="nobody", group="nogroup", capture_output=True, check=False
        )
        assert looked.returncode != 0
