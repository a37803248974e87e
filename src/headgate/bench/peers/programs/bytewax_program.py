"""One process of a bytewax cluster. Runs in the Python of `.peers/bytewax`, not in Headgate's.

Reads its task as JSON from standard input; `headgate.bench.peers.bytewax` defines its content. Writes one line of JSON:
when the dataflow began and ended, by the clock of the machine.

A tuple is checked once for all readers: a bit mask says who may see it.
"""

import json
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.compute as pc
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.recovery import RecoveryConfig
from bytewax.run import cli_main
from bytewax_files import Files, ReaderFiles

Task = dict[str, Any]
Result = tuple[int, Any]


def lists(batch: pa.RecordBatch) -> list[list[Any]]:
    """Columns as Python's own values; times as microseconds, which cost far less than datetimes."""
    return [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in batch.columns
    ]


def masks(readers: list[Task]) -> dict[str, int]:
    """Policy -> who may see it, one bit for each reader."""
    found: dict[str, int] = {}
    for position, reader in enumerate(readers):
        for policy in reader["permitted"]:
            found[policy] = found.get(policy, 0) | 1 << position
    return found


def members(readers: list[Task]) -> list[list[int]]:
    """Mask -> positions of the readers in it. For few readers only."""
    return [[i for i in range(len(readers)) if mask >> i & 1] for mask in range(1 << len(readers))]


def select_tuples(task: Task, flow: Dataflow) -> Any:
    """For each policy the thresholds in order: the readers who want a heart rate are the first of the list."""
    by_policy: dict[str, list[tuple[int, int]]] = {}
    for position, reader in enumerate(task["readers"]):
        for policy in reader["permitted"]:
            by_policy.setdefault(policy, []).append((reader["above"], position))
    ordered = {policy: sorted(found) for policy, found in by_policy.items()}
    thresholds = {policy: [above for above, _ in found] for policy, found in ordered.items()}
    positions = {policy: [position for _, position in found] for policy, found in ordered.items()}

    def select(batch: list[tuple[int, int, str]]) -> list[Result]:
        return [
            (reader, (patient, hr))
            for patient, hr, policy in batch
            if policy in thresholds
            for reader in positions[policy][: bisect_left(thresholds[policy], hr)]
        ]

    def select_for_one(batch: list[tuple[int, int]]) -> list[Result]:
        return [(0, (patient, hr)) for patient, hr in batch if hr > above]

    above = task["readers"][0]["above"]
    one = len(task["readers"]) == 1
    columns = ["patient", "hr"] if one else ["patient", "hr", "policy"]
    parts = [[file] for file in task["files"]["hr"]]
    tuples = op.input(
        "hr", flow, Files(parts, columns, task["batch"], lambda batch: list(zip(*lists(batch), strict=True)))
    )
    return op.flat_map_batch("select", tuples, select_for_one if one else select)


def select_batches(task: Task, flow: Dataflow) -> Any:
    """The same with whole Arrow batches as items: the engine moves them, Arrow selects."""

    def select(batch: pa.RecordBatch) -> Iterable[Result]:
        for position, reader in enumerate(task["readers"]):
            selected = pc.greater(batch.column("hr"), reader["above"])
            if len(task["readers"]) > 1:
                permitted = pc.is_in(batch.column("policy"), value_set=pa.array(reader["permitted"]))
                selected = pc.and_(selected, permitted)
            found = batch.select(["patient", "hr"]).filter(selected)
            if found.num_rows:
                yield position, found

    columns = ["patient", "hr"] if len(task["readers"]) == 1 else ["patient", "hr", "policy"]
    parts = [[file] for file in task["files"]["hr"]]
    return op.flat_map("select", op.input("hr", flow, Files(parts, columns, task["batch"], lambda b: [b])), select)


class Near(StatefulBatchLogic):
    """One patient's tuples of both streams. Exact however the streams interleave, as long as each is in order: a tuple
    is dropped when the other stream has advanced so far that no later tuple of it can be near."""

    def __init__(self, near: int, of: list[list[int]], sides: Any) -> None:
        self._near, self._of = near, of
        self._sides: tuple[deque[Any], deque[Any]] = tuple(map(deque, sides or ([], [])))  # type: ignore[assignment]

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Result], bool]:
        near, of, found = self._near, self._of, []
        for side, patient, at, value, mask in values:
            others = self._sides[1 - side]
            while others and others[0][0] < at - near:
                others.popleft()
            for other_at, other, other_mask in others:
                if other_at > at + near:
                    break
                row = (patient, other, value) if side else (patient, value, other)
                found += [(reader, row) for reader in of[mask & other_mask]]
            self._sides[side].append((at, value, mask))
        return found, StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        return tuple(map(list, self._sides))


def join(task: Task, flow: Dataflow) -> Any:
    bits, names = masks(task["readers"]), [str(patient) for patient in range(task["patients"])]
    of, near, one = members(task["readers"]), task["near"], len(task["readers"]) == 1

    def side(number: int, name: str) -> Any:
        def convert(batch: pa.RecordBatch) -> list[Any]:
            at, patients, values, *policies = lists(batch)
            masks_of = [1] * len(at) if one else [bits.get(policy, 0) for policy in policies[0]]
            return [
                (names[patient], (number, patient, when, value, mask))
                for patient, when, value, mask in zip(patients, at, values, masks_of, strict=True)
                if mask
            ]

        columns = ["at", "patient", name] + ([] if one else ["policy"])
        return op.input(name, flow, Files([task["files"][name]], columns, task["batch"], convert))

    both = op.merge("both", side(0, "hr"), side(1, "bp"))
    return op.key_rm("pairs", op.stateful_batch("near", both, lambda state: Near(near, of, state)))


class Last(StatefulBatchLogic):
    """One level: for each reader the last values that this reader may see."""

    def __init__(self, last: int, of: list[list[int]], state: Any) -> None:
        self._of = of
        self._windows = [deque(values, last) for values in state or [[] for _ in range(len(of).bit_length() - 1)]]
        self._sums = [sum(window) for window in self._windows]

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Result], bool]:
        of, windows, sums, found = self._of, self._windows, self._sums, []
        for level, value, mask in values:
            for reader in of[mask]:
                window = windows[reader]
                if len(window) == window.maxlen:
                    sums[reader] -= window[0]
                window.append(value)
                sums[reader] += value
                found.append((reader, (level, sums[reader] / len(window))))
        return found, StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        return [list(window) for window in self._windows]


def average(task: Task, flow: Dataflow) -> Any:
    bits, of, last = masks(task["readers"]), members(task["readers"]), task["last"]
    one, names = len(task["readers"]) == 1, [str(level) for level in range(task["levels"])]

    def convert(batch: pa.RecordBatch) -> list[Any]:
        levels, values, *policies = lists(batch)
        masks_of = [1] * len(levels) if one else [bits.get(policy, 0) for policy in policies[0]]
        return [
            (names[level], (level, value, mask))
            for level, value, mask in zip(levels, values, masks_of, strict=True)
            if mask
        ]

    columns = ["lvl", "hr"] + ([] if one else ["policy"])
    tuples = op.input("hr", flow, Files([task["files"]["hr"]], columns, task["batch"], convert))
    return op.key_rm("averages", op.stateful_batch("last", tuples, lambda state: Last(last, of, state)))


FLOWS: dict[str, Callable[[Task, Dataflow], Any]] = {
    "W1": select_tuples,
    "W2": select_tuples,
    "W3": join,
    "W4": average,
}


def main() -> None:
    task = json.load(sys.stdin)
    flow = Dataflow(task["workload"])
    results = select_batches(task, flow) if task["variant"] == "arrow" else FLOWS[task["workload"][:2]](task, flow)
    names = [reader["name"] for reader in task["readers"]]
    op.output("out", results, ReaderFiles(task["out"], names, task["columns"]))
    every = timedelta(seconds=10)
    recovery = RecoveryConfig(Path(task["recovery"]), backup_interval=timedelta())
    several = {"process_id": task["process"], "addresses": task["addresses"]} if len(task["addresses"]) > 1 else {}
    begin = time.time()
    cli_main(flow, workers_per_process=1, epoch_interval=every, recovery_config=recovery, **several)
    print(json.dumps({"begin": begin, "end": time.time()}))


if __name__ == "__main__":
    main()
