"""The Spark session, which reads sources and writes to Spark sinks: local by default. Results must not depend on its
settings."""

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
from headgate.standard_error import errors_to

_QUIET = Path(__file__).with_name("log4j2.properties")

_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"

SETTINGS = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_QUIET}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",  # partitions are neither merged nor split
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    _AT_ONCE: "0",  # one Arrow record batch for each partition
    "spark.sql.codegen.hugeMethodLimit": "8000",  # the JVM never compiles larger methods
    "spark.sql.files.openCostInBytes": "65536",  # small, so that small files are spread over cores
    "spark.driver.maxResultSize": "0",  # no limit: the source limits a batch, and its parts arrive one by one
    "spark.sql.variable.substitute": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.noDataProgressEventInterval": "400",  # how often a stream says that it finds nothing, in ms
    # It renames as atomically on local disks, and forks no process for each file of a checkpoint
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.permissions.umask-mode": "077",  # checkpoints and result files are private
}
_LOCAL = {
    "spark.authenticate": "true",  # with a secret that Spark generates for this process
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_SECRETS = ("HEADGATE_PASSWORD", "HEADGATE_STORE", "HEADGATE_OPTIONS", "PGPASSWORD")
"""Environment variables that Spark's processes must not inherit: the URL of a store may contain a password."""


def spark_session(home: Path, *, master: str = "local[2]", **more: str) -> SparkSession:
    """The one session of the process; files that Spark writes on its own go below `home`."""
    check_answers(master)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = master.startswith("local")
    if local:  # Spark listens on this machine only, and accepts only connections with its secret
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(home / "tmp"))
    builder = SparkSession.builder.master(master).appName("headgate")
    settings = EXPRESSIONS | SETTINGS | {"spark.sql.warehouse.dir": str(home / "warehouse")}
    for key, value in (settings | (_LOCAL if local else {}) | more).items():
        builder = builder.config(key, value)
    log = home / "spark.err"  # the Java process writes its errors there, not between the program's lines
    try:
        with errors_to(log), _nothing_left_behind(), _in_private():
            return builder.getOrCreate()
    except Exception as error:
        hint = f"it needs Java 17 or later; `--master` names where it runs; its own messages are in `{log}`"
        raise HeadgateError(f"cannot start Spark: {type(error).__name__}", hint=hint) from None


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A Spark data frame of an Arrow table. `createDataFrame` needs a positive batch size, so the setting is changed
    for the call; running streams have their own copy of the settings and are not affected."""
    usual = spark.conf.get(_AT_ONCE)
    spark.conf.set(_AT_ONCE, str(max(1, table.num_rows)))
    try:
        return spark.createDataFrame(table)
    finally:
        spark.conf.set(_AT_ONCE, str(usual))


@contextmanager
def _in_private() -> Iterator[None]:
    """Processes that start inside do not inherit secrets, and the files they write are private."""
    kept = {name: os.environ.pop(name) for name in _SECRETS if name in os.environ}
    mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(mask)
        os.environ.update(kept)


@contextmanager
def _nothing_left_behind() -> Iterator[None]:
    """Kills Spark's Java process if the start fails or is interrupted: it would go on starting unattended."""
    before = _descendants()
    try:
        yield
    except BaseException:
        stopped = set[int]()
        while more := {x for x in _descendants() - before - stopped if _is_spark(x)}:
            for process in more:  # stopped first: one that runs could start another while this looks
                with suppress(OSError):
                    os.kill(process, signal.SIGSTOP)
            stopped |= more
        for process in stopped:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        raise


def _is_spark(process: int) -> bool:
    try:
        return b"org.apache.spark" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def _descendants() -> set[int]:
    """The descendants of this process, as far as `/proc` shows them."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found, more = set[int](), {os.getpid()}
    while more:
        more = {process for process, parent in parents.items() if parent in more}
        found |= more
    return found
