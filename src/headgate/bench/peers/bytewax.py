"""bytewax, where `scripts/ensure-peers.sh` could install it.

    python -m headgate.bench.peers.bytewax W3r DATA WORK [--set processes=1]

Two processes of one worker each, because Python code of one process runs on one core at a time; with recovery on, a
snapshot every ten seconds. The clock runs from when the first process starts the dataflow until that of the last one
has ended and its files are closed; the start of Python and imports are excluded.

Variants: `tuples` has a tuple as an item; `arrow` has a whole Arrow batch as an item, which makes selections cheap and
is possible for them only: state is kept by key, and a batch has many keys.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from headgate.bench.peers.data import PATIENTS, tuples_in
from headgate.bench.peers.outcome import Run, empty, main, read_outcomes
from headgate.bench.peers.subprocesses import finish, peer, run_module, start
from headgate.bench.peers.workloads import LAST, LEVELS, NEAR_MICROS, columns_of, known, readers_of, streams_of

VARIANTS = ("tuples", "arrow")
BATCH = {"tuples": 4_096, "arrow": 50_000}


def run(workload: str, data: Path, work: Path, *, variant: str = "", processes: int = 2) -> Run:
    selects = known(workload) in ("W1", "W2")
    variant = variant or ("arrow" if selects else "tuples")
    if variant == "arrow" and not selects:
        raise ValueError("whole batches as items are for W1 and W2 only")
    python, work = peer("bytewax"), empty(work)
    recovery = work / "state" / "recovery"
    recovery.mkdir()
    run_module(python, "bytewax.recovery", str(recovery), str(processes))
    task = {
        "workload": workload,
        "variant": variant,
        "batch": BATCH[variant],
        "files": {name: sorted(map(str, (data.resolve() / name).glob("*.parquet"))) for name in streams_of(workload)},
        "out": str(work / "out"),
        "recovery": str(recovery),
        "columns": {name: "double" if name == "average" else "int32" for name in columns_of(workload)},
        "readers": [{"name": r.name, "permitted": r.permitted, "above": r.above} for r in readers_of(workload)],
        "patients": PATIENTS,
        "levels": LEVELS,
        "near": NEAR_MICROS,
        "last": LAST,
        "addresses": [f"127.0.0.1:{port}" for port in _free_ports(processes)],
    }
    started = [
        start(python, "bytewax_program.py", json.dumps(task | {"process": number})) for number in range(processes)
    ]
    found = [json.loads(finish(program).splitlines()[-1]) for program in started]
    seconds = max(each["end"] for each in found) - min(each["begin"] for each in found)
    detail: dict[str, str | float] = {"processes": processes, "batch": BATCH[variant]}
    tuples = tuples_in(data, streams_of(workload))
    return Run("bytewax", workload, variant, seconds, tuples, read_outcomes(workload, work), detail)


def _free_ports(count: int) -> list[int]:
    """Free ports, all bound at the same time so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


if __name__ == "__main__":
    main(run, VARIANTS)
