"""Java's archive of Spark's classes (class data sharing): with it Spark starts with half of the processor time.

    python -m headgate.ingress.class_archive

makes it with a short run of Spark, unless it is there; set-up calls this. Java does not use an archive that was made by
another Java or with other jars, and says nothing of it: then Spark starts as it would without one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_LONGEST = 600
"""Seconds that a run may take: the machine may be busy."""
_TRAINING = "headgate.ingress.class_training"


def archive() -> Path:
    """Where the archive is: beside the packages that it was made of."""
    return Path(sys.prefix) / "share" / "headgate" / "spark-classes.jsa"


def java_options() -> str:
    """The options with which Java uses the archive; none if there is none."""
    place = archive()
    return f"-XX:SharedArchiveFile={place} {SILENT}" if _fits(place) and place.exists() else ""


def _fits(place: Path) -> bool:
    """Spark splits its options at spaces and quotes."""
    return not set(str(place)) & set(" \t'\"\\")


def _run(into: Path) -> None:
    subprocess.run([sys.executable, "-m", _TRAINING, str(into)], check=True, capture_output=True, timeout=_LONGEST)  # noqa: S603


def ensure(place: Path, say: Callable[[str], None], run: Callable[[Path], None] = _run) -> None:
    """Make the archive, unless this Java made it for these packages. Without it Spark works, so nothing here fails."""
    mark = place.with_suffix(".txt")
    try:
        made_by = _java_and_spark()
        if place.exists() and mark.read_text() == made_by:
            return
        say("storing Spark's classes, so that it starts faster (half a minute)")
        place.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place.parent) as folder:
            new = Path(folder) / "classes.jsa"
            run(new)
            new.chmod(0o444)
            mark.unlink(missing_ok=True)
            new.replace(place)
            mark.write_text(made_by)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"Spark's classes were not stored ({type(error).__name__}): Spark starts slower, and works")


def _java_and_spark() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    version = subprocess.run([java, "-version"], check=True, capture_output=True, timeout=_LONGEST).stderr  # noqa: S603
    return sha256(version + metadata.version("pyspark").encode() + sys.prefix.encode()).hexdigest()


if __name__ == "__main__":
    ensure(archive(), lambda text: print(f"headgate: {text}", flush=True))
