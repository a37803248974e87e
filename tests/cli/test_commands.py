"""Commands are imported when they are called, and those that need no engine never import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from alembic.script import ScriptDirectory

from headgate.access.store import NEWEST
from headgate.cli.main import COMMANDS, main

ENGINE = ("numpy", "pyarrow", "pyspark", "duckdb", "pandas", "numba", "alembic", "matplotlib", "pygraphviz")


def test_every_command_is_where_the_list_says() -> None:
    context = click.Context(main)
    assert main.list_commands(context) == [*COMMANDS]
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None and command.name == name and command.help


def imported_by(*words: str) -> set[str]:
    program = (
        "import sys; from headgate.cli import main\n"
        f"try: main({list(words)!r})\n"
        f"except SystemExit: print([x for x in {ENGINE!r} if x in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(eval(done.stderr.splitlines()[-1]))  # noqa: S307


@pytest.mark.parametrize("words", [("--help",), ("label", "check", "a", "--role", "a"), ("show", "streams")])
def test_a_command_without_an_engine_imports_none_of_its_libraries(words: tuple[str, ...], tmp_path: Path) -> None:
    assert imported_by("--home", str(tmp_path), *words) == set()


def test_the_newest_migration_is_the_one_that_stores_are_compared_with() -> None:
    migrations = Path(sys.modules["headgate.access.store"].__file__ or "").with_name("migrations")
    assert ScriptDirectory(str(migrations)).get_current_head() == NEWEST
