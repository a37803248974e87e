"""What the documents show is what happens: their consoles are typed, their outputs compared, what they name exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import click
import pytest
from documents import HEADGATE, ROOT, console_steps, in_a_process_of_its_own, matches, type_document
from test_guide import CHAPTERS

from headgate.bench import BENCHES
from headgate.cli import main

DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TYPED = {"README.md": 7, "docs/sendlog.md": 5, "docs/tables.md": 6}
"""Documents whose commands are typed one by one, each in a process of its own, and how many there are at least."""
PACKAGES = ROOT / "src/headgate"
FOLDERS = {"src", "tests", "docs", "scripts", *(path.name for path in PACKAGES.iterdir() if path.is_dir())}


@pytest.mark.parametrize(("document", "commands"), TYPED.items())
def test_a_document_shows_what_happens(document: str, commands: int, tmp_path: Path) -> None:
    steps = console_steps((ROOT / document).read_text())
    assert sum(step.command.startswith("headgate") for step in steps) >= commands
    assert type_document(document, tmp_path, in_a_process_of_its_own) == []


def test_the_exchange_is_played_as_its_document_shows() -> None:
    shown = re.search(r"```text\n(.*?)```", (ROOT / "docs/exchange.md").read_text(), re.DOTALL)
    assert shown is not None
    done = subprocess.run([HEADGATE, "demo", "exchange"], capture_output=True, text=True, check=True)
    assert done.stdout == shown[1]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def coded(document: str) -> list[str]:
    """What a document has between backticks, outside of blocks."""
    return [" ".join(x.split()) for x in re.findall(r"`([^`]+)`", without_blocks((ROOT / document).read_text()))]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_links_only_to_what_exists(document: str) -> None:
    text = without_blocks((ROOT / document).read_text())
    missing = [x for x in re.findall(r"\]\(([^)#:]+)\)", text) if not ((ROOT / document).parent / x).exists()]
    assert missing == []


def exists(name: str) -> bool:
    """A file or folder of the repository or of the package, or a module by its dotted name or by its last name."""
    if name.startswith("headgate."):
        path = ROOT / "src" / name.replace(".", "/")
        return path.is_dir() or path.with_suffix(".py").exists() or (path.parent.is_dir() and defined(name))
    if "/" not in name:
        return any(PACKAGES.rglob(name)) or any((ROOT / "tests").rglob(name)) or (ROOT / "scripts" / name).exists()
    return any((folder / name).exists() or (folder / f"{name}.py").exists() for folder in (ROOT, PACKAGES))


def defined(name: str) -> bool:
    """Whether the last part is a name in the module or package before it: `headgate.testing.ManualClock`."""
    module, _, last = name.rpartition(".")
    path = ROOT / "src" / module.replace(".", "/")
    files = [path / "__init__.py", path.with_suffix(".py")]
    return any(re.search(rf"\b{re.escape(last)}\b", file.read_text()) for file in files if file.exists())


def names_something(word: str) -> bool:
    dotted = re.fullmatch(r"headgate(\.\w+)+", word)
    file = re.fullmatch(r"[\w/]+\.(py|sh)", word)
    below = re.fullmatch(r"[\w]+(/[\w.]*)+", word) and word.split("/")[0] in FOLDERS
    return bool(dotted or file or below)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_names_only_modules_and_files_that_exist(document: str) -> None:
    assert [word for word in coded(document) if names_something(word) and not exists(word)] == []


def test_a_module_that_does_not_exist_would_be_found() -> None:
    assert exists("headgate.labels") and exists("headgate.testing.ManualClock") and exists("access/store.py")
    wrong = ["headgate.labels.nosuch", "access/nosuch.py", "nosuch.py", "access/nosuch"]
    assert [word for word in wrong if names_something(word) and not exists(word)] == wrong


def command_error(text: str) -> str:
    """Why `headgate ...` in a sentence cannot be typed: no such command, no such option; empty if it can."""
    words = shlex.split(text.replace("…", "..."))[1:]
    command: click.Command = main
    options = {option for parameter in main.params for option in parameter.opts}
    for word in words:
        if word.startswith("-"):
            if word.partition("=")[0] not in {*options, "--help"}:
                return f"no option {word}"
        elif isinstance(command, click.Group) and not word.isupper() and word != "...":
            found = command.get_command(click.Context(command), word)
            if found is None:
                return f"no command {word}"
            command = found
            options |= {option for parameter in command.params for option in parameter.opts}
    return ""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_names_only_commands_that_exist(document: str) -> None:
    commands = [word for word in coded(document) if re.match(r"headgate [a-z-]", word)]
    assert [(word, error) for word in commands if (error := command_error(word))] == []


def test_a_command_that_does_not_exist_would_be_found() -> None:
    assert command_error("headgate audit verify --expect HEAD") == ""
    assert command_error("headgate --session FILE run --follow") == ""
    assert command_error("headgate audit nosuch") == "no command nosuch"
    assert command_error("headgate run --nosuch") == "no option --nosuch"


def test_every_command_that_a_document_shows_is_run() -> None:
    """Blocks of commands are consoles, and all consoles are typed; elsewhere only `make` stands."""
    consoles = {document for document in DOCUMENTS if "```console" in (ROOT / document).read_text()}
    elsewhere = {"docs/papers/star.md"}  # tests/realtime/test_document.py
    assert consoles == {*TYPED, *CHAPTERS, *elsewhere}
    for document in DOCUMENTS:
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE):
            assert kind not in ("sh", "bash", "shell"), f"{document}: what can be typed is a console"
            if kind != "console":
                assert not re.search(r"^(\$ |headgate )", block, re.MULTILINE), document


BY_TESTS = {
    "deadlines": "tests/cli/test_deadlines.py",
    "admin": "tests/cli/test_admin.py",
    "demo": "tests/test_demo.py",
    "demo exchange": "tests/test_documents.py",
    "cluster": "tests/system/test_cluster.py",
    "cluster package": "tests/system/test_cluster.py",
    "cluster check": "tests/system/test_cluster.py",
    "sendlog": "tests/cli/test_sendlog_commands.py",
    "sendlog node": "tests/sendlog/test_processes.py",
    "papers": "tests/bench/test_papers.py",
    "shell": "tests/server/test_shell.py",
}
"""Commands that sentences name and no console types, by the tests that run them. Benches have tests in tests/bench."""


def commands_of(text: str) -> str:
    """The words of `headgate ...` that are commands: `audit verify`."""
    command: click.Command = main
    found = []
    for word in shlex.split(text.replace("…", "..."), comments=True)[1:]:
        inner = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        if inner is not None:
            command = inner
            found.append(word)
    return " ".join(found)


def is_tested(command: str) -> bool:
    if not command.startswith("bench "):
        return command in BY_TESTS and (ROOT / BY_TESTS[command]).exists()
    package, _, module = BENCHES[command.removeprefix("bench ")][0].rpartition(".")
    imported = rf"from {re.escape(package)} import [^\n]*\b{module}\b|from {re.escape(package)}\.{module} import"
    return any(re.search(imported, path.read_text()) for path in (ROOT / "tests/bench").glob("test_*.py"))


def test_every_command_that_a_sentence_names_is_typed_in_a_console_or_run_by_a_test() -> None:
    steps = [step.command for document in DOCUMENTS for step in console_steps((ROOT / document).read_text())]
    typed = {commands_of(step) for step in steps if step.startswith("headgate ")}
    named = {
        commands_of(word) for document in DOCUMENTS for word in coded(document) if re.match(r"headgate [a-z-]", word)
    }
    assert len(named) > 20 and sorted(x for x in named - typed if not is_tested(x)) == []
    assert not is_tested("login") and not is_tested("bench")


def test_the_layers_of_the_architecture_are_those_that_hold() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    shown = re.search(r"^## Layers\n.*?```\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    held = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    assert shown is not None
    assert " ".join(shown[1].split()).split(" -> ") == [layer.replace("headgate.", "") for layer in held]


def test_the_glossary_has_at_most_25_words() -> None:
    rows = re.findall(r"^\| (?!word \|)[^|]+\|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert 0 < len(rows) <= 25


def test_every_decision_is_in_the_index_and_has_its_parts() -> None:
    folder = ROOT / "docs/decisions"
    pages = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert re.findall(r"\]\((\d{3}-[\w-]+\.md)\)", (folder / "README.md").read_text()) == pages
    assert [page[:3] for page in pages] == [f"{n:03}" for n in range(1, len(pages) + 1)]
    for page in pages:
        assert re.findall(r"^\*\*(\w+)\.\*\*", (folder / page).read_text(), re.MULTILINE) == [
            "Context",
            "Decision",
            "Why",
            "Price",
        ], page


@pytest.mark.parametrize(
    ("shown", "found", "same"),
    [
        ("", "", True),
        ("a\nb", "a\nb", True),
        ("a\nb", "a\nc", False),
        ("a … c", "a b c", True),
        ("a … c", "a b\nc", False),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…\nd", "a\nd", True),
        ("a\n…\nd", "a\nb", False),
        ("…", "", True),
        ("", "error: no", False),
    ],
)
def test_three_dots_stand_for_any_text(shown: str, found: str, same: bool) -> None:
    assert matches(shown, found) is same
