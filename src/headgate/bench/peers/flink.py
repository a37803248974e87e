"""Flink SQL in streaming mode, where `scripts/ensure-peers.sh` could install it.

    python -m headgate.bench.peers.flink W3r DATA WORK [--variant together] [--set checkpoint=1000]

Flink runs in a process of its own, as a local cluster, with a parallelism of two, object reuse and checkpoints. The
seconds are the job's own by Flink's clock: from its creation until all its tasks had ended, with all files in place.
They exclude the start of Python, the JVM and the cluster and the planning of the SQL; `wall` in the detail includes
planning and the cluster.

Flink's file source reads files in no order, and drops tuples behind its watermark. Selections are not affected and read
the files as they are. Windows and joins read one file, made before the clock starts, with the tuples of all their
streams in time order: one reader sees time go forward only, as with one partition of a log, and no stream runs ahead of
the other. (With one file each, nothing keeps the two at one pace, and an interval join visits all waiting tuples of the
same patient in its state, near or not.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.bench.peers.data import tuples_in
from headgate.bench.peers.outcome import BEGUN, Run, empty, main, read_outcomes, results_folder
from headgate.bench.peers.subprocesses import finish, peer, start
from headgate.bench.peers.workloads import LAST, Reader, columns_of, known, readers_of, streams_of

_TYPES = {"average": "DOUBLE"}
_NEAR = "hr.`at` BETWEEN bp.`at` - INTERVAL '1' SECOND AND bp.`at` + INTERVAL '1' SECOND"

VARIANTS = ("separate", "together")
"""A query for each reader, or one for all; the first is run if none is named."""


def run(workload: str, data: Path, work: Path, *, variant: str = "", checkpoint: int = 1000) -> Run:
    """`checkpoint`: milliseconds from one to the next; the end of a job waits for one."""
    return run_warm(workload, data, work, variant=variant, checkpoint=checkpoint)


def run_warm(
    workload: str, data: Path, work: Path, *, warm: Path | None = None, variant: str = "", checkpoint: int = 1000
) -> Run:
    """With `warm`, the same job over these streams runs first, in the same JVM."""
    known(workload)
    variant = variant or VARIANTS[0]
    if variant == "together" and workload == "W4r":
        raise ValueError("Flink orders windows by time attributes only, and a tuple's time is none after UNNEST")
    python, folders = peer("flink"), [(data, empty(work))]
    if warm is not None:
        folders.insert(0, (warm, empty(work / "warm")))
    task = {
        "settings": _settings(work.resolve(), checkpoint),
        "jobs": [_job(workload, variant, *each) for each in folders],
        "begun": str(work.resolve() / BEGUN),
    }
    found = json.loads(finish(start(python, "flink_program.py", json.dumps(task))).splitlines()[-1])
    detail: dict[str, str | float] = {"wall": found["wall"], "checkpoint": checkpoint}
    tuples = tuples_in(data, streams_of(workload))
    return Run("flink", workload, variant, found["seconds"], tuples, read_outcomes(workload, work), detail)


def _job(workload: str, variant: str, data: Path, work: Path) -> dict[str, list[str]]:
    readers, sources = readers_of(workload), _sources(workload, data, work)
    if variant == "together":
        return {"statements": [*sources, _sink_of_all(workload, work)], "inserts": [_of_all(workload, readers)]}
    return {
        "statements": [*sources, *(_sink(workload, reader, work) for reader in readers)],
        "inserts": [_of_one(workload, reader) for reader in readers],
    }


def _settings(work: Path, checkpoint: int) -> dict[str, str]:
    return {
        "parallelism.default": "2",
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": f"{checkpoint} ms",
        "execution.checkpointing.dir": f"file://{work}/state/checkpoints",
        "python.client.executable": "python",
    }


def _sources(workload: str, data: Path, work: Path) -> list[str]:
    """The tables hr and bp, as far as they are needed."""
    names = streams_of(workload)
    if workload < "W3":
        return [_source("hr", "hr INT", data.resolve() / "hr")]
    folder = _as_one_file(names, data, work)
    if len(names) == 1:
        return [_source("hr", "hr INT", folder)]
    views = [
        f"CREATE VIEW {name} AS SELECT `at`, patient, {name}, policy FROM events WHERE {name} IS NOT NULL"
        for name in names
    ]
    return [_source("events", ", ".join(f"{name} INT" for name in names), folder), *views]


def _as_one_file(names: Sequence[str], data: Path, work: Path) -> Path:
    """In time order; each tuple has the measurement of its own stream and NULL for the other."""
    one = work / "state" / "one-file"
    one.mkdir()
    folders = [sorted((data / name).glob("*.parquet")) for name in names]
    parts = [
        pa.concat_tables(map(pq.read_table, files), promote_options="default") for files in zip(*folders, strict=True)
    ]
    with pq.ParquetWriter(one / "events.parquet", parts[0].schema) as writer:
        for part in parts:
            writer.write_table(part.sort_by("at"), row_group_size=100_000)
    return one


def _source(name: str, measured: str, folder: Path) -> str:
    return f"""
        CREATE TABLE {name} (
          `at` TIMESTAMP(3), patient INT, {measured}, lvl INT, policy STRING,
          WATERMARK FOR `at` AS `at` - INTERVAL '0.001' SECOND
        ) WITH (
          'connector' = 'filesystem', 'path' = 'file://{folder}',
          'format' = 'parquet', 'parquet.utc-timezone' = 'true'
        )"""


def _columns(workload: str) -> str:
    return ", ".join(f"{name} {_TYPES.get(name, 'INT')}" for name in columns_of(workload))


def _sink(workload: str, reader: Reader, work: Path) -> str:
    path = results_folder(work, reader.name)  # unescaped: in a URI its `=` would be escaped
    return (
        f"CREATE TABLE out_{reader.name} ({_columns(workload)}) "
        f"WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'parquet')"
    )


def _sink_of_all(workload: str, work: Path) -> str:
    return (
        f"CREATE TABLE out_together ({_columns(workload)}, reader STRING) PARTITIONED BY (reader) "
        f"WITH ('connector' = 'filesystem', 'path' = 'file://{work / 'out'}', 'format' = 'parquet')"
    )


def _permits(reader: Reader, stream: str) -> str:
    listed = ", ".join(f"'{text}'" for text in reader.permitted)
    return "TRUE" if reader.roles is None else f"{stream}.policy IN ({listed})"


def _wants(workload: str, reader: Reader) -> str:
    """Whether a result of one tuple, or of a pair, is for this reader."""
    threshold = [] if reader.above is None else [f"hr.hr > {reader.above}"]
    return " AND ".join(threshold + [_permits(reader, stream) for stream in streams_of(workload)])


def _averages(partition: str, rows: str) -> str:
    return (
        f"SELECT {partition}, AVG(CAST(hr AS DOUBLE)) OVER ("
        f"PARTITION BY {partition} ORDER BY `at` ROWS BETWEEN {LAST - 1} PRECEDING AND CURRENT ROW) AS average "
        f"FROM ({rows})"
    )


def _of_one(workload: str, reader: Reader) -> str:
    """A query for one reader, as if there were no others; the planner shares what it can between queries."""
    wants = _wants(workload, reader)
    if workload.startswith("W4"):
        return f"INSERT INTO out_{reader.name} " + _averages("lvl", f"SELECT `at`, lvl, hr FROM hr WHERE {wants}")
    if workload.startswith("W3"):
        query = f"SELECT hr.patient, hr, bp FROM hr JOIN bp ON hr.patient = bp.patient AND {_NEAR} WHERE {wants}"
        return f"INSERT INTO out_{reader.name} {query}"
    return f"INSERT INTO out_{reader.name} SELECT patient, hr FROM hr WHERE {wants}"


def _of_all(workload: str, readers: Sequence[Reader]) -> str:
    """One query for all: a row for each reader who wants it, and a sink with a folder for each."""
    names = ", ".join(f"'{reader.name}'" for reader in readers)
    each = f"CROSS JOIN UNNEST(ARRAY[{names}]) AS r (reader)"
    wants = " OR ".join(f"(reader = '{reader.name}' AND {_wants(workload, reader)})" for reader in readers)
    if workload.startswith("W4"):
        rows = f"SELECT `at`, reader, lvl, hr FROM hr {each} WHERE {wants}"
        return f"INSERT INTO out_together SELECT lvl, average, reader FROM ({_averages('reader, lvl', rows)})"
    if workload.startswith("W3"):
        pairs = f"hr JOIN bp ON hr.patient = bp.patient AND {_NEAR} {each}"
        return f"INSERT INTO out_together SELECT hr.patient, hr, bp, reader FROM {pairs} WHERE {wants}"
    return f"INSERT INTO out_together SELECT patient, hr, reader FROM hr {each} WHERE {wants}"


if __name__ == "__main__":
    main(run, VARIANTS, run_warm)
