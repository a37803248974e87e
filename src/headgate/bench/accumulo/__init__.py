"""The Java library accumulo-access, run on the same expressions, for comparison.

Its jar is fetched once with Maven and kept; without Java, Maven or the jar there is no comparison, only a reason.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from headgate.bench.timing import Timing

ARTIFACT = "accumulo-access-core"
VERSION = "1.0.0-beta3"
_SHA256 = "93ac72904a3243ffd3284562c5f2dffd0b68c9fdedb14a4b38558048bc0b60cb"
_FETCH_SECONDS = 120


class Unavailable(Exception):
    """Why accumulo-access cannot be run here."""


@dataclass(frozen=True)
class Block:
    """A column of this many tuples, which repeats these distinct expressions."""

    tuples: int
    texts: Sequence[str]


@dataclass(frozen=True)
class Answer:
    """A decision for each expression; the cost of a tuple, and its cost where decisions are cached in a map."""

    permitted: list[bool]
    direct: Timing
    mapped: Timing | None


def java_version() -> str:
    return _run(["java", "--version"]).splitlines()[0]


def jar() -> Path:
    """The library, from the cache or else from Maven; only the exact file for which this bench was written is run."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate"
    found = cache / f"{ARTIFACT}-{VERSION}.jar"
    if not found.exists():
        cache.mkdir(parents=True, exist_ok=True)
        artifact = f"-Dartifact=org.apache.accumulo:{ARTIFACT}:{VERSION}"
        _run(["mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={cache}"], cwd=cache)
    if hashlib.sha256(found.read_bytes()).hexdigest() != _SHA256:
        raise Unavailable(f"`{found}` is not the {ARTIFACT} {VERSION} that was published")
    return found


def measure(
    library: Path, authorizations: Iterable[str], blocks: Sequence[Block], *, warm_up: float, repetitions: int
) -> Iterator[Answer]:
    """Yields one answer for each block, as soon as it is measured; `warm_up` in seconds."""
    with tempfile.TemporaryDirectory() as directory, as_file(files(__package__) / "AccumuloBench.java") as source:
        work = Path(directory) / "expressions.txt"
        work.write_text(_written(authorizations, blocks))
        options = ["-XX:+UseSerialGC", "-cp", str(library), str(source)]
        command = ["java", *options, str(work), str(round(warm_up * 1000)), str(repetitions)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield from (_answer(line.rstrip("\n")) for line in process.stdout or ())
            except BaseException:
                process.kill()  # a caller who stops does not wait for the rest
                raise
            trouble = process.stderr.read().strip() if process.stderr else ""
        if process.returncode:
            raise Unavailable(f"java failed: {trouble.splitlines()[0] if trouble else process.returncode}")


def _written(authorizations: Iterable[str], blocks: Sequence[Block]) -> str:
    lines = [" ".join(authorizations)]
    for block in blocks:
        lines += [f"= {block.tuples}", *block.texts]
    return "\n".join(lines) + "\n"


def _answer(line: str) -> Answer:
    decisions, direct, mapped = line.split("\t")
    return Answer([d == "1" for d in decisions], _timing(direct), _timing(mapped) if mapped else None)


def _timing(numbers: str) -> Timing:
    return Timing([float(number) for number in numbers.split()])


def _run(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=True)
    except FileNotFoundError:
        raise Unavailable(f"`{command[0]}` is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"`{command[0]}` did not end within {_FETCH_SECONDS} seconds") from None
    except subprocess.CalledProcessError:
        raise Unavailable(f"`{' '.join(command[:4])} ...` failed") from None
    return done.stdout
