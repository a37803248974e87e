"""The Spark session that carries the plan: local by default, with settings that results must not depend on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",  # a partition is a cell: none may be merged or split
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "0",  # a kernel sees its partition as a whole
    "spark.sql.codegen.hugeMethodLimit": "8000",  # larger methods are never compiled by the JVM
    "spark.sql.variable.substitute": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}


def spark_session(home: Path, *, master: str = "local[2]", **more: str) -> SparkSession:
    """One session for the process; what Spark writes on its own goes below `home`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("headgate")
    settings = SETTINGS | {"spark.sql.warehouse.dir": str(home / "warehouse"), "spark.local.dir": str(home / "tmp")}
    for key, value in (settings | more).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # its logs repeat values of tuples; what failed is told by us
    return session
