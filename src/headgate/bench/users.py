"""`headgate bench users`: what the next user costs, from one to a thousand, on one stream.

Tuples carry role expressions; every user has one role of a few. Three questions: users with predicates of their own;
users who share a few views; many windowed queries at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.pipelines import measured, reader, running
from headgate.bench.vitals import ROLES, STREAMS, Vitals, snapshot
from headgate.model.snapshot import CatalogSnapshot

_ALARM = "SELECT patient, hr WHERE hr > {} FROM hr"
_WINDOWED = (
    "SELECT patient, hr FROM hr [ROWS 1{n}0] WHERE hr > 1{n}00",
    "SELECT ward, AVG(hr), COUNT(*) WHERE patient < 1{n}0 FROM hr [RANGE 1{n} SECONDS] GROUP BY ward",
    "SELECT ward, MAX(hr) FROM hr [PARTITIONED BY ward ROWS 1{n}] GROUP BY ward HAVING MAX(hr) > 1{n}00",
    "SELECT hr, bp FROM hr [RANGE 2 SECONDS] a, bp [ROWS 5{n}] b WHERE a.patient = b.patient AND hr > 1{n}00",
    "SELECT patient, SUM(bp + {n}) FROM bp [RANGE 2 SECONDS] WHERE bp > 11{n} GROUP BY patient",
)
"""{n} is another digit in each."""
_OWN, _MUCH, _SHARED = "own alarms, rare", "own alarms, often", "one query, four views"
_OFTEN = 6_000
"""Thresholds from here on lie around the usual rate: about half of the visible tuples become results."""


@dataclass(frozen=True)
class Sizes:
    """`apart`, `together` and `many` (who receive many results) are numbers of users; `batch` tuples at once, or a
    quarter; a tenth where many results are received; `windowed` tuples of each stream for the windowed queries."""

    apart: tuple[int, ...]
    together: tuple[int, ...]
    many: tuple[int, ...]
    batch: int
    repetitions: int
    queries: int
    windowed: int
    batches: int


QUICK = Sizes((1, 60, 1_000), (10, 1_000), (1, 60), 1_000_000, 3, 50, 1_000, 5)
FULL = Sizes((1, 10, 60, 300, 1_000), (10, 100, 1_000), (1, 10, 60, 300), 1_000_000, 9, 50, 1_000, 15)


def run(quick: bool, progress: Progress) -> Report:
    return measure(QUICK if quick else FULL, progress)


def measure(sizes: Sizes, progress: Progress) -> Report:
    progress.expect(4 * sizes.repetitions + sizes.batches)
    alarms = {users: apart(users) for users in sizes.apart}
    own = _grown(_OWN, alarms, sizes.batch, sizes, progress)
    smaller = _grown(_OWN, alarms, sizes.batch // 4, sizes, progress)
    much = _grown(_MUCH, {users: apart(users, _OFTEN) for users in sizes.many}, sizes.batch // 10, sizes, progress)
    shared = _grown(_SHARED, {users: together(users) for users in sizes.together}, sizes.batch, sizes, progress)
    seconds = _windowed(sizes, progress)
    last: Row = {
        "workload": f"{sizes.queries} windowed queries",
        "batch": 2 * sizes.windowed,
        "users": 3,
        "ms per batch": 1000 * seconds,
    }
    return Report(
        title="What users cost: processor time from ingress to everyone's mailbox",
        rows=[*own, *smaller, *much, *shared, last],
        goals=[
            *_apart_goals(own),
            *_apart_goals(smaller),
            Goal(
                f"{_SHARED}: {sizes.together[-1]:,} users",
                _cost(shared[-1]) / _cost(shared[0]),
                1.2,
                f"times {sizes.together[0]} users",
            ),
            Goal(f"{sizes.queries} windowed queries, three views, {2 * sizes.windowed:,} tuples", seconds, 0.5, "s"),
        ],
        notes=_NOTES,
        environment=environment("numpy", "pyarrow", "duckdb"),
        plots=[
            Plot(
                "What users cost",
                "users",
                "ms of processor time per million tuples",
                {
                    f"{rows[0]['workload']}, batches of {rows[0]['batch']:,}": [
                        (float(str(row["users"])), _cost(row)) for row in rows
                    ]
                    for rows in (own, smaller, shared)
                },
                log_x=True,
            )
        ],
    )


def _apart_goals(rows: Sequence[Row]) -> list[Goal]:
    limits = {60: 1.6, 1_000: 4.0}
    costs = {int(str(row["users"])): _cost(row) for row in rows}
    return [
        Goal(
            f"{users:,} users, own alarms, batches of {rows[0]['batch']:,}", costs[users] / costs[1], most, "times one"
        )
        for users, most in limits.items()
        if users in costs
    ]


def apart(users: int, least: int = 11_000) -> CatalogSnapshot:
    """Every user has one role, and a query with an alarm threshold of its own, in the forty beats from `least` on."""
    alarms = [least + (number + 1) * 1_237 % 4_000 for number in range(users)]
    queries = [running(f"q{number:04}", _ALARM.format(alarm), STREAMS) for number, alarm in enumerate(alarms)]
    return snapshot(queries, [reader(f"u{i}", x, [ROLES[i % len(ROLES)]]) for i, x in enumerate(queries)])


def together(users: int) -> CatalogSnapshot:
    """All users subscribe to one query; those of one role share one view."""
    query = running("q", _ALARM.format(11_000), STREAMS)
    return snapshot([query], [reader(f"u{i}", query, [ROLES[i % len(ROLES)]]) for i in range(users)])


def windowed(queries: int) -> CatalogSnapshot:
    """Different windowed queries, each with three subscribers of different roles."""
    texts = (_WINDOWED[i % len(_WINDOWED)].format(n=i // len(_WINDOWED)) for i in range(queries))
    made = [running(f"q{number:02}", text, STREAMS) for number, text in enumerate(texts)]
    return snapshot(made, [reader(role, query, [role]) for query in made for role in ROLES[:3]])


def _grown(
    workload: str, snapshots: Mapping[int, CatalogSnapshot], size: int, sizes: Sizes, progress: Progress
) -> list[Row]:
    """One row for each number of users; all take turns with the same batches, after one that warms up."""
    vitals = Vitals()
    with measured(snapshots) as pipelines:
        times: dict[int, list[float]] = {users: [] for users in pipelines}
        for number in range(sizes.repetitions + 1):
            if number:
                progress.step(f"{workload}, {number} of {sizes.repetitions}")
            batch = vitals.batch(size)
            for users, pipeline in pipelines.items():
                times[users].append(pipeline.take(batch))
        results = {users: x.results / (sizes.repetitions + 1) for users, x in pipelines.items()}
    rows: list[Row] = []
    for users, found in times.items():
        ms = 1000 * median(found[1:]) * 1e6 / size
        rows.append(
            {
                "workload": workload,
                "batch": size,
                "users": users,
                "ms per M tuples": ms,
                "times the fewest": ms / _cost(rows[0]) if rows else 1.0,
                "results per M and user": round(results[users] / users * 1e6 / size),
            }
        )
    return rows


def _windowed(sizes: Sizes, progress: Progress) -> float:
    """Seconds for a batch once the windows are full."""
    vitals, times = Vitals(), list[float]()
    with measured({0: windowed(sizes.queries)}) as pipelines:
        for number in range(sizes.batches):
            progress.step(f"{sizes.queries} windowed queries, batch {number + 1} of {sizes.batches}")
            times.append(pipelines[0].take(vitals.batch(sizes.windowed, ("hr", "bp"))))
    return median(times[sizes.batches // 3 :])


def _cost(row: Row) -> float:
    return float(str(row["ms per M tuples"]))


_NOTES = (
    "The clock is processor time, the median of repetitions in which all sizes take turns with the same tuples.",
    "The whole path without Spark: labels as texts, state written down, rights asked for, results in mailboxes.",
    "Fifteen role expressions over four roles; each user has one role and sees eight fifteenths.",
    "Own alarms: as many queries and views as users. Rare: some 0.3 % of what a user sees; often: about half of it.",
    "Each view costs a part of a millisecond with every batch, most of it whatever the size of the batch.",
    "One query: views are shared by all of one role.",
    "Windowed: rows, ranges, partitions, aggregates and joins; the first third of the batches fills windows.",
)
