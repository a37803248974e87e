"""Plain Structured Streaming, without Headgate: each workload as a Spark expert would write it.

    python -m headgate.bench.peers.structured W3r DATA WORK [--variant bucket] [--set files=2 partitions=4]

The clock runs from before the first streaming query is defined until the last one has ended: this includes planning,
generated code, reading, state, checkpoints and written results, and excludes the start of Python, the JVM and the
session. The JVM is as cold as in any process that has just been started, or, with `--warm`, has done the same on other
streams before.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from headgate.bench.peers.data import tuples_in
from headgate.bench.peers.outcome import Run, empty, main, read_outcomes, results_folder
from headgate.bench.peers.structured_sinks import each_reader_in_a_loop
from headgate.bench.peers.structured_windows import averages_by_carried_rows, averages_by_state
from headgate.bench.peers.workloads import NEAR_MICROS, Reader, known, readers_of, streams_of

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.files.openCostInBytes": "65536",  # otherwise one core would read a file alone and the other wait
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # nothing waits for a watermark at the end
}
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Job:
    """What a workload is written with."""

    spark: SparkSession
    data: Path
    work: Path
    files: int
    readers: Sequence[Reader]

    def stream(self, name: str) -> DataFrame:
        schema = f"at TIMESTAMP, patient INT, {name} INT, lvl INT, policy STRING"
        reading = self.spark.readStream.schema(schema)
        return (reading.option("maxFilesPerTrigger", self.files) if self.files else reading).parquet(
            str(self.data / name)
        )

    def write(self, results: DataFrame, *reader: str) -> StreamingQuery:
        """Writes the results of one reader, or of all by the column `reader`."""
        writing = results.writeStream.format("parquet").trigger(availableNow=True)
        if not reader:
            writing = writing.partitionBy("reader")
        path = results_folder(self.work, reader[0]) if reader else self.work / "out"
        state = self.work / "state" / "-".join(("checkpoint", *reader))
        return writing.option("checkpointLocation", str(state)).start(str(path))


def permits(reader: Reader, policy: str = "policy") -> Column:
    return F.col(policy).isin(reader.permitted)


def mask(readers: Sequence[Reader]) -> Column:
    """Who may see the tuple, as bits: the text is checked once, and tuples that nobody may see can be dropped at
    once."""
    bits = [F.when(permits(reader), F.lit(1 << i)).otherwise(F.lit(0)) for i, reader in enumerate(readers)]
    return reduce(Column.__add__, bits).alias("mask")


def for_each(readers: Sequence[Reader], wants: Callable[[int, Reader], Column]) -> Column:
    """The names of the readers who want the row, a row for each."""
    names = F.array(*(F.when(wants(i, reader), F.lit(reader.name)) for i, reader in enumerate(readers)))
    return F.explode(F.array_compact(names)).alias("reader")


def _of_mask(bits: str) -> Callable[[int, Reader], Column]:
    return lambda i, _: F.col(bits).bitwiseAND(1 << i) != 0


def _wants(reader: Reader) -> Column:
    return (F.col("hr") > F.lit(reader.above)) & permits(reader)


def selection(job: Job) -> list[StreamingQuery]:
    (reader,) = job.readers
    return [job.write(job.stream("hr").filter(F.col("hr") > F.lit(reader.above)).select("patient", "hr"), reader.name)]


def a_query_each(job: Job) -> list[StreamingQuery]:
    """Sixty queries that share nothing: each has its own reading, checkpoint and sink."""
    return [
        job.write(job.stream("hr").filter(_wants(reader)).select("patient", "hr"), reader.name)
        for reader in job.readers
    ]


def a_loop(job: Job) -> list[StreamingQuery]:
    return [each_reader_in_a_loop(job.stream("hr"), job.readers, _wants, job.work)]


def a_row_each(job: Job) -> list[StreamingQuery]:
    """One pass that makes a row for each person who wants the tuple, and one sink with a folder for each."""
    rows = job.stream("hr").select("patient", "hr", for_each(job.readers, lambda _, reader: _wants(reader)))
    return [job.write(rows)]


def _sides(job: Job) -> tuple[DataFrame, DataFrame]:
    """What the join needs of both streams. Time never goes back within a stream, so the watermark has no delay."""
    by_roles = len(job.readers) > 1

    def side(name: str, at: str) -> DataFrame:
        columns = [F.col("at").alias(at), F.col("patient"), F.col(name)]
        rows = job.stream(name).select(*columns, *([mask(job.readers).alias(f"{name}_mask")] if by_roles else []))
        rows = rows.filter(F.col(f"{name}_mask") != 0) if by_roles else rows
        return rows.withWatermark(at, "0 seconds")

    return side("hr", "at"), side("bp", "bp_at").withColumnRenamed("patient", "bp_patient")


def _near() -> Column:
    return F.expr(
        f"bp_at >= at - INTERVAL {NEAR_MICROS} MICROSECONDS AND bp_at <= at + INTERVAL {NEAR_MICROS} MICROSECONDS"
    )


def _write_pairs(job: Job, pairs: DataFrame) -> list[StreamingQuery]:
    if len(job.readers) == 1:
        return [job.write(pairs.select("patient", "hr", "bp"), job.readers[0].name)]
    return [job.write(pairs.select("patient", "hr", "bp", for_each(job.readers, _of_mask("both"))))]


def _of_both(job: Job, pairs: DataFrame) -> DataFrame:
    if len(job.readers) == 1:
        return pairs
    both = F.col("hr_mask").bitwiseAND(F.col("bp_mask"))
    return pairs.filter(both != 0).withColumn("both", both)


def join_by_range(job: Job) -> list[StreamingQuery]:
    hr, bp = _sides(job)
    pairs = hr.join(bp, (F.col("patient") == F.col("bp_patient")) & _near())
    return _write_pairs(job, _of_both(job, pairs))


def join_by_bucket(job: Job) -> list[StreamingQuery]:
    """Seconds as a further key: bp is there three times, for its own second and both neighbours, so a key has few
    tuples."""
    hr, bp = _sides(job)
    second = F.expr(f"unix_micros(at) DIV {NEAR_MICROS}")
    beside = F.expr(
        f"explode(sequence(unix_micros(bp_at) DIV {NEAR_MICROS} - 1, unix_micros(bp_at) DIV {NEAR_MICROS} + 1))"
    )
    hr, bp = hr.withColumn("second", second), bp.withColumn("bp_second", beside)
    keys = (F.col("patient") == F.col("bp_patient")) & (F.col("second") == F.col("bp_second"))
    return _write_pairs(job, _of_both(job, hr.join(bp, keys & _near())))


def _seen(job: Job) -> DataFrame:
    """The tuples of hr that go into windows, with the reader whose window it is."""
    if len(job.readers) == 1:
        return job.stream("hr").select("at", "lvl", "hr", F.lit(job.readers[0].name).alias("reader"))
    return job.stream("hr").select("at", "lvl", "hr", for_each(job.readers, lambda _, reader: permits(reader)))


def windows_by_state(job: Job) -> list[StreamingQuery]:
    return [job.write(averages_by_state(_seen(job)))]


def windows_by_carried_rows(job: Job) -> list[StreamingQuery]:
    return [averages_by_carried_rows(_seen(job), job.work)]


VARIANTS: Mapping[str, Mapping[str, Callable[[Job], list[StreamingQuery]]]] = {
    "W1": {"filter": selection},
    "W2": {"explode": a_row_each, "loop": a_loop, "queries": a_query_each},
    "W3": {"range": join_by_range, "bucket": join_by_bucket},
    "W4": {"carried": windows_by_carried_rows, "state": windows_by_state},
}
"""Ways to write each workload; the first is run if none is named. `every --all-variants` tells which is best."""


def run(
    workload: str, data: Path, work: Path, *, variant: str = "", files: int = 1, partitions: int = 2, rocksdb: int = 0
) -> Run:
    """`files` of each stream make a micro-batch (0: all that there are); `rocksdb=1` keeps state there."""
    ways = VARIANTS[known(workload)[:2]]
    variant = variant or next(iter(ways))
    work = empty(work)
    spark = _session(work, partitions, rocksdb)
    job = Job(spark, data.resolve(), work, files, readers_of(workload))
    start = time.perf_counter()
    queries = ways[variant](job)
    for query in queries:
        query.awaitTermination()
    seconds = time.perf_counter() - start
    batches = max(query.recentProgress[-1]["batchId"] + 1 if query.recentProgress else 0 for query in queries)
    detail: dict[str, str | float] = {"files": files, "partitions": partitions, "rocksdb": rocksdb, "batches": batches}
    tuples = tuples_in(data, streams_of(workload))
    return Run("structured streaming", workload, variant, seconds, tuples, read_outcomes(workload, work), detail)


def _session(work: Path, partitions: int, rocksdb: int) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = SETTINGS | {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.local.dir": str(work / "state" / "tmp"),
        "spark.sql.warehouse.dir": str(work / "state" / "warehouse"),
    }
    if rocksdb:
        settings["spark.sql.streaming.stateStore.providerClass"] = _ROCKSDB
    builder = SparkSession.builder.master("local[2]").appName("structured streaming")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


if __name__ == "__main__":
    main(run, [variant for ways in VARIANTS.values() for variant in ways])
