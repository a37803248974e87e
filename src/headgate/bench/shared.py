"""`headgate bench shared`: what it costs that people share a query, as paper 001 measured it (Figure 9, DS1 to DS6).

A join of two streams and a projection. Without security the same engine reads the same files without labels: one public
view, nothing to decide. Then three people in one role share it (user-level), then seven in three roles (role-level),
cumulatively as in the paper and exactly; where tuples have six roles, half of them are for nobody here and are dropped
at ingress. All take turns in one warm process, many times, and the fastest of each counts: a disturbance can only make
a run longer.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from argon2 import PasswordHasher
from pyspark import SparkContext

from headgate.access.passwords import Passwords
from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.peers import data as peers_data
from headgate.bench.peers.every import run_one
from headgate.bench.shared_data import NAMES, make
from headgate.egress.mailbox import Mailbox
from headgate.ingress.spark import spark_session
from headgate.service import Headgate
from headgate.service.runs import Processing

SIZES, QUICK_SIZES = (500_000, 1_000_000, 5_000_000), (50_000,)
ROUNDS, FEW_ROUNDS = 15, 5
MANY = 2_000_000
"""Tuples of a stream from which on few rounds are enough."""

SPARK_TUPLES, QUICK_SPARK_TUPLES, SPARK_LIMIT = 100_000, 10_000, 300
PAPER_RATE = 20_000
PAPER = {  # seconds for tuples of each stream, roles in the data, and kind of sharing
    (500_000, 1, "none"): 50.420,
    (500_000, 1, "user-level"): 50.811,
    (500_000, 1, "role-level"): 52.487,
    (500_000, 3, "role-level"): 52.586,
    (500_000, 6, "role-level"): 26.610,
    (1_000_000, 1, "none"): 96.652,
    (1_000_000, 1, "user-level"): 98.621,
    (1_000_000, 1, "role-level"): 102.717,
    (1_000_000, 3, "role-level"): 103.355,
    (1_000_000, 6, "role-level"): 47.636,
}
_NAMES = {(500_000, 1): "DS1", (500_000, 3): "DS2", (500_000, 6): "DS3"} | {
    (1_000_000, 1): "DS4",
    (1_000_000, 3): "DS5",
    (1_000_000, 6): "DS6",
}

_SECRET = "a password for benches"  # noqa: S105
_QUERY = "SELECT hr.k, hr.x, bp.x AS y FROM hr [RANGE 1 SECONDS], bp [RANGE 1 SECONDS] WHERE hr.k = bp.k"
_STREAM = """CREATE STREAM {name} (at TIMESTAMP, k INT, x INT, roles STRING) EVENT TIME at {labels}
SOURCE parquet (path = '{path}', maxFilesPerTrigger = '4');
GRANT VIEW OBJECT, READ TUPLE ON STREAM {name} TO PUBLIC;"""
_CUMULATIVE = "ALTER STREAM {name} ALLOW CUMULATIVE;"

USERS = ("R1", "R1", "R1"), ("R1", "R1", "R1", "R2", "R2", "R3", "R3")


@dataclass(frozen=True)
class Experiment:
    """Who shares the query over data with so many roles; without users there is no security."""

    sharing: str
    roles: int
    users: Sequence[str] = ()
    mode: str = ""

    @property
    def name(self) -> str:
        return f"{self.sharing} {self.mode.lower()}".strip()


EXPERIMENTS = (
    Experiment("none", 1),
    Experiment("user-level", 1, USERS[0]),
    *(Experiment("role-level", roles, USERS[1], mode) for mode in ("CUMULATIVE", "EXACT") for roles in (1, 3, 6)),
)


def prepared(experiment: Experiment, data: Path, home: Path) -> Headgate:
    """A store with the streams, the query and every user's subscription."""
    home.mkdir(parents=True)
    headgate = Headgate(
        f"sqlite:///{home / 'headgate.db'}", b"a key for benches", passwords=Passwords(PasswordHasher(1, 8, 1))
    )
    headgate.initialise("joe", _SECRET)
    labels = "ROLES FROM roles" if experiment.users else ""
    cumulative = experiment.mode == "CUMULATIVE"
    script = [f"CREATE ROLE {role};" for role in sorted(set(experiment.users))]
    for name in NAMES:
        script.append(_STREAM.format(name=name, labels=labels, path=data / name))
        script += [_CUMULATIVE.format(name=name)] if cumulative else []
    script += [f"CREATE QUERY q {'CUMULATIVE ' if cumulative else ''}AS {_QUERY}; START QUERY q;"]
    script += ["GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM q TO PUBLIC;"]
    people = {f"u{number}": role for number, role in enumerate(experiment.users or [""])}
    for user, role in people.items():
        script += [f"CREATE USER {user} PASSWORD '{_SECRET}';"]
        script += [f"GRANT ROLE {role} TO USER {user};"] if role else []
    headgate.execute(headgate.login("joe", _SECRET), "\n".join(script))
    for user in people:
        headgate.execute(headgate.login(user, _SECRET), "SUBSCRIBE TO joe.q")
    return headgate


@dataclass(frozen=True)
class Ran:
    """Seconds by the clock, seconds of processors, and the number of results of each subscriber."""

    seconds: float
    busy: float
    results: tuple[int, ...]


def processor_seconds() -> float:
    """Processor time of this process and of Spark's, which neighbours on the machine disturb less than the clock; NaN
    where the system does not provide it."""
    gateway = SparkContext._gateway
    stat = Path(f"/proc/{gateway.proc.pid}/stat") if gateway else None
    if stat is None or not stat.exists():
        return float("nan")
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return time.process_time() + (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def once(experiment: Experiment, data: Path, home: Path) -> Ran:
    headgate = prepared(experiment, data, home)
    processing = Processing(headgate, home / "engine", [Mailbox(1 << 40)])
    try:
        gc.collect()
        busy, begin = processor_seconds(), time.perf_counter()
        processing.replay()
        seconds, busy = time.perf_counter() - begin, processor_seconds() - busy
        return Ran(seconds, busy, tuple(sorted(processing.counts.results.values())))
    finally:
        processing.close()
        headgate.close()


def rounds(folder: Path, tuples: int, count: int, progress: Progress) -> dict[Experiment, list[Ran]]:
    """All in turns, each turn in another order, so that a disturbance of the machine affects all alike."""
    found: dict[Experiment, list[Ran]] = {experiment: [] for experiment in EXPERIMENTS}
    for number in range(count):
        shift = number % len(EXPERIMENTS)
        for experiment in (*EXPERIMENTS[shift:], *EXPERIMENTS[:shift]):
            progress.step(f"2 x {tuples:,} tuples, {experiment.name} over {experiment.roles} roles, round {number + 1}")
            home = folder / f"{tuples}-{number}-{EXPERIMENTS.index(experiment)}"
            found[experiment].append(once(experiment, make(folder, tuples, experiment.roles), home))
    return found


def checked(found: dict[Experiment, list[Ran]]) -> None:
    """Checks results: without labels everyone has all results, in one role too; dropped tuples are in nobody's."""
    (everything,) = set(found[EXPERIMENTS[0]][0].results)
    for experiment, runs in found.items():
        if len({run.results for run in runs}) != 1:
            raise ValueError(f"{experiment.name}: results differ from run to run")
        if experiment.sharing == "user-level" and set(runs[0].results) != {everything}:
            raise ValueError(f"{experiment.name}: {runs[0].results} instead of {everything} results")


def overhead(
    found: dict[Experiment, list[Ran]], experiment: Experiment, measure: Callable[[Ran], float] = lambda x: x.seconds
) -> float:
    """Per cent more than without security."""
    return 100 * (min(map(measure, found[experiment])) / min(map(measure, found[EXPERIMENTS[0]])) - 1)


def faster(found: dict[Experiment, list[Ran]], mode: str) -> float:
    """How much faster it is if half of all tuples are dropped."""
    whole, half = (Experiment("role-level", roles, USERS[1], mode) for roles in (3, 6))
    return min(x.seconds for x in found[whole]) / min(x.seconds for x in found[half])


def rows(tuples: int, found: dict[Experiment, list[Ran]]) -> list[Row]:
    table: list[Row] = []
    for experiment, runs in found.items():
        seconds = min(run.seconds for run in runs)
        plain = experiment.sharing == "none"
        paper = PAPER.get((tuples, experiment.roles, experiment.sharing))
        table.append(
            {
                "data": _NAMES.get((tuples, experiment.roles), "larger"),
                "tuples": 2 * tuples,
                "roles": experiment.roles,
                "sharing": experiment.name,
                "people": max(1, len(experiment.users)),
                "seconds": round(seconds, 3),
                "tuples/s": round(2 * tuples / seconds),
                "overhead %": None if plain else round(overhead(found, experiment), 1),
                "of processors %": None if plain else round(overhead(found, experiment, lambda x: x.busy), 1),
                "the paper's seconds": paper,
                "times its 20,000/s": round(2 * tuples / seconds / PAPER_RATE, 1),
            }
        )
    return table


def goals(found: dict[Experiment, list[Ran]], tuples: int) -> list[Goal]:
    size = f"{2 * tuples:,} tuples"
    user = EXPERIMENTS[1]
    role = [x for x in EXPERIMENTS if x.sharing == "role-level" and x.roles == 3]
    return [
        Goal(f"user-level sharing, {size}", overhead(found, user), 2.0, "% more"),
        *(Goal(f"{x.name} sharing, {size}", overhead(found, x), 4.0, "% more") for x in role),
        *(
            Goal(f"half dropped, {mode.lower()}, {size}", faster(found, mode), 1.8, "times as fast", "at least")
            for mode in ("CUMULATIVE", "EXACT")
        ),
    ]


def plain_spark(folder: Path, tuples: int) -> Row:
    """The same join without any security in Structured Streaming, in a process of its own, as in `bench peers`."""
    peers_data.make(folder / "peers", tuples)
    peers_data.make(folder / "warm", QUICK_SPARK_TUPLES)
    found = run_one(
        "structured", "W3", "bucket", folder / "peers", folder / "spark-work", SPARK_LIMIT, warm=folder / "warm"
    )
    seconds = found.get("seconds")
    return {
        "data": "no roles",
        "tuples": 2 * tuples,
        "sharing": f"Structured Streaming{'' if seconds else ': ' + found['failed']}",
        "people": 1,
        "seconds": None if seconds is None else round(float(seconds), 3),
        "tuples/s": None if seconds is None else round(2 * tuples / float(seconds)),
    }


def run(quick: bool, progress: Progress) -> Report:
    sizes = QUICK_SIZES if quick else SIZES
    count = {tuples: FEW_ROUNDS if quick or tuples >= MANY else ROUNDS for tuples in sizes}
    progress.expect((1 + sum(count.values())) * len(EXPERIMENTS) + 1)
    table: list[Row] = []
    aims: list[Goal] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        progress.step("Structured Streaming")
        last = plain_spark(folder, QUICK_SPARK_TUPLES if quick else SPARK_TUPLES)
        spark_session(folder / "session")  # one for all that follows
        for experiment in EXPERIMENTS:
            progress.step(f"warming up: {experiment.name}")
            once(experiment, make(folder, sizes[0], experiment.roles), folder / f"warm-{EXPERIMENTS.index(experiment)}")
        for tuples in sizes:
            found = rounds(folder, tuples, count[tuples], progress)
            checked(found)
            table += rows(tuples, found)
            aims += goals(found, tuples)
    return Report(
        "A shared query, with and without security (paper 001, Figure 9)",
        [*table, last],
        aims,
        [
            "none: the same engine on the same files with no labels to read, one public view, nothing to decide.",
            "exact: windows hold what each role may see; cumulative: one window for all, labels decide about results.",
            "Each is the fastest of its rounds; of processors: by the time of all of them.",
        ],
        environment("pyspark", "pyarrow", "numpy"),
        [plot(table)],
    )


def plot(table: Sequence[Row]) -> Plot:
    """How fast each way of sharing is as streams grow; with six roles half of the tuples are dropped."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in table:
        name = f"{row['sharing']}, {row['roles']} roles" if row["roles"] != 1 else str(row["sharing"])
        series.setdefault(name, []).append((float(str(row["tuples"])), float(str(row["tuples/s"]))))
    title = "A shared query"
    return Plot(title, "tuples of both streams", "tuples per second", series, {"the paper": PAPER_RATE}, log_x=True)
