"""The Spark session, which reads sources and writes to Spark sinks: local by default. Results must not depend on its
settings."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession

from headgate.errors import HeadgateError
from headgate.expressions.sql.spark import SETTINGS as EXPRESSIONS
from headgate.ingress.class_archive import java_options
from headgate.ingress.kafka_jars import connector_settings
from headgate.ingress.masters import check_answers
from headgate.ingress.spark_settings import CHOSEN, SparkSettings
from headgate.logs import failure
from headgate.standard_error import errors_to

_QUIET = Path(__file__).with_name("log4j2.properties")

_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"

_COMPILED_LATE = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Java compiles with its slow compiler only what runs ten times as often as usual: that compiler took half of the
processor time of its process, which mostly moves bytes."""

_JAVA = "spark.driver.extraJavaOptions"
SETTINGS = {
    _JAVA: f"-Dlog4j2.configurationFile={_QUIET} {_COMPILED_LATE}",
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
    "spark.sql.streaming.fileSource.log.cleanupDelay": "10s",  # of logs that were compacted; nobody else reads them
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
_SUBMITTED, _ARGUMENTS = "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"
"""Environment variables of `spark-submit`: set in programs that it runs; its words where PySpark runs it."""
_SECRETS = ("HEADGATE_PASSWORD", "HEADGATE_STORE", "HEADGATE_OPTIONS", "PGPASSWORD")
"""Environment variables that Spark's processes must not inherit: the URL of a store may contain a password."""


LOCAL = "local[2]"
"""Where Spark runs unless an operator, or `spark-submit`, says otherwise."""


def spark_session(
    home: Path,
    *,
    master: str | None = LOCAL,
    settings: SparkSettings | None = None,
    more_java_options: str | None = None,
) -> SparkSession:
    """The one session of the process; files that Spark writes on its own go below `home`. Under `spark-submit` there is
    a Java process already, and without `master` it runs where that was told to. `more_java_options` are in place of
    those that make Java use the archive of classes."""
    submitted = _SUBMITTED in os.environ
    if master is None and not submitted:
        master = LOCAL
    if master is not None:
        check_answers(master)
    asked = settings or SparkSettings()
    asked.check({*EXPRESSIONS, *SETTINGS, *_LOCAL})
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ.setdefault("PYSPARK_PYTHON", asked.python or sys.executable)
    local = master is not None and master.startswith("local")
    if local:  # Spark listens on this machine only, and accepts only connections with its secret
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(home / "tmp"))
    builder = SparkSession.builder.appName("headgate")
    if master is not None:
        builder = builder.master(master)
    own = EXPRESSIONS | SETTINGS | connector_settings(local=local)
    own["spark.sql.warehouse.dir"] = str(home / "warehouse")
    own[_JAVA] += f" {java_options() if more_java_options is None else more_java_options}"
    chosen = asked.names | (_of_submit() if submitted else frozenset())
    usual = {name: value for name, value in (own | (_LOCAL if local else {})).items() if name not in chosen}
    for key, value in (usual | dict(asked.given)).items():
        builder = builder.config(key, value)
    log = home / "spark.err"  # the Java process writes its errors there, not between the program's lines
    try:
        with errors_to(log), _nothing_left_behind(), _ctrl_c_kept(), _in_private(), _with_file(asked), _written():
            session = builder.getOrCreate()
        if submitted:  # its Java process began with logs of its own, and logs contain values of tuples
            session.sparkContext.setLogLevel("OFF")
        _errors_to_the_log(session.sparkContext)
        return session
    except Exception as error:
        hint = f"it needs Java 17 or later; `--master` names where it runs; its own messages are in `{log}`"
        raise HeadgateError(f"cannot start Spark: {type(error).__name__}", hint=hint) from None


def _errors_to_the_log(context: SparkContext) -> None:
    """PySpark's server for accumulators would print a traceback if Java ends before it, as on a busy machine."""

    def handle_error(*_: object) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            failure("spark", "a connection of Java's process failed", error, level=logging.DEBUG)

    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = handle_error


def session_beside(given: SparkSession) -> SparkSession:
    """A session of our own in the Spark that somebody else has started. Its settings are ours as far as Spark lets them
    be changed; those of the given session stay as they are."""
    own = given.newSession()
    for key, value in (EXPRESSIONS | SETTINGS).items():
        if own.conf.isModifiable(key):
            own.conf.set(key, value)
    return own


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A Spark data frame of an Arrow table. `createDataFrame` needs a positive batch size, so the setting is changed
    for the call; running streams have their own copy of the settings and are not affected."""
    usual = spark.conf.get(_AT_ONCE)
    spark.conf.set(_AT_ONCE, str(max(1, table.num_rows)))
    try:
        return spark.createDataFrame(table)
    finally:
        spark.conf.set(_AT_ONCE, str(usual))


def _of_submit() -> frozenset[str]:
    """The settings that `spark-submit` was given, of those that an operator may choose."""
    SparkContext._ensure_initialized()  # connects to the Java process that there is
    return CHOSEN & {name for name, _ in SparkConf().getAll()}


@contextmanager
def _with_file(settings: SparkSettings) -> Iterator[None]:
    """Spark's Java process, if it starts inside, reads the file of settings."""
    before = os.environ.get(_ARGUMENTS)
    os.environ[_ARGUMENTS] = settings.submit_arguments(before or "pyspark-shell")
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before


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
def _ctrl_c_kept() -> Iterator[None]:
    """PySpark puts its own handler of Ctrl-C in place of the program's, whenever Spark starts in the main thread."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _written() -> Iterator[None]:
    """Writes why Spark could not be started to standard error. Nothing was read yet, so it holds no values."""
    try:
        yield
    except Exception as error:
        os.write(2, f"{error}\n".encode())
        raise


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
