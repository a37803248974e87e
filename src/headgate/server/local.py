"""The server that a command starts for one person on one machine: it listens at a socket in the home folder and nowhere
else, and ends some seconds after the last one has left.

`python -m headgate.server.local HOME` says one line on standard output: that it is ready, or why it cannot start. Where
the store is, if not in the home folder, stands in HEADGATE_STORE: other users can list the words of a command.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from headgate import logs
from headgate.errors import HeadgateError
from headgate.home import alone
from headgate.server.home import check_private

IDLE_SECONDS = 3.0
"""How long the server stays when nobody is connected: a next command finds it ready."""
_MOST_LOGGED = 1 << 20


def serve(home: Path, store: str | None) -> None:
    with alone(home):
        check_private(home)
        from headgate.server.serve import Serving, opened  # a folder that is refused is refused at once
        from headgate.server.settings import read_settings
        from headgate.service import Headgate

        headgate = Headgate.at_home(home, store)
        try:
            settings = replace(read_settings(home, {}), host="127.0.0.1", tls=False)
            with opened(home, headgate, settings) as parts:
                Serving(parts, home, lambda _: _say({"ready": True}), local=True, idle_seconds=IDLE_SECONDS).run()
        finally:
            headgate.close()


def _say(told: dict[str, object]) -> None:
    """Whoever started this process waits for one line, and nobody reads any other."""
    print(json.dumps(told), flush=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.close(nothing)


def _errors_into(file: Path) -> None:
    """Standard error goes to a file in the home folder, which is begun anew when it is long."""
    long = file.exists() and file.stat().st_size > _MOST_LOGGED
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if long else 0)
    descriptor = os.open(file, flags, 0o600)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def main() -> None:
    home = Path(sys.argv[1])
    try:
        _errors_into(home / "server.log")
        logs.configure("warning", "text")
        serve(home, os.environ.get("HEADGATE_STORE"))
    except HeadgateError as error:
        _say({"message": error.message, "hint": error.hint})
        sys.exit(1)


if __name__ == "__main__":
    main()
