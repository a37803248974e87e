"""Documents as tests read them: the steps of their consoles, and a shell that types them.

A console block is a list of steps. Each begins with `$ ` and a command; the lines below it are what the command prints.
`…` stands for any text within a line, and a line of nothing but `…` for any lines, or none. `cat FILE` of a file that
does not exist yet writes it: what is shown is its content. `COMMAND &` goes on beside the commands after it, which are
repeated until they print what is shown; `kill $!` ends it, and what it printed is shown there.

With HEADGATE_WRITE_DOCUMENTS=1 a document that differs is written anew with what its commands printed, for people to
read and to put `…` where it belongs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from headgate.client.local import wait_until_ended
from headgate.home import LOCK

ROOT = Path(__file__).resolve().parents[1]
HEADGATE = Path(sys.executable).parent / "headgate"
WORKER = Path(__file__).with_name("documents_worker.py")
PORT = "18443"
"""The port of servers in documents; tests take a free one, since documents may be typed by several runs at once."""
PATIENCE = 120.0
"""Seconds after which something that does not come is not waited for any longer."""
_SHELL = {"|", "&", "<", ">", ">>", ";", "&&", "||"}

Headgate = Callable[[list[str], Path, Mapping[str, str]], tuple[int, str]]
"""Runs `headgate` with these words, in a folder, with an environment; its exit code and all that it printed."""


@dataclass(frozen=True)
class Step:
    command: str
    shown: str


def console_steps(text: str) -> list[Step]:
    """The steps of all console blocks of a document, in order."""
    steps = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            steps.append(Step(command, output.rstrip("\n")))
    return steps


def matches(shown: str, found: str) -> bool:
    lines = (r"(?:[^\n]*\n)*" if x == "…" else re.escape(x).replace("…", r"[^\n]*") + r"\n" for x in shown.split("\n"))
    return re.fullmatch("".join(lines), f"{found}\n") is not None


def written_anew(text: str, found: list[str]) -> str:
    """The document with what was found in the place of what it shows."""
    answers = iter(found)

    def block(match: re.Match[str]) -> str:
        parts = re.split(r"^\$ ", match[1], flags=re.MULTILINE)[1:]
        return "```console\n" + "".join(_typed(part.partition("\n")[0], next(answers)) for part in parts) + "```"

    return re.sub(r"```console\n(.*?)```", block, text, flags=re.DOTALL)


def _typed(command: str, output: str) -> str:
    return f"$ {command}\n{output}\n" if output else f"$ {command}\n"


def type_document(document: str, folder: Path, headgate: Headgate) -> list[str]:
    """Types all consoles of a document in one folder; the commands whose output is not what the document shows."""
    path, port = ROOT / document, _free_port()
    text = path.read_text().replace(PORT, port)
    found, wrong = [], []
    with Shell(folder, headgate) as shell:
        for step in console_steps(text):
            output = shell.type(step)
            print(f"$ {step.command}\n{output}")
            same = matches(step.shown, output)
            found.append(step.shown if same else output)
            if not same:
                wrong.append(f"{step.command}\n{output}")
    if wrong and os.environ.get("HEADGATE_WRITE_DOCUMENTS"):
        path.write_text(written_anew(text, found).replace(port, PORT))
    return wrong


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


@dataclass
class Shell:
    """A folder in which commands are typed one after the other."""

    folder: Path
    headgate: Headgate
    environment: dict[str, str] = field(default_factory=lambda: _environment())
    code: int = 0
    beside: subprocess.Popen[str] | None = None

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        """A server that a command started ends some seconds after the command; until then it writes into the folder."""
        if self.beside is not None:
            self.beside.kill()
            self.beside.communicate()
        for lock in self.folder.rglob(LOCK):
            wait_until_ended(lock.parent)

    def type(self, step: Step) -> str:
        """What the step prints, without line breaks at its end."""
        if step.command == "kill $!":
            return self._end().rstrip("\n")
        output = self._output(step)
        until = time.monotonic() + PATIENCE
        while self.beside is not None and not matches(step.shown, output) and time.monotonic() < until:
            with suppress(subprocess.TimeoutExpired):
                self.beside.wait(0.2)
                break  # it ended by itself: nothing more will come
            output = self._output(step)
        return output

    def _output(self, step: Step) -> str:
        words = shlex.split(step.command, comments=True)
        output = ""
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.environment[name] = value
        elif words[0] == "cat" and len(words) == 2 and "*" not in words[1] and not (self.folder / words[1]).exists():
            path = self.folder / words[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            begun = path.with_name(f".{path.name}.begun")  # a file is complete when it gets its name
            begun.write_text(step.shown + "\n")
            begun.rename(path)
            output = step.shown
        elif words[-1] == "&":
            self._begin(words[:-1])
        elif words[0] == "headgate" and _SHELL.isdisjoint(words) and "$" not in step.command:
            self.code, output = self.headgate(words[1:], self.folder, self.environment)
        else:
            done = self._run(["bash", "-c", f"(exit {self.code}); {step.command}"])
            self.code, output = done.returncode, done.stdout
        return output.rstrip("\n")

    def _run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def _begin(self, words: list[str]) -> None:
        assert self.beside is None
        self.beside = subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _end(self) -> str:
        assert self.beside is not None
        beside, self.beside = self.beside, None
        beside.send_signal(signal.SIGTERM)
        output, _ = beside.communicate(timeout=PATIENCE)
        self.code = beside.returncode
        return output


def _environment() -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    return {**known, "PATH": f"{HEADGATE.parent}:{os.environ['PATH']}"}


def in_a_process_of_its_own(words: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """As a person starts it."""
    done = subprocess.run(
        [HEADGATE, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


class Worker:
    """One process that runs many commands, so that Spark is started once for all of them. All are typed in one folder:
    where the Java process was started is where relative paths begin."""

    def __init__(self, folder: Path, sparks: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            cwd=folder,
            env={**_environment(), "SPARK_LOCAL_DIRS": str(sparks)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=PATIENCE)

    def __call__(self, words: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
        assert folder == self.folder
        assert self._process.stdin is not None and self._process.stdout is not None
        own = {name: value for name, value in environment.items() if name.startswith("HEADGATE_")}
        self._process.stdin.write(json.dumps([words, own]) + "\n")
        self._process.stdin.flush()
        code, output = json.loads(self._process.stdout.readline())
        return code, output
