"""The second part of `headgate bench plan`: what security adds to setting a query up (paper 000, Figures 11 and 12).

Six queries of 4 to 140 objects, sized as in the paper, are set up from their text until they run: schemas, streams, the
query, a subscription, its plan, its place in the engine. Once with all of Headgate, once without security: no session,
no decisions, no audit trail. Both take turns in one run, on stores of their own.
"""

from __future__ import annotations

import gc
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.access.authorizer import Authorizer, Principal
from headgate.access.permissions import Permission
from headgate.access.request import Result
from headgate.access.rows import Object, Session
from headgate.access.statements import HANDLERS
from headgate.bench.harness import Goal, Plot, Progress, Row
from headgate.cql.parser import parse_script
from headgate.execution.executors import Executor, LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.labels import LEAST
from headgate.operators.program import Program
from headgate.recovery.query_graph import QueryGraph
from headgate.service import Headgate

MOST_OVERHEAD = 5.0
_ROUNDS, _QUICK_ROUNDS = 400, 20
_KEY = bytes(32)
_PASSWORD = "only for the bench"  # noqa: S105


@dataclass(frozen=True)
class Size:
    """A query of the paper: one schema per stream, and that many boxes."""

    streams: int
    boxes: int

    @property
    def objects(self) -> int:
        return 2 * self.streams + self.boxes


SIZES = (Size(1, 2), Size(2, 4), Size(3, 16), Size(4, 32), Size(5, 64), Size(6, 128))

# Blocks by the number of boxes they take; {a} and {b} are streams.
_BLOCKS = {
    1: "SELECT k, v FROM {a}",
    2: "SELECT k, v WHERE v > {n} FROM {a}",
    3: "SELECT k, v WHERE v > {n} FROM {a} [ROWS 10]",
    4: "SELECT {a}.k, {b}.v FROM {a} [ROWS 10], {b} [ROWS 10]",
    5: "SELECT k, MAX(v) AS v WHERE v > {n} FROM {a} [ROWS 10] GROUP BY k HAVING COUNT(*) > 1",
    7: "SELECT {a}.k, MAX({b}.v) AS v WHERE {a}.v > {n} FROM {a} [ROWS 10], {b} [ROWS 10] GROUP BY {a}.k "
    "HAVING COUNT(*) > 1",
    8: "SELECT {a}.k, MAX({b}.v) AS v WHERE {a}.v > {n} FROM {a} [ROWS 10], {b} [ROWS 10] WHERE {b}.v > {n} "
    "GROUP BY {a}.k HAVING COUNT(*) > 1",
}
_PARTS = {
    2: (2,),
    4: (4,),
    16: (5, 5, 5),
    32: (5, 5, 5, 5, 5, 5, 1),
    64: (*(5,) * 12, 3),
    128: (*(8,) * 15, 7),
}


class Unsecured(Headgate):
    """Headgate without security, for comparison only: every caller is the same user, who may do anything."""

    def __init__(self, url: str) -> None:
        super().__init__(url, _KEY)
        self.monitor.authorizer.__class__ = _Anything
        self._anybody = Session("", "", "joe", (), str(LEAST), 0.0, 1e12, 1e12)

    def initialise(self, admin: str, password: str) -> None:
        super().initialise(admin, password)
        with self.monitor.lock, self.monitor.transaction():
            self.monitor.state.sessions.put(self._anybody)

    def execute(self, token: str, script: str) -> list[Result]:  # noqa: ARG002
        statements = parse_script(script)
        with self.monitor.lock, self.monitor.transaction() as work:
            request = self.monitor.request(self._anybody, work)
            return [HANDLERS[type(statement)](request, statement) for statement in statements]


class _Anything(Authorizer):
    def allows(self, principal: Principal, permission: Permission, thing: Object) -> bool:  # noqa: ARG002
        return True

    def allows_use(self, *_: object) -> bool:
        return True

    def judge(self, *_: object) -> tuple[bool, str]:
        return True, ""


def script(size: Size, number: int) -> str:
    """Everything that one set-up creates, under names of its own."""
    streams = [f"s{number}_{i}" for i in range(size.streams)]
    lines = []
    for stream in streams:
        lines.append(f"CREATE SCHEMA t_{stream} (k INT, v INT, at TIMESTAMP)")
        lines.append(f"CREATE STREAM {stream} SCHEMA t_{stream} EVENT TIME at LATENESS 5 SECONDS")
    blocks = [
        _BLOCKS[part].format(a=streams[i % len(streams)], b=streams[(i + 1) % len(streams)], n=i)
        for i, part in enumerate(_PARTS[size.boxes])
    ]
    lines.append(f"CREATE QUERY q{number} AS {' UNION ALL '.join(blocks)}")
    lines.append(f"START QUERY q{number}")
    lines.append(f"SUBSCRIBE TO q{number}")
    return ";\n".join(lines)


NOTES = (
    "Set-up: from a script (schemas, streams, query, start, subscription) in a session to the store, the plan and",
    "the program that the engine runs; the query before it is stopped and forgotten between two rounds.",
    "The clock is the wall's, both ways take turns; overhead: the median of the ratios of each round.",
    "The login is not in it: its password hash is slow on purpose.",
    "Without security: the same code without sessions, decisions and audit trail.",
)


def rows(quick: bool, progress: Progress) -> Iterator[tuple[Row, Goal]]:
    """One row and one goal for each size."""
    rounds = _QUICK_ROUNDS if quick else _ROUNDS
    progress.expect(len(SIZES))
    for size in SIZES:
        progress.step(f"setting up queries of {size.objects} objects")
        with_security, without, times = _measure(size, rounds)
        overhead = 100 * (times - 1)
        row: Row = {
            "workload": f"set-up, {size.objects} objects",
            "ms without security": round(without, 2),
            "ms with security": round(with_security, 2),
            "overhead %": round(overhead, 1),
        }
        yield row, Goal(f"set-up with security, {size.objects} objects: overhead", overhead, MOST_OVERHEAD, "%")


def _executor(_: object, program: Program, schema: pa.Schema) -> Executor:
    return LocalExecutor(program, schema, evaluate)


def plot(found: Sequence[Row]) -> Plot:
    """The plot of such rows, in the order of the sizes."""
    names = {"without security": "ms without security", "with security": "ms with security"}
    return Plot(
        "Setting a query up, with and without security",
        "objects that the script creates",
        "ms by the clock on the wall",
        {
            name: [(size.objects, float(str(row[column]))) for size, row in zip(SIZES, found, strict=True)]
            for name, column in names.items()
        },
    )


def _measure(size: Size, rounds: int) -> tuple[float, float, float]:
    """Milliseconds with and without security, and their ratio in the same round: medians of rounds in which both take
    turns, in an order drawn anew. A disturbance of the machine affects a round as a whole."""
    drawn = random.Random(11)
    with tempfile.TemporaryDirectory() as folder:
        secure, plain = Headgate(f"sqlite:///{folder}/a.db", _KEY), Unsecured(f"sqlite:///{folder}/b.db")
        for headgate in (secure, plain):
            headgate.initialise("joe", _PASSWORD)
        token = secure.login("joe", _PASSWORD)
        times: dict[Headgate, list[float]] = {secure: [], plain: []}
        engines = {headgate: QueryGraph(_executor) for headgate in times}
        gc.disable()  # otherwise one of the two would pay for the garbage of both
        for number in range(rounds):
            text = script(size, number)
            pair = [secure, plain]
            drawn.shuffle(pair)
            for headgate in pair:
                start = time.perf_counter()
                headgate.execute(token, text)
                engines[headgate].update(headgate.snapshot())
                times[headgate].append(1000 * (time.perf_counter() - start))
                headgate.execute(token, f"STOP QUERY q{number}; UNSUBSCRIBE FROM q{number}")
                engines[headgate].update(headgate.snapshot())
        gc.enable()
        for headgate in (secure, plain):
            headgate.close()
    ratios = [a / b for a, b in zip(times[secure], times[plain], strict=True)]
    return statistics.median(times[secure]), statistics.median(times[plain]), statistics.median(ratios)
