"""The server of a home folder on this machine: found at its socket, or started if none runs.

It is a process of its own, so that whoever reads results opens neither the store nor the data.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from headgate.errors import StoreError
from headgate.home import SOCKET, is_served

SCHEME = "unix:"
_PATIENCE, _PAUSE = 60.0, 0.02


def address(home: Path) -> str:
    return f"{SCHEME}{home.absolute() / SOCKET}"


def server_of(home: Path, store: str | None = None) -> str:
    """The address of the server that has this home folder; starts one if there is none."""
    until = time.monotonic() + _PATIENCE
    while not is_listening(home):
        if not is_served(home):
            _start(home, store)
        elif time.monotonic() > until:
            raise StoreError(f"cannot reach the server of `{home}`", hint="see that it runs")
        else:
            time.sleep(_PAUSE)
    return address(home)


def is_listening(home: Path) -> bool:
    """Whether a server has the folder and can be asked; not while it starts, nor when it has begun to end."""
    return is_served(home) and (home / SOCKET).exists()


def wait_until_ended(home: Path) -> None:
    """Until no server has the folder any more; for whoever was the last one there."""
    while is_served(home):
        time.sleep(_PAUSE)


def _start(home: Path, store: str | None) -> None:
    """Waits until it listens, or says why it does not."""
    if not (home / "audit.key").exists():
        raise StoreError(f"there is no Headgate in `{home}`", hint="run `headgate init` first")
    secret = {"HEADGATE_PASSWORD", "HEADGATE_OPTIONS"}
    known = {name: value for name, value in os.environ.items() if name not in secret}
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "headgate.server.local", str(home.absolute())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=known | ({"HEADGATE_STORE": store} if store else {}),
        start_new_session=True,  # Ctrl-C is for the command
    ) as process:
        assert process.stdout is not None  # noqa: S101
        line = process.stdout.readline()
        told = json.loads(line) if line.startswith(b"{") else {}
        if told.get("ready"):
            process.returncode = 0  # it goes on; nobody waits for it
            return
    if not is_served(home):  # else another command has started one at the same moment
        message = told.get("message", f"cannot start a server in `{home}`")
        raise StoreError(message, hint=told.get("hint", f"its own messages are in `{home / 'server.log'}`"))
