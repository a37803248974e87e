"""Commands start with the libraries that they need and no others: the modules are counted, not the time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENGINE = {"pyspark", "pyarrow", "pandas", "numpy", "numba", "duckdb", "scipy", "matplotlib", "pygraphviz", "rich"}
SERVER = {"httpx", "fastapi", "uvicorn", "prompt_toolkit", "headgate.client", "headgate.server"}
STORE = {"sqlalchemy", "argon2", "cryptography", "alembic", "psycopg"}
LISTED = "import atexit, sys; atexit.register(lambda: print('modules', *sys.modules, file=sys.stderr)); "
RUN = LISTED + "from headgate.cli import main; main()"
PASSWORD = "correct horse battery"


def modules(home: Path, *words: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        cwd=home,
        env=os.environ | {"HEADGATE_PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = (x for x in done.stderr.splitlines() if x.startswith("modules "))
    return set(line.split()[1:])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Headgate with a query that runs, and its administrator logged in."""
    folder = tmp_path_factory.mktemp("home")
    modules(folder, "init", "--admin", "joe")
    modules(folder, "login", "joe")
    (folder / "s.cql").write_text("CREATE STREAM s (a INT); CREATE QUERY q AS SELECT a FROM s; START QUERY q")
    modules(folder, "run", "s.cql")
    return folder


@pytest.mark.parametrize("words", [("--help",), ("label", "normal", "a | b")], ids=" ".join)
def test_a_command_without_a_store_loads_neither_store_nor_engine(home: Path, words: tuple[str, ...]) -> None:
    found = modules(home, *words)
    assert not found & (ENGINE | STORE | SERVER)
    assert not {x for x in found if x.startswith(("headgate.access", "headgate.plan", "headgate.service"))}
    assert len(found) < 250


@pytest.mark.parametrize("words", [("show", "queries"), ("login", "joe"), ("audit", "verify")], ids=" ".join)
def test_a_command_without_an_engine_loads_neither_engine_nor_plans(home: Path, words: tuple[str, ...]) -> None:
    found = modules(home, *words)
    assert not found & (ENGINE | SERVER | {"alembic", "psycopg", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql"})
    assert ("argon2" in found) is (words[0] == "login")
    plans = {x for x in found if x.startswith("headgate.plan.")} - {"headgate.plan.reserved"}
    assert not plans
    assert ("headgate.cql.statements" in found) is (words[0] == "show")
    assert len(found) < 500


def test_a_command_at_a_server_loads_neither_store_nor_engine_nor_language() -> None:
    imports = "import headgate.cli.main, headgate.cli.show, headgate.cli.remote, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert not found & (ENGINE | STORE | {"asyncio", "pygments", "fastapi", "uvicorn", "prompt_toolkit"})
    assert not {
        x for x in found if x.startswith(("headgate.access", "headgate.cql", "headgate.plan", "headgate.service"))
    }
