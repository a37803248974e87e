"""Settings of Spark that an operator may give: NAME=VALUE words of a command, and a file, for what must not be seen.

Spark puts the words into its own command line, where other users of the machine can read them; of a file only its name
is there. Settings that results, logs or files of other users depend on are not for choosing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import HeadgateError

_LINE = re.compile(r"(?P<name>[^\s=:]+)\s*[=:\s]\s*(?P<value>.*)")
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key|credential")
_PYTHON = "spark.pyspark.python"
CHOSEN = frozenset(
    {
        "spark.ui.enabled",
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.jars",
        "spark.sql.streaming.checkpointFileManagerClass",
        "spark.hadoop.fs.permissions.umask-mode",
    }
)
"""Settings of ours that an operator may change: a cluster may need it."""


@dataclass(frozen=True)
class SparkSettings:
    """`given` are words of the command, `file` is a properties file as Spark reads it. `repr` shows no value."""

    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    file: Path | None = None

    def check(self, fixed: Collection[str]) -> None:
        """Refuses settings that are fixed here, and secrets that everybody on the machine would see."""
        for name in (*self.given, *(_read(self.file) if self.file else ())):
            if name in ("spark.master", "spark.app.name") or (name in fixed and name not in CHOSEN):
                raise HeadgateError(
                    f"cannot change the Spark setting `{name}`: results and logs depend on it",
                    hint="leave it out; `--master` says where Spark runs",
                )
        for name in self.given:
            if _SECRET.search(name):
                raise HeadgateError(
                    f"cannot take the Spark setting `{name}` from the command line: others could read it there",
                    hint="write it into a file for --conf-from",
                )

    @property
    def python(self) -> str | None:
        """The Python of the workers; PySpark itself asks the environment only."""
        return self.given.get(_PYTHON) or (_read(self.file).get(_PYTHON) if self.file else None)

    @property
    def names(self) -> frozenset[str]:
        return frozenset({*self.given, *(_read(self.file) if self.file else ())})

    def submit_arguments(self, before: str) -> str:
        """The words of `spark-submit` with this file, for PYSPARK_SUBMIT_ARGS."""
        if self.file is None:
            return before
        return f"--properties-file {shlex.quote(str(self.file.resolve()))} {before}"


def spark_settings(words: Sequence[str], file: Path | None) -> SparkSettings:
    pairs = [word.partition("=") for word in words]
    if not all(name.startswith("spark.") and equals for name, equals, _ in pairs):
        raise HeadgateError("cannot read --conf: write it as spark.NAME=VALUE")
    return SparkSettings({name: value for name, _, value in pairs}, file)


def _read(file: Path) -> dict[str, str]:
    """NAME and VALUE on each line, with a space, = or : between them; # begins a comment."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HeadgateError(f"cannot read the Spark settings `{file}`: {type(error).__name__}") from None
    found = [_LINE.fullmatch(line.strip()) for line in lines if line.strip() and not line.strip().startswith("#")]
    if not all(found):
        raise HeadgateError(f"cannot read the Spark settings `{file}`: write NAME VALUE on each line")
    return {match["name"]: match["value"] for match in found if match}
