"""A stream that declares how long its tuples take to arrive, followed by Spark: a result comes by the clock, while
nothing comes that its reader may see.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_streams import DESCRIPTOR, Kept, Snapshots, snapshot

from headgate.clock import SystemClock
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.ingress.sources import StreamSource
from headgate.ingress.spark import SETTINGS
from headgate.model.results import DeliveredResult, delivered_results
from headgate.recovery.pipeline import Pipeline
from headgate.service.streams import Runner

DELAYED = replace(DESCRIPTOR, delay=1000)
COUNT = {"counts": "SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND]"}
PATIENCE = 60.0
OFTEN = "spark.sql.streaming.noDataProgressEventInterval"


def write(folder: Path, number: int, policy: str, count: int) -> float:
    """Tuples of this moment, in a file that gets its name when it is complete; returns when that was."""
    now = time.time()
    at = dt.datetime.fromtimestamp(now, dt.UTC).isoformat()
    line = json.dumps({"at": at, "a": 1, "x": 0.5, "policy": policy}) + "\n"
    hidden = folder / f".{number}.json"
    hidden.write_text(line * count)
    hidden.rename(folder / f"{number}.json")
    return now


@pytest.mark.parametrize("hidden", [0, 2000], ids=["a quiet stream", "a stream of others' tuples"])
def test_a_result_comes_by_the_clock_while_its_reader_sees_nothing(
    spark: SparkSession, tmp_path: Path, hidden: int
) -> None:
    spark.conf.set(OFTEN, SETTINGS[OFTEN])
    folder = tmp_path / "in"
    folder.mkdir()
    snapshots = Snapshots(replace(snapshot(COUNT), descriptors={"s": DELAYED}))
    box = Kept()
    pipeline = Pipeline(
        tmp_path / "home",
        snapshots,
        lambda _, program, schema: LocalExecutor(program, schema, evaluate),
        [box],
        SystemClock(),
    )
    runner = Runner(lambda: spark, tmp_path / "home", pipeline)
    try:
        write(folder, 0, "R2", 1)
        runner.read({"s": StreamSource(DELAYED, "json", {"path": str(folder)})})
        while pipeline.done("s") < 0:  # Spark is at work
            runner.wait(0.2)
        written, found, number = write(folder, 1, "R1", 1), list[DeliveredResult](), 1
        while not found and time.time() < written + PATIENCE:
            number += 1
            if hidden:
                write(folder, number, "R2", hidden)
            runner.wait(0.2)
            pipeline.pass_time(runner.idle())
            found = delivered_results(box.fetch("ann", "counts", snapshots.now))
        print(f"{time.time() - written:.1f} s after the tuple, in {number} turns")
        assert [x.values for x in found] == [(1,)]
        assert pipeline.counts.late["s"] == 0
    finally:
        spark.conf.unset(OFTEN)
        runner.stop()
        pipeline.close()
