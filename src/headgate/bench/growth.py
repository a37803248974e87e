"""What `bench windows` and `bench joins` have in common: queries in which one quantity grows, and how fast they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from headgate.bench.harness import Plot, Progress, Report, Row, environment
from headgate.bench.pipelines import measured, reader, running
from headgate.bench.vitals import ROLES, STREAMS, Vitals, snapshot
from headgate.model.snapshot import CatalogSnapshot


@dataclass(frozen=True)
class Case:
    """Queries over some streams, with so many views each; `patients` and `wards` are numbers of keys."""

    kind: str
    grows: str
    size: int
    queries: tuple[str, ...]
    streams: tuple[str, ...] = ("hr",)
    patients: int = 1_000
    wards: int = 8
    views: int = 1

    def snapshot(self) -> CatalogSnapshot:
        made = [running(f"q{number:02}", text, STREAMS) for number, text in enumerate(self.queries)]
        return snapshot(made, [reader(role, query, [role]) for query in made for role in ROLES[: self.views]])


@dataclass(frozen=True)
class Sizes:
    """`batch` tuples of each stream at once; the first `filling` batches only fill windows."""

    batch: int
    filling: int
    batches: int
    most: int


def growth(title: str, cases: Sequence[Case], sizes: Sizes, notes: Iterable[str], progress: Progress) -> Report:
    """All cases, one after the other, up to the largest requested size."""
    cases = [case for case in cases if case.size <= sizes.most]
    progress.expect(len(cases))
    rows = [_row(case, sizes, progress) for case in cases]
    return Report(
        title=title,
        rows=rows,
        notes=[*_NOTES, *notes],
        environment=environment("numpy", "pyarrow", "duckdb"),
        plots=[_plot(grows, rows) for grows in dict.fromkeys(case.grows for case in cases)],
    )


def _row(case: Case, sizes: Sizes, progress: Progress) -> Row:
    progress.step(f"{case.kind}, {case.grows} {case.size:,}")
    vitals, times = Vitals(case.patients, case.wards), list[float]()
    with measured({0: case.snapshot()}) as pipelines:
        for _ in range(sizes.filling + sizes.batches):
            times.append(pipelines[0].take(vitals.batch(sizes.batch, case.streams)))
        results = pipelines[0].results / len(times)
    tuples = sizes.batch * len(case.streams)
    return {
        "kind": case.kind,
        "grows": case.grows,
        "size": case.size,
        "tuples per s": round(tuples / median(times[sizes.filling :])),
        "results per tuple": round(results / tuples, 4),
    }


def _plot(grows: str, rows: Sequence[Row]) -> Plot:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["grows"] == grows:
            series.setdefault(str(row["kind"]), []).append((_number(row, "size"), _number(row, "tuples per s")))
    return Plot(f"More {grows}", grows, "tuples per second of processor time", series, log_x=True)


def _number(row: Mapping[str, object], column: str) -> float:
    return float(str(row[column]))


_NOTES = (
    "Tuples of all streams by processor time, the median of batches once windows are full; one core, without Spark.",
    "The whole path: labels as texts (fifteen expressions over four roles), state written down, results in mailboxes.",
    "Each view has another role and sees eight fifteenths of the tuples.",
)
