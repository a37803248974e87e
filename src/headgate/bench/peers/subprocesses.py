"""Programs in another engine's environment: started with its Python, terminated by us if they fail."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PROGRAMS = Path(__file__).parent / "programs"


class NotInstalled(Exception):
    """The engine is not installed; that is no fault, it is optional."""


class ProgramFailed(Exception):
    """The program of an engine ended with an error."""


@dataclass(frozen=True)
class Program:
    """A running program; its standard error is kept for the case that it fails."""

    name: str
    process: subprocess.Popen[str]
    errors: IO[str]


def peer(name: str) -> Path:
    """The Python of an engine that `scripts/ensure-peers.sh` installed, below HEADGATE_PEERS or `.peers` here."""
    python = Path(os.environ.get("HEADGATE_PEERS", ".peers")) / name / "bin" / "python"
    if not (python.parent.parent / ".headgate-setup").exists():
        raise NotInstalled(f"{name} is not installed here: run scripts/ensure-peers.sh")
    return python.absolute()


def start(python: Path, program: str, task: str, *arguments: str) -> Program:
    """Passes the task on standard input. The engine's `bin` comes first in PATH: engines start further Pythons by
    name."""
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
    process = subprocess.Popen(
        [str(python), str(_PROGRAMS / program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=_environment(python),
        text=True,
    )
    if process.stdin is not None:
        process.stdin.write(task)
        process.stdin.close()
        process.stdin = None
    return Program(program, process, errors)


def run_module(python: Path, module: str, *arguments: str) -> None:
    """Runs a module of the engine itself to its end."""
    command = [str(python), "-m", module, *arguments]
    done = subprocess.run(command, env=_environment(python), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProgramFailed(f"{module} ended with {done.returncode}:\n{done.stderr}")


def finish(program: Program) -> str:
    """Returns what the program wrote to standard output; if it failed, raises an error with the end of its standard
    error."""
    try:
        output, _ = program.process.communicate()
    finally:
        program.process.kill()
    with program.errors:
        if program.process.returncode != 0:
            program.errors.seek(0)
            lines = program.errors.read().splitlines()
            last = "\n".join([line for line in lines if not line.startswith("\tat ")][-40:])
            raise ProgramFailed(f"{program.name} ended with {program.process.returncode}:\n{last}")
    return output


def _environment(python: Path) -> dict[str, str]:
    """The environment without variables that point to our own packages."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {"PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
