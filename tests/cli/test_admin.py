"""The operator's work on a home folder."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import PASSWORD

from headgate.cli import main
from headgate.home import alone


def typed(home: Path, *words: str, given: str = "", code: int = 0) -> Result:
    found = CliRunner().invoke(main, ["--home", str(home), *words], input=given, env={"HEADGATE_PASSWORD": PASSWORD})
    assert found.exit_code == code, found.output
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    typed(place, "admin", "init", "--admin", "joe")
    typed(place, "login", "joe")
    typed(place, "run", "--statements-only", "-", given="CREATE STREAM s (n INT) SOURCE publish")
    (place / "engine" / "tmp").mkdir(parents=True)
    (place / "engine" / "version.json").write_text("{}")
    (place / "engine" / "tmp" / "scratch").write_text("x")
    return place


def test_a_backup_is_restored_as_it_was(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.tgz"
    assert typed(home, "admin", "backup", str(file)).stdout == f"3 files of {home} written to {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    held = {x.name: x.read_bytes() for x in (home / "audit.key", home / "headgate.db")}
    home.rename(tmp_path / "away")
    told = typed(home, "admin", "restore", str(file)).stdout
    assert told == f"{home} is restored; its audit trail is intact: 3 records\n"
    assert {x: (home / x).read_bytes() for x in held} == held
    assert {oct(x.stat().st_mode & 0o777) for x in home.rglob("*") if x.is_file()} == {"0o600"}
    assert not (home / "session").exists() and not (home / "engine" / "tmp").exists()
    typed(home, "login", "joe")
    assert "\ns " in typed(home, "show", "streams").stdout


def test_nothing_is_overwritten(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.tgz"
    typed(home, "admin", "backup", str(file))
    before = (home / "headgate.db").read_bytes()
    assert "it is there already (choose another name)" in typed(home, "admin", "backup", str(file), code=1).stderr
    assert "it is there already (move it away first)" in typed(home, "admin", "restore", str(file), code=1).stderr
    assert (home / "headgate.db").read_bytes() == before
    assert "it is there already" in typed(home, "admin", "replay", "--out", str(tmp_path), code=1).stderr


def test_work_on_a_folder_waits_for_no_server(home: Path, tmp_path: Path) -> None:
    with alone(home):
        for words in (["backup", str(tmp_path / "b.tgz")], ["migrate"], ["replay", "--out", str(tmp_path / "out")]):
            assert "another process works in it (end the server" in typed(home, "admin", *words, code=1).stderr
        assert typed(home, "admin", "audit", "verify").stdout == "the audit trail is intact: 3 records\n"
    assert {x.name for x in tmp_path.iterdir()} == {"home"}
    assert typed(home, "admin", "migrate").stdout == "the store has the tables of this version\n"


def test_a_backup_that_was_altered_is_not_restored(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.tgz"
    typed(home, "admin", "backup", str(file))
    away = tmp_path / "away"
    away.mkdir()
    with tarfile.open(file) as tar:
        tar.extractall(away, filter="data")
    content = bytearray((away / "headgate.db").read_bytes())
    place = content.index(b"INITIALISE")
    content[place : place + 10] = b"INITIALIZE"
    (away / "headgate.db").write_bytes(content)
    altered = tmp_path / "altered.tgz"
    with tarfile.open(altered, "w:gz") as tar:
        tar.add(away, ".")
    home.rename(tmp_path / "elsewhere")
    told = typed(home, "admin", "restore", str(altered), code=1).stderr
    assert "its audit trail is damaged" in told
    damaged = tmp_path / "damaged.tgz"
    damaged.write_bytes(file.read_bytes()[:2000])
    assert "it is not a backup, or it is damaged" in typed(home, "admin", "restore", str(damaged), code=1).stderr
    assert not home.exists()
    assert not [x for x in tmp_path.iterdir() if x.name.startswith(".")]


def test_an_entry_outside_the_folder_is_refused(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "evil.tgz"
    (tmp_path / "backup.json").write_text(json.dumps({"format": 1, "home": str(tmp_path / "new")}))
    with tarfile.open(file, "w:gz") as tar:
        tar.add(tmp_path / "backup.json", "backup.json")
        tar.add(home / "audit.key", "../escaped")
    assert "it is not a backup" in typed(tmp_path / "new", "admin", "restore", str(file), code=1).stderr
    assert not (tmp_path / "escaped").exists() and not (tmp_path / "new").exists()


def test_a_state_is_restored_to_the_path_that_it_names(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.tgz"
    typed(home, "admin", "backup", str(file))
    told = typed(tmp_path / "other", "admin", "restore", str(file), code=1).stderr
    assert f"the state in it names files below `{home}` (restore it to that path)" in told
