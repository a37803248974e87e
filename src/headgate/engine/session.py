"""The Spark session that carries the plan: local by default, with settings that results must not depend on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.engine.sql.spark import SETTINGS as EXPRESSIONS

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
    "spark.sql.variable.substitute": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}


def spark_session(home: Path, *, master: str = "local[2]", **more: str) -> SparkSession:
    """One session for the process; what Spark writes on its own goes below `home`."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):  # nothing listens but for this machine
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(home / "tmp"))
    builder = SparkSession.builder.master(master).appName("headgate")
    settings = EXPRESSIONS | SETTINGS | {"spark.sql.warehouse.dir": str(home / "warehouse")}
    for key, value in (settings | more).items():
        builder = builder.config(key, value)
    with _errors_to(home / "spark.err"):
        return builder.getOrCreate()


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
