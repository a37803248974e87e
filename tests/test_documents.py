"""What the documents show is what happens: their consoles are typed, their outputs compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEADGATE = Path(sys.executable).parent / "headgate"


def consoles(document: str) -> list[tuple[str, str]]:
    """The commands of all console blocks of a document, in order, each with the output shown for it."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    steps = []
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            steps.append((command, output.rstrip("\n")))
    return steps


@pytest.mark.parametrize(("document", "commands"), [("README.md", 7), ("docs/tables.md", 6), ("docs/sendlog.md", 5)])
def test_a_document_shows_what_happens(document: str, commands: int, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{HEADGATE.parent}:{os.environ['PATH']}"}
    ran = 0
    for command, shown in consoles(document):
        words = shlex.split(command, comments=True)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            environment[name] = value
        elif words[0] == "cat":
            (tmp_path / words[1]).parent.mkdir(exist_ok=True)
            (tmp_path / words[1]).write_text(shown + "\n")
        else:
            done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert (done.stdout + done.stderr).rstrip("\n") == shown, command
            ran += 1
    assert ran >= commands


def test_the_exchange_is_played_as_its_document_shows() -> None:
    shown = re.search(r"```text\n(.*?)```", (ROOT / "docs/exchange.md").read_text(), re.DOTALL)
    assert shown is not None
    done = subprocess.run([HEADGATE, "demo", "exchange"], capture_output=True, text=True, check=True)
    assert done.stdout == shown[1]


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_a_document_names_only_files_that_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    linked = re.findall(r"\]\(([^)#:]+)\)", text)
    folders = "|".join(["src", "tests", "docs", "scripts", *(x.name for x in (ROOT / "src/headgate").iterdir())])
    coded = re.findall(rf"`((?:{folders})/[\w/.]+)`", text)
    assert linked or coded
    for name in {*linked, *coded}:
        assert (ROOT / name).exists() or (ROOT / "src/headgate" / name).exists(), name
