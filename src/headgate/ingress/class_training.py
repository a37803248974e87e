"""A short run of Spark, from which Java writes its archive of classes (`class_archive`).

python -m headgate.ingress.class_training ARCHIVE
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import DataFrame

from headgate.ingress.class_archive import SILENT
from headgate.ingress.spark import spark_session

_LONGEST = 600


def train(into: str) -> None:
    """Start Spark, use it as the engine does, and end it; Java then writes the archive."""
    with TemporaryDirectory() as folder:
        os.environ["SPARK_LOCAL_DIRS"] = folder
        spark = spark_session(Path(folder), more_java_options=f"-XX:ArchiveClassesAtExit={into} {SILENT}")
        for form in ("parquet", "json"):
            data, checkpoint = f"{folder}/{form}", f"{folder}/checkpoint-{form}"
            spark.range(100).selectExpr("id", "CAST(id AS STRING) AS text").write.format(form).save(data)
            stream = spark.readStream.format(form).schema("id BIGINT, text STRING").load(data)
            writer = stream.writeStream.foreachBatch(_read).option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()
        java = spark.sparkContext._gateway
        spark.stop()
        java.shutdown()  # type: ignore[union-attr]
        java.proc.stdin.close()  # type: ignore[union-attr]
        java.proc.wait(_LONGEST)  # type: ignore[union-attr]


def _read(frame: DataFrame, _: int) -> None:
    """As batches are read: by the driver, and by tasks after a shuffle."""
    frame.toArrow()
    frame.repartition(2).mapInArrow(_unchanged, frame.schema).collect()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


if __name__ == "__main__":
    train(sys.argv[1])
