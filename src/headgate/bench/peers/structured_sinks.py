"""Structured Streaming with foreachBatch: many results of one micro-batch, each written by a job of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headgate.bench.peers.outcome import results_folder
from headgate.bench.peers.workloads import Reader

AT_ONCE = 2  # jobs; more than there are cores gain nothing


def each_reader_in_a_loop(
    stream: DataFrame, readers: Sequence[Reader], wants: Callable[[Reader], Column], work: Path
) -> StreamingQuery:
    """The micro-batch is kept in memory and filtered once for each reader.

    A batch that is repeated after a failure replaces what it wrote before: hence a folder for each batch.
    """

    def write(batch: DataFrame, number: int) -> None:
        batch = batch.select("patient", "hr", "policy").persist()

        def write_one(reader: Reader) -> None:
            folder = results_folder(work, reader.name) / f"batch={number}"
            batch.filter(wants(reader)).select("patient", "hr").write.mode("overwrite").parquet(str(folder))

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(write_one, readers))
        batch.unpersist()

    return foreach_batch(stream, write, work)


def foreach_batch(stream: DataFrame, write: Callable[[DataFrame, int], None], work: Path) -> StreamingQuery:
    writing = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
    return writing.option("checkpointLocation", str(work / "state" / "checkpoint")).start()
