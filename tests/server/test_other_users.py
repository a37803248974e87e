"""Other users of the operating system: with address, certificate and password they do all that their rights allow, and
open nothing of the server's.

Only root can become somebody else. Where the tests run as another user, the modes of all files say the same: nobody but
the server's user can open one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PASSWORD

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
