"""The server of a home folder on this machine: who reaches it, and that nobody opens the folder beside it."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import ADMIN, PASSWORD

import headgate
from headgate.cli import main
from headgate.client.local import address, is_listening, server_of
from headgate.errors import StoreError
from headgate.home import SOCKET, alone, is_served
from headgate.service import Headgate
from server.serving import Server, served

CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has its home folder, as `headgate serve` has."""
    home = tmp_path_factory.mktemp("home")
    with alone(home), served(home) as server:
        yield server


def typed(home: Path, *words: str, given: str = "", code: int = 0) -> Result:
    found = CliRunner().invoke(
        main, ["--home", str(home), *words], input=given, env={"HEADGATE_PASSWORD": PASSWORD, "HEADGATE_SERVER": None}
    )
    assert found.exit_code == code, found.output
    return found


def test_commands_ask_the_server_and_open_no_store(here: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Headgate, "at_home", None)  # whoever opens the store fails
    assert typed(here.home, "login", ADMIN).stdout == f"{ADMIN} is logged in\n"
    assert "pulse" in typed(here.home, "show", "streams").stdout
    script = "CREATE STREAM local (n INT) SOURCE publish; GRANT VIEW OBJECT, PUBLISH ON STREAM local TO sender"
    assert typed(here.home, "run", "-", given=script).stdout.startswith(f"stream {ADMIN}.local created")
    assert "SOURCE root.local" in typed(here.home, "explain", "SELECT n FROM local").stdout
    told = typed(here.home, "access", "why", "sam", "PUBLISH", "stream", "local").stdout
    assert told.startswith(
        "DENIED: sam PUBLISH on stream root.local\n  because it has level U, and level S writes only"
    )
    assert told.endswith("  PUBLISH is held by sender\n")
    assert typed(here.home, "publish", "local", given='{"n": 1}\n').stdout == "1 tuple published\n"
    assert typed(here.home, "watch", "local", "--most", "1").stdout.endswith("  n=1\n")
    assert "only a script is run" in typed(here.home, "run", "--everyone", code=2).stderr
    typed(here.home, "logout")


def test_the_folder_cannot_be_served_twice(here: Server) -> None:
    assert "another process works in it" in typed(here.home, "serve", code=1).stderr


def test_only_the_user_of_the_folder_reaches_its_socket(here: Server) -> None:
    path = here.home / SOCKET
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(str(path))
    if os.geteuid() != 0:  # only root can become another user
        return
    for folder in here.home.parents:
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    here.home.chmod(0o711)  # as if somebody had opened the folder: the socket is closed to others by itself
    try:
        done = subprocess.run(
            ["/usr/bin/python3", "-c", CONNECT, str(path)], user=65534, group=65534, extra_groups=[], check=False
        )
    finally:
        here.home.chmod(0o700)
    assert done.returncode != 0


def test_a_session_over_the_socket_has_the_rights_of_its_user(here: Server) -> None:
    with headgate.connect(address(here.home), "stranger", PASSWORD) as stranger:
        assert stranger.execute("SHOW STREAMS")[0].rows == ()


@pytest.mark.long
def test_a_server_is_started_when_it_is_needed_and_ends_by_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    typed(home, "init", "--admin", "joe")
    typed(home, "login", "joe")
    typed(home, "run", "--statements-only", "-", given="CREATE STREAM s (n INT) SOURCE publish")
    assert not is_served(home)
    assert typed(home, "publish", "s", given='{"n": 1}\n').stdout == "1 tuple published\n"
    assert is_listening(home)  # a little longer, for the next command
    with headgate.connect(str(home), "joe", PASSWORD) as joe:
        assert joe.execute("SHOW STREAMS")[0].rows[0][0] == "s"
    pause = threading.Event()
    while is_served(home):
        pause.wait(0.05)
    assert not (home / SOCKET).exists()
    assert (home / "server.log").read_text() == ""


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no Headgate in"):
        server_of(tmp_path)
    home = tmp_path / "home"
    typed(home, "init", "--admin", "joe")
    (home / "audit.key").chmod(0o644)
    with pytest.raises(StoreError, match="other users can open"):
        server_of(home)
