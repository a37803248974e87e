"""Windows of the last rows in Structured Streaming, which has none of its own: two ways to write them.

Both take the columns at, lvl, hr and reader, and return reader, lvl and average.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from headgate.bench.peers.structured_sinks import foreach_batch
from headgate.bench.peers.workloads import LAST

_WINDOW = ("reader", "lvl")


def averages_by_state(seen: DataFrame) -> DataFrame:
    """A Python function for each window, with the last values as its state.

    Not `transformWithStateInPandas`: it needs protobuf and gives nothing more here.
    """
    return (
        seen.groupBy(*_WINDOW)
        .applyInPandasWithState(
            _averages,
            "reader STRING, lvl INT, average DOUBLE",
            "last BINARY",  # an array as state fails in the Python worker of Spark 4.3
            "append",
            GroupStateTimeout.NoTimeout,
        )
        .select("lvl", "average", "reader")
    )


def _averages(key: tuple[str, int], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    rows = pd.concat(parts).sort_values("at")
    before = np.frombuffer(state.get[0] if state.exists else b"", np.int64)
    values = np.concatenate([before, rows["hr"].to_numpy(np.int64)])
    sums = np.concatenate([[0], np.cumsum(values)])
    ends = np.arange(len(before) + 1, len(sums))
    begins = np.maximum(ends - LAST, 0)
    state.update((values[1 - LAST :].tobytes(),))
    yield pd.DataFrame({"reader": key[0], "lvl": key[1], "average": (sums[ends] - sums[begins]) / (ends - begins)})


def averages_by_carried_rows(seen: DataFrame, work: Path) -> StreamingQuery:
    """SQL windows over the micro-batch and the last rows before it, which each batch saves for the next one.

    Results and saved rows are in a folder for each batch, so a batch that is repeated finds what it found before.
    """
    window = Window.partitionBy(*_WINDOW).orderBy("at")
    last = Window.partitionBy(*_WINDOW).orderBy(F.desc("at"))

    def write(batch: DataFrame, number: int) -> None:
        rows = batch.withColumn("new", F.lit(True))
        if number > 0:
            carried = batch.sparkSession.read.schema(batch.schema).parquet(_carried(work, number - 1))
            rows = rows.unionByName(carried.withColumn("new", F.lit(False)))
        rows = rows.persist()
        average = F.avg("hr").over(window.rowsBetween(1 - LAST, Window.currentRow))
        results = rows.withColumn("average", average).filter("new").select("lvl", "average", "reader")
        results.withColumn("batch", F.lit(number)).write.mode("overwrite").option(
            "partitionOverwriteMode", "dynamic"
        ).partitionBy("reader", "batch").parquet(str(work / "out"))
        kept = rows.withColumn("age", F.row_number().over(last)).filter(F.col("age") < LAST)
        kept.select(batch.columns).coalesce(1).write.mode("overwrite").parquet(_carried(work, number))
        rows.unpersist()

    return foreach_batch(seen, write, work)


def _carried(work: Path, number: int) -> str:
    return str(work / "state" / "carried" / f"batch={number}")
