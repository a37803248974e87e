"""The Spark session that carries the plan: local by default, with settings that results must not depend on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.errors import HeadgateError
from headgate.expressions.sql.spark import SETTINGS as EXPRESSIONS
from headgate.ingress.masters import check_answers

_QUIET = Path(__file__).with_name("log4j2.properties")

_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"

SETTINGS = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_QUIET}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",  # a partition is a cell: none may be merged or split
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    _AT_ONCE: "0",  # a kernel sees its partition as a whole
    "spark.sql.codegen.hugeMethodLimit": "8000",  # larger methods are never compiled by the JVM
    "spark.sql.files.openCostInBytes": "65536",  # so small are parts of files; or one core would read them alone
    "spark.driver.maxResultSize": "0",  # what a batch may hold is limited by its source; parts of it come one by one
    "spark.sql.variable.substitute": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.hadoop.fs.permissions.umask-mode": "077",  # checkpoints, and results that Spark writes to files, are ours
}
_LOCAL = {
    "spark.authenticate": "true",  # with a secret that Spark makes up for this one process
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_SECRETS = ("HEADGATE_PASSWORD", "HEADGATE_STORE", "HEADGATE_OPTIONS", "PGPASSWORD")
"""What the environment may hold for us that nobody else needs to know: a URL of a store may have a password in it."""


def spark_session(home: Path, *, master: str = "local[2]", **more: str) -> SparkSession:
    """One session for the process; what Spark writes on its own goes below `home`."""
    check_answers(master)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = master.startswith("local")
    if local:  # nothing listens but for this machine, and to nobody who has not Spark's secret
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(home / "tmp"))
    builder = SparkSession.builder.master(master).appName("headgate")
    settings = EXPRESSIONS | SETTINGS | {"spark.sql.warehouse.dir": str(home / "warehouse")}
    for key, value in (settings | (_LOCAL if local else {}) | more).items():
        builder = builder.config(key, value)
    said = home / "spark.err"
    try:
        with _errors_to(said), _nothing_left_behind(), _in_private():
            return builder.getOrCreate()
    except Exception as error:
        hint = f"it needs Java 17 or later, and `--master` says where it runs; what it said itself is in `{said}`"
        raise HeadgateError(f"Spark cannot be started ({type(error).__name__})", hint=hint) from None


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table of ours for Spark. Spark asks for a size of parts here, where it has none; streams have settings of their
    own, copied when they begin, so they do not see it."""
    usual = spark.conf.get(_AT_ONCE)
    spark.conf.set(_AT_ONCE, str(max(1, table.num_rows)))
    try:
        return spark.createDataFrame(table)
    finally:
        spark.conf.set(_AT_ONCE, str(usual))


@contextmanager
def _in_private() -> Iterator[None]:
    """Processes that begin now are not told our secrets, and what they write is for nobody else."""
    kept = {name: os.environ.pop(name) for name in _SECRETS if name in os.environ}
    mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(mask)
        os.environ.update(kept)


@contextmanager
def _nothing_left_behind() -> Iterator[None]:
    """Spark's Java does not hear of an interruption, and would go on starting for nobody."""
    before = _descendants()
    try:
        yield
    except BaseException:
        for process in _descendants() - before:
            with suppress(OSError):
                if b"org.apache.spark" in Path(f"/proc/{process}/cmdline").read_bytes():
                    os.kill(process, signal.SIGKILL)
        raise


def _descendants() -> set[int]:
    """The processes that come from this one, as far as the system tells."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found, more = set[int](), {os.getpid()}
    while more:
        more = {process for process, parent in parents.items() if parent in more}
        found |= more
    return found


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Whatever the Java process says on its own belongs into a file, not among the answers."""
    sys.stderr.flush()
    kept = os.dup(2)
    new = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(new, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(new)
