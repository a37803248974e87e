"""What others on the machine can find out about a service at work: from processes, sockets, files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headgate.cli import main
from headgate.cli.run import _target

PASSWORD, SECRET = "correct horse", "Tr0ub4dor"
LISTENS, LOOPBACK = "0A", ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
SCRIPT = """
CREATE STREAM s (a INT) SOURCE json (path = '{folder}/in');
CREATE QUERY q AS SELECT a FROM s;
"""


def typed(home: Path, *words: str, text: str = "") -> None:
    result = CliRunner().invoke(main, ["--home", str(home), *words], input=text, env={"HEADGATE_PASSWORD": PASSWORD})
    assert result.exit_code == 0, result.output


def family(process: int) -> set[int]:
    """A process and all that come from it."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, more = set[int](), {process}
    while more:
        found |= more
        more = {x for x, parent in parents.items() if parent in more} - found
    return found


def told(process: int, what: str) -> bytes:
    """What the system tells of a process; nothing if it has ended meanwhile."""
    try:
        return Path(f"/proc/{process}/{what}").read_bytes()
    except OSError:
        return b""


def listening(processes: set[int]) -> set[str]:
    """The addresses that these processes listen at."""
    inodes = set()
    for process in processes:
        for file in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(str(file.readlink()).removeprefix("socket:[").removesuffix("]"))
            except OSError:
                continue
    lines = [x.split() for kind in ("tcp", "tcp6") for x in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return {x[1].partition(":")[0] for x in lines if x[3] == LISTENS and x[9] in inodes}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_a_service_at_work_shows_nobody_its_secrets_and_leaves_nothing_that_others_can_read(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.json").write_text('{"a": 1}\n{"a": 2}\n')
    typed(home, "init", "--admin", "joe")
    typed(home, "login", "joe")
    typed(home, "run", "-", text=SCRIPT.format(folder=tmp_path))
    words = ["--home", str(home), "run", "-", "--follow", "--out", str(out), "--format", "parquet"]
    words += ["--to", "json", "--option", f"path={tmp_path / 'table'}"]
    secrets = {"HEADGATE_PASSWORD": SECRET, "HEADGATE_OPTIONS": f"compression=none\npassword={SECRET}"}
    (tmp_path / "start.cql").write_text("START QUERY q; SUBSCRIBE TO q")
    with (tmp_path / "start.cql").open() as script, (tmp_path / "said").open("w") as said:
        service = subprocess.Popen(
            [sys.executable, "-c", "import os; os.umask(0o022); from headgate.cli import main; main()", *words],
            env=os.environ | secrets,
            stdin=script,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        for _ in range(600):
            with pytest.raises(subprocess.TimeoutExpired):  # it goes on
                service.wait(0.2)
            if list((out / "joe").rglob("*.parquet")) and list((tmp_path / "table").rglob("*.json")):
                break
        processes = family(service.pid)
        assert len(processes) > 1
        environments = [told(process, "environ") for process in processes - {service.pid}]
        assert any(b"SPARK_LOCAL_IP=127.0.0.1" in environment for environment in environments)
        assert not any(SECRET.encode() in environment for environment in environments)
        commands = [told(process, "cmdline") for process in processes]
        assert not any(SECRET.encode() in command for command in commands)
        assert any(b"spark.authenticate=true" in command for command in commands)
        found = listening(processes)
        assert found and found <= set(LOOPBACK)
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(120)
    for folder in (home, out, tmp_path / "table"):
        for path in (folder, *folder.rglob("*")):
            assert path.stat().st_mode & 0o077 == 0, f"{path.relative_to(tmp_path)}: {oct(path.stat().st_mode)}"
    assert SECRET not in (tmp_path / "said").read_text()


def test_options_come_from_the_command_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "options"
    file.write_text("user = x\n\npassword=a=b \nurl=of the file\n")
    monkeypatch.setenv("HEADGATE_OPTIONS", "url=of the environment\ndriver=org.example.Driver")
    found = _target("jdbc", ("url=of the command",), file)
    assert found is not None
    assert found.options == {
        "user ": " x",
        "password": "a=b",
        "url": "of the command",
        "driver": "org.example.Driver",
    }
    assert "a=b" not in repr(found)
    file.write_text("hush\n")
    with pytest.raises(click.UsageError) as caught:
        _target("jdbc", (), file)
    assert "hush" not in caught.value.message and "NAME=VALUE" in caught.value.message


@pytest.mark.parametrize("store", ["sqlite:///elsewhere.db", ""])
def test_the_demo_says_that_it_does_not_look_at_the_store_it_is_given(tmp_path: Path, store: str) -> None:
    """It ran in a temporary folder, whatever store it was given, without a word."""
    options = ["--home", str(tmp_path / "home"), "--store", store] if store else []
    result = CliRunner().invoke(main, [*options, "demo", "exchange"])
    assert result.exit_code == 0
    said = "the demo has a store of its own in a temporary folder: --home and --store is not looked at"
    assert (said in result.stderr) == bool(store)
    assert not list(tmp_path.iterdir())
