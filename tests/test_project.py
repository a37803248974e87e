"""Promises of the repository as a whole, which no single module can break alone."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Joined here, so that this file does not contain what it looks for.
ELSEWHERE = ["/".join(("", "work", "shared")), "/".join(("..", "shared"))]
REGISTRIES = [
    ".".join(labels)
    for labels in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("repo1", "maven", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
    )
]


def files_of_the_repository() -> Iterator[Path]:
    """What git would list; without git, which a fresh machine need not have."""
    lines = (ROOT / ".gitignore").read_text().split()
    skipped = [".git", *(line.rstrip("/") for line in lines)]

    def kept(name: str) -> bool:
        return not any(fnmatch.fnmatchcase(name, pattern) for pattern in skipped)

    for folder, folders, names in os.walk(ROOT):
        folders[:] = filter(kept, folders)
        yield from (Path(folder, name) for name in names if kept(name))


def test_imports_go_one_way() -> None:
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", lint, "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("forbidden", ELSEWHERE + REGISTRIES)
def test_no_file_depends_on_a_place_outside(forbidden: str) -> None:
    found = [path for path in files_of_the_repository() if forbidden.encode() in path.read_bytes().lower()]
    assert found == []


def test_ci_runs_exactly_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.read_text().splitlines() == ["#!/usr/bin/env bash", "make test"]
    assert os.access(script, os.X_OK)


def test_the_documents_name_only_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (path.name, target)
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }
    assert {(name, target) for name, target in named if target not in targets} == set()
