"""Headgate itself on the workloads of its peers: a real store, a session for each reader, checkpoints, Parquet files.

    python -m headgate.bench.peers.headgate W3r DATA WORK [--set cores=1 partitions=8]

The clock runs from before the first streaming query is defined until all result files have their names, as for the
others.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from argon2 import PasswordHasher

from headgate.access.passwords import Passwords
from headgate.bench.peers.data import tuples_in
from headgate.bench.peers.outcome import Run, empty, main, read_outcomes
from headgate.bench.peers.workloads import ALARM, LAST, Reader, readers_of, streams_of
from headgate.bench.processors import spent
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import Address
from headgate.execution.memory import keep_freed
from headgate.service import Headgate
from headgate.service.runs import Execution, Processing

_SECRET = "a password for benches"  # noqa: S105
_STREAM = """CREATE STREAM {name} (at TIMESTAMP, patient INT, {name} INT, lvl INT, policy STRING)
EVENT TIME at {roles} SOURCE parquet (path = '{path}'{files});
GRANT VIEW OBJECT, READ TUPLE ON STREAM {name} TO PUBLIC;"""


def query_of(workload: str, reader: Reader) -> str:
    match workload:
        case "W1" | "W2":
            return f"SELECT patient, hr WHERE hr > {reader.above or ALARM} FROM hr"  # noqa: S608
        case "W3" | "W3r":
            return (
                "SELECT hr.patient, hr, bp FROM hr [RANGE 1 SECONDS], bp [RANGE 1 SECONDS] "
                "WHERE hr.patient = bp.patient"
            )
        case _:
            return f"SELECT lvl, AVG(hr) AS average FROM hr [PARTITIONED BY lvl ROWS {LAST}] GROUP BY lvl"  # noqa: S608


class Readers:
    """Where each reader's results go: the same folders in which results of the other engines are read."""

    def __init__(self, headgate: Headgate) -> None:
        self._headgate = headgate

    def of(self, subscriber: str, query: str) -> Address:
        out = self._headgate.snapshots.outgoing(subscriber, query)
        return Address((f"reader={out.user}",), out.columns)

    def of_rejected(self, stream: str) -> tuple[str, ...]:
        return (f"_{stream}",)


def prepared(workload: str, data: Path, home: Path, *, files: int = 0) -> Headgate:
    """A store with the streams, the queries and every reader's subscription."""
    headgate = Headgate(
        f"sqlite:///{home / 'headgate.db'}", b"a key for benches", passwords=Passwords(PasswordHasher(1, 8, 1))
    )
    headgate.initialise("joe", _SECRET)
    joe = headgate.login("joe", _SECRET)
    readers = readers_of(workload)
    roles = sorted({role for reader in readers for role in reader.roles or ()})
    script = [f"CREATE ROLE {role};" for role in roles]
    for name in streams_of(workload):
        own = "ROLES FROM policy" if roles else ""
        few = f", maxFilesPerTrigger = '{files}'" if files else ""
        script.append(_STREAM.format(name=name, roles=own, path=data / name, files=few))
    texts = dict.fromkeys(query_of(workload, reader) for reader in readers)
    for number, text in enumerate(texts):
        script.append(f"CREATE QUERY q{number} AS {text}; START QUERY q{number};")
        script.append(f"GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM q{number} TO PUBLIC;")
    for reader in readers:
        script.append(f"CREATE USER \"{reader.name}\" PASSWORD '{_SECRET}';")
        script += [f'GRANT ROLE {role} TO USER "{reader.name}";' for role in sorted(reader.roles or ())]
    headgate.execute(joe, "\n".join(script))
    for reader in readers:
        token = headgate.login(reader.name, _SECRET)
        headgate.execute(token, f"SUBSCRIBE TO joe.q{list(texts).index(query_of(workload, reader))}")
    return headgate


def run(workload: str, data: Path, work: Path, *, files: int = 0, cores: int = 2, partitions: int = 0) -> Run:
    """In Spark's tasks, in so many partitions, or beside the driver (0)."""
    keep_freed()  # as `headgate run` does
    work = empty(work)
    headgate = prepared(workload, data.resolve(), work / "state", files=files)
    sink = ParquetSink(work / "out", Readers(headgate))
    execution = Execution("tasks", partitions) if partitions else Execution("driver")
    processing = Processing(headgate, work / "state" / "engine", [sink], master=f"local[{cores}]", execution=execution)
    begin, before = time.perf_counter(), spent()
    processing.replay()
    seconds, took = time.perf_counter() - begin, spent().since(before)
    processing.close()
    headgate.close()
    tuples = tuples_in(data, streams_of(workload))
    return Run("headgate", workload, "", seconds, tuples, read_outcomes(workload, work), asdict(took))


if __name__ == "__main__":
    main(run)
