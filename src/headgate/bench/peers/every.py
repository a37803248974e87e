"""Every engine on every workload, each run in a process of its own.

    python -m headgate.bench.peers.every DATA WORK [W1 W2 ...] [--all-variants] [--repeat 3] [--only flink bytewax]

One line of JSON for each run, as it ends; then a table: the fastest run of each, and whether all of them agree with the
expected results. An engine that is not installed, or a run that fails, gets a line that says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.bench.peers.outcome import BEGUN
from headgate.bench.peers.workloads import WORKLOADS

_STATELESS = ("W1", "W2")
_TO_BEGIN = 300  # seconds for an engine to start and warm up
ENGINES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "structured": {
        "W1": ("filter",),
        "W2": ("explode", "loop", "queries"),
        "W3": ("range", "bucket"),
        "W3r": ("range", "bucket"),
        "W4": ("carried", "state"),
        "W4r": ("carried", "state"),
    },
    "bytewax": {workload: ("arrow", "tuples") if workload in _STATELESS else ("tuples",) for workload in WORKLOADS},
    "flink": {
        workload: ("separate", "together") if workload in ("W2", "W3r") else ("separate",) for workload in WORKLOADS
    },
}
"""Engine -> workload -> the available ways to write it."""


def run_one(
    engine: str,
    workload: str,
    variant: str | None,
    data: Path,
    work: Path,
    limit: int,
    options: Mapping[str, int] | None = None,
    warm: Path | None = None,
) -> dict[str, Any]:
    """What the run printed, or {"failed": why}; if it took longer than `limit` seconds, "limit" says so."""
    module = f"headgate.bench.peers.{engine}"
    command = [sys.executable, "-m", module, workload, str(data), str(work / engine)]
    command += ["--variant", variant] if variant else []
    command += ["--set", *(f"{name}={value}" for name, value in options.items())] if options else []
    command += ["--warm", str(warm)] if warm else []
    known: dict[str, Any] = {"engine": engine, "workload": workload, "variant": variant or "usual"}
    shutil.rmtree(work / engine, ignore_errors=True)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        # A session of its own, so that processes that an engine starts can be ended with it.
        process = subprocess.Popen(command, stdout=out, stderr=errors, start_new_session=True)
        try:
            in_time = _ended(process, work / engine / BEGUN, limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not in_time:
            return known | {"failed": f"not done within {limit} s", "limit": limit}
        out.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            return known | {"failed": (errors.read().strip().splitlines() or ["without a word"])[-1][:500]}
        found: dict[str, Any] = json.loads(out.read().splitlines()[-1])
    return found


def _ended(process: subprocess.Popen[bytes], begun: Path, limit: int) -> bool:
    """Whether the run that counts ended in time; it may take a while until it begins."""
    start = time.time()
    while process.poll() is None:
        since = begun.stat().st_mtime if begun.exists() else start + _TO_BEGIN
        if time.time() - since > limit:
            return False
        time.sleep(0.1)
    return True


def runs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for workload in args.workloads or WORKLOADS:
        for engine in args.only or ENGINES:
            for variant in ENGINES[engine][workload] if args.all_variants else (None,):
                for _ in range(args.repeat):
                    yield run_one(engine, workload, variant, args.data, args.work, args.limit)


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The fastest of each; agreement is that of all runs."""
    lines = [f"{'workload':9}{'engine':22}{'variant':10}{'seconds':>9}{'tuples/s':>12}  agrees"]
    for key in dict.fromkeys((run["workload"], run["engine"], run["variant"]) for run in found):
        same = [run for run in found if (run["workload"], run["engine"], run["variant"]) == key]
        name = f"{key[0]:9}{key[1]:22}{key[2]:10}"
        done = [run for run in same if "failed" not in run]
        if not done:
            lines.append(f"{name}{same[0]['failed']}")
            continue
        best = min(done, key=lambda run: float(run["seconds"]))
        agrees = len(done) == len(same) and all(run["agrees"] for run in done)
        lines.append(f"{name}{best['seconds']:9.2f}{best['tuples_per_second']:12,}  {'yes' if agrees else 'NO'}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--all-variants", action="store_true", help="not only the one that is run if none is named")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=ENGINES, metavar="ENGINE", help=", ".join(ENGINES))
    parser.add_argument("--limit", type=int, default=900, help="seconds for one run")
    args = parser.parse_args()
    found = []
    for run in runs(args):
        found.append(run)
        short = {key: value for key, value in run.items() if key != "readers"}
        sys.stdout.write(json.dumps(short) + "\n")
        sys.stdout.flush()
    sys.stdout.write(table(found) + "\n")


if __name__ == "__main__":
    main()
