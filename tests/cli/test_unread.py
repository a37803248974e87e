"""The real command with a standard output that nobody reads: it holds nobody up, neither who changes rights nor who
logs in; and it goes on, until it finds that its store is another one."""

from __future__ import annotations

import fcntl
import json
import shutil
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

from headgate.service import Headgate

PASSWORD = "correct horse"
SETUP = f"""
CREATE ROLE nurse; CREATE USER ned PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER ned;
CREATE STREAM hr (x INT, note STRING) SOURCE json (path = '{{folder}}');
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM hr TO nurse;
"""
COMMAND = [sys.executable, "-c", "from headgate.cli import main; main()"]


def put(folder: Path, number: int) -> None:
    """Twenty results of this are more than a pipe takes."""
    lines = [json.dumps({"x": number * 1000 + x, "note": "n" * 20_000}) for x in range(20)]
    (folder / f".{number}.json").write_text("\n".join(lines))
    (folder / f".{number}.json").rename(folder / f"{number}.json")


def fill(process: subprocess.Popen[str]) -> None:
    """Until the pipe holds as much as it can, and whoever writes waits."""
    assert process.stdout is not None
    most = fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ)
    until = time.monotonic() + 120
    waiting = bytearray(4)
    while struct.unpack("i", waiting)[0] < most // 2:  # of some pages only a part is used
        assert process.poll() is None and time.monotonic() < until
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
        fcntl.ioctl(process.stdout, termios.FIONREAD, waiting)


def test_an_output_that_nobody_reads_locks_nobody_out(tmp_path: Path) -> None:
    source, home = tmp_path / "source", tmp_path / "home"
    source.mkdir()
    put(source, 0)
    headgate = Headgate.at_home(home, create=True)
    headgate.initialise("joe", PASSWORD)
    joe = headgate.login("joe", PASSWORD)
    headgate.execute(joe, SETUP.format(folder=source))
    ned = headgate.login("ned", PASSWORD)
    headgate.execute(ned, "SUBSCRIBE TO joe.hr")
    (home / "ned").write_text(ned)
    command = [*COMMAND, "--home", str(home), "--session", str(home / "ned"), "run", "--follow"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            fill(process)
            put(source, 1)
            for script in ("CREATE ROLE clerk", "REVOKE READ TUPLE ON STREAM hr FROM nurse"):
                headgate.execute(joe, script)
            headgate.login("ned", PASSWORD)
            assert process.poll() is None
            headgate.close()
            shutil.copy(home / "headgate.db", home / "new.db")
            (home / "new.db").rename(home / "headgate.db")
            assert process.wait(60) == 1
            assert process.stderr is not None
            assert "headgate.db` was replaced or removed while this process used it" in process.stderr.read()
        finally:
            process.kill()
