"""What docs/papers/star.md shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from headgate.cli import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/papers/star.md").read_text()


def test_its_commands_print_what_it_shows() -> None:
    blocks = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    steps = [part.partition("\n") for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    assert len(steps) >= 2
    for command, _, shown in steps:
        assert CliRunner().invoke(main, shlex.split(command)[1:]).output == shown


def test_its_program_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(program, "star.md", "exec"), {})  # noqa: S102 - our own document


def test_it_names_only_files_that_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", TEXT)
    folders = [ROOT, ROOT / "src/headgate/realtime"]
    assert named and [name for name in named if not any((folder / name).exists() for folder in folders)] == []
    linked = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert [link for link in linked if not (ROOT / "docs/papers" / link).exists()] == []


def test_it_names_every_setting() -> None:
    source = (ROOT / "src/headgate/realtime/settings.py").read_text()
    settings = re.findall(r'^    (\w+): [^\n]*= [^\n]*\n    """(?:Open|Stated)', source, re.MULTILINE)
    assert len(settings) > 20
    assert [name for name in settings if f"`{name}`" not in TEXT] == []
