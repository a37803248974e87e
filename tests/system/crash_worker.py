"""A process that runs pipelines which get killed: run by the tests of crashes.

    python crash_worker.py

It reads one JSON object per line, with a folder and how to die, and for each it forks a child: a fresh process for all
that matters here, without the second that imports take. The child goes on with the batches in the folder, like Spark
does: a batch that was not committed comes again, under the same number. It is killed so many seconds `after` its first
batch began (or, if `early`, it itself), or when it comes to a `step` for the time that `at` says, or goes on to the
end. The answer is one line: how the child ended, and what it was doing then.

What is asked of the pipeline is here too, so that the tests can ask the oracle the same.
"""

from __future__ import annotations

import datetime as dt
import json
import mmap
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from headgate.cql.queries import parse_query
from headgate.egress.sinks import Address, FileSink, Verify
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.expressions.sql.types import ARROW
from headgate.labels import Clearance
from headgate.labels.levels import Level
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.plan.secure import Mode
from headgate.recovery.pipeline import Pipeline
from headgate.recovery.query_graph import QueryGraph
from headgate.recovery.state import StateFolder
from headgate.storage import LocalStorage
from headgate.testing import ManualClock

T = TypeVar("T")
LEVEL = Level("U")
LATENESS = 2000
DELAY = 1000
LATER = 4_000_000_000.0
"""Where the clock stands: ahead of all that comes."""
COLUMNS = {
    "V": (("at", Type.TIMESTAMP), ("sid", Type.INT), ("bp", Type.INT), ("policy", Type.STRING)),
    "W": (("at", Type.TIMESTAMP), ("sid", Type.INT), ("x", Type.INT), ("policy", Type.STRING)),
}
STREAMS = {name: Stream(name, columns) for name, columns in COLUMNS.items()}
TEXTS = {
    "passing": "SELECT sid, bp WHERE bp > 120 FROM V",
    "sums": "SELECT sid, SUM(bp) AS s, COUNT(*) AS n FROM V [RANGE 5 SECONDS] GROUP BY sid",
    "sliding": "SELECT COUNT(*) AS n, MAX(bp) AS top FROM V [RANGE 4 SECONDS SLIDE 2 SECONDS]",
    "joined": "SELECT V.sid, bp, x FROM V [RANGE 2 SECONDS], W [RANGE 2 SECONDS] WHERE V.sid = W.sid",
    "shared": "SELECT sid, MAX(bp) AS top FROM V [PARTITIONED BY sid ROWS 3] GROUP BY sid",
    "over": "SELECT COUNT(*) AS n, MAX(s) AS top FROM sums_out [ROWS 4]",
}
CUMULATIVE, MADE, STAGES = {"shared"}, {"sums": "sums_out"}, {"over": 1}
PEOPLE = {
    "ann": Clearance(frozenset({"doctor"}), LEVEL, frozenset({"V", "W", "sums_out"})),
    "bob": Clearance(frozenset({"nurse"}), LEVEL, frozenset({"V", "W", "sums_out"})),
    "cleo": Clearance(frozenset({"doctor", "nurse"}), LEVEL, frozenset({"V", "W", "sums_out"})),
}


def running(names: Iterable[str] = tuple(TEXTS)) -> dict[str, ContinuousQuery]:
    """These queries, as the catalog would say."""
    streams, found = dict(STREAMS), {}
    for name in names:
        query = bind_query(parse_query(TEXTS[name]), lambda target: streams[target.name])
        output, mode = MADE.get(name, ""), Mode.CUMULATIVE if name in CUMULATIVE else Mode.EXACT
        streams[output] = Stream(output, query.columns)
        lateness = dict.fromkeys(COLUMNS, LATENESS)
        found[name] = ContinuousQuery(name, query, LEVEL, lateness, mode, output, STAGES.get(name, 0))
    return found


DESCRIPTORS = {
    name: StreamDescriptor(name, columns, "at", {"ROLES": "policy"}, delay=DELAY) for name, columns in COLUMNS.items()
}


@dataclass(frozen=True)
class Rights:
    """From so many batches on somebody has these roles, or, without any, is no subscriber that may have anything."""

    after: int
    who: str
    roles: tuple[str, ...] | None

    @property
    def clearance(self) -> Clearance | None:
        return None if self.roles is None else replace(PEOPLE[self.who], roles=frozenset(self.roles))


class ScriptedSnapshots:
    """Rights change between two batches, always the same two: so what everyone receives is certain."""

    def __init__(self, queries: dict[str, ContinuousQuery], changes: Iterable[Rights]) -> None:
        self._queries = queries
        self._changes = sorted(changes, key=lambda x: x.after)
        self._known: dict[int, CatalogSnapshot] = {}
        self.taken = 0

    def snapshot(self) -> CatalogSnapshot:
        past = [x for x in self._changes if x.after <= self.taken]
        if len(past) not in self._known:
            clearances: dict[str, Clearance | None] = {**PEOPLE, **{x.who: x.clearance for x in past}}
            subscribers = tuple(Subscriber(w, q, c) for w, c in clearances.items() for q in self._queries)
            descriptors = {
                name: descriptor
                for name, descriptor in DESCRIPTORS.items()
                if any(name in query.streams for query in self._queries.values())
            }
            self._known[len(past)] = CatalogSnapshot(
                descriptors=descriptors, queries=tuple(self._queries.values()), subscribers=subscribers
            )
        return self._known[len(past)]

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        yield self.snapshot()

    def verify(self) -> None:
        pass


class Files:
    """A folder for each subscriber, a file for each query."""

    def __init__(self) -> None:
        self._columns = {name: tuple(x for x, _ in query.query.columns) for name, query in running().items()}

    def of(self, subscriber: str, query: str) -> Address:
        return Address((subscriber, query), self._columns[query])

    def of_rejected(self, stream: str) -> tuple[str, ...]:
        return "owner", f"{stream}.rejected"


def made_pipeline(folder: Path, snapshots: ScriptedSnapshots) -> Pipeline:
    return Pipeline(
        folder / "home",
        snapshots,
        lambda _, program, schema: LocalExecutor(program, schema, evaluate),
        [FileSink(folder / "out", Files())],
        ManualClock(LATER),
    )


def table_of(stream: str, rows: list[dict[str, Any]]) -> pa.Table:
    def value(row: dict[str, Any], name: str) -> object:
        return dt.datetime.fromtimestamp(row["at"] / 1000, dt.UTC) if name == "at" else row.get(name)

    return pa.table(
        {name: pa.array([value(row, name) for row in rows], ARROW[type_]) for name, type_ in COLUMNS[stream]}
    )


def feed(
    folder: Path,
    snapshots: ScriptedSnapshots,
    between: Callable[[str], None] = lambda _: None,
    until: int | None = None,
) -> None:
    """What was committed does not come again, and everything else does; with the last batch it is the end, unless it is
    to go on only `until` some batch."""
    given = json.loads((folder / "in").read_text())
    log = folder / "commits"
    snapshots.taken = int(log.read_text()) if log.exists() else 0
    between("recovering")
    pipeline = made_pipeline(folder, snapshots)
    numbers: Counter[str] = Counter(batch["stream"] for batch in given[: snapshots.taken])
    try:
        for batch in given[snapshots.taken : until]:
            between("taking")
            table = table_of(batch["stream"], batch["rows"])
            pipeline.take(batch["stream"], numbers[batch["stream"]], table, settled=batch.get("settled"))
            between("before the commit")
            numbers[batch["stream"]] += 1
            snapshots.taken += 1
            new = folder / "commits~"
            new.write_text(str(snapshots.taken))
            new.rename(log)
            between("committed")
        if until is None:
            pipeline.end()
    finally:
        pipeline.close()


# To be killed


class Killer:
    """It watches a pipeline from outside, and ends the process at a chosen step."""

    def __init__(self, page: mmap.mmap, step: str, at: int, begun: int) -> None:
        self._page, self._step, self._left, self._begun = page, step, at, begun

    def __call__(self, step: str) -> None:
        self._page[:] = step.encode().ljust(len(self._page))
        if step == "taking":
            os.write(self._begun, b".")
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        rename, link, delete, append = os.rename, os.link, LocalStorage.delete, FileSink._append
        write_table = LocalStorage.write

        def written(storage: LocalStorage, name: str, content: Any, *, durable: bool = True) -> None:
            write_table(storage, name, content, durable=durable)
            if name.startswith("segment-"):
                self("segment written")

        def renamed(path: Any, target: Any, **options: Any) -> None:
            if not Path(target).name.startswith("out-"):
                return rename(path, target, **options)
            self("note written, not named")
            rename(path, target, **options)
            return self("note named")

        def linked(path: Any, target: Any, **options: Any) -> None:
            if "manifest-" not in str(target):
                return link(path, target, **options)
            self("state written, not named")
            link(path, target, **options)
            return self("state named")

        def deleted(storage: LocalStorage, names: Iterable[str]) -> None:
            first, *others = names or [""]
            delete(storage, [first] if first else [])
            self("an old state half removed")
            delete(storage, others)

        def appended(sink: FileSink, path: str, verify: Verify) -> None:
            content = sink._ready[path]
            if self._step == "half a line written":
                file = sink._folder.path / path
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("ab") as stream:
                    stream.write(content[: len(content) // 2 + 1])
                    stream.flush()
                    self("half a line written")
            append(sink, path, verify)
            self("some files written")

        for owner, name, step in (
            (QueryGraph, "batch", "computing"),
            (StateFolder, "save", "saving"),
            (Pipeline, "_deliver", "delivering"),
        ):
            setattr(owner, name, self._told(getattr(owner, name), step))
        os.rename = renamed  # type: ignore[assignment]
        os.link = linked  # type: ignore[assignment]
        LocalStorage.write = written  # type: ignore[method-assign, assignment]
        LocalStorage.delete = deleted  # type: ignore[method-assign, assignment]
        FileSink._append = appended  # type: ignore[method-assign, assignment]

    def _told(self, done: Callable[..., T], step: str) -> Callable[..., T]:
        def told(*given: Any, **more: Any) -> T:
            self(step)
            return done(*given, **more)

        return told


STEPS = (
    *("recovering", "taking", "computing", "saving", "segment written", "state written, not named"),
    *("state named", "delivering"),
    *("some files written", "half a line written", "note written, not named", "note named"),
    *("an old state half removed", "before the commit", "committed"),
)


def child(folder: Path, order: dict[str, Any], page: mmap.mmap, begun: int) -> None:
    os.fsync = lambda fd: None  # noqa: ARG005 - power does not fail here, and waiting for disks takes most of the time
    killer = Killer(page, order.get("step", ""), order.get("at", 1), begun)
    killer.watch()
    changes = [Rights(**x) for x in json.loads((folder / "rights").read_text())]
    feed(folder, ScriptedSnapshots(running(), changes), killer)


def main() -> None:
    page = mmap.mmap(-1, 32)
    for line in sys.stdin:
        order = json.loads(line)
        page[:] = b"beginning".ljust(len(page))
        hear, begun = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                child(Path(order["folder"]), order, page, begun)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(begun)
        if "after" in order:
            if "early" not in order:
                os.read(hear, 1)
            time.sleep(order["after"])
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(hear)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status), "doing": page[:].decode().strip()}), flush=True)


if __name__ == "__main__":
    main()
