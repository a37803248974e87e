"""What a label decision costs: where labels repeat, where every tuple has a new one, and in accumulo-access.

Paper 000 measured 60 ns per tuple for its SecFilter (a comparison of bit sets); that is the goal for labels that
repeat, which are decided once and then looked up. Labels that never repeat are parsed and decided a column at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.bench import accumulo
from headgate.bench.expressions import HELD, Expressions, expressions
from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.timing import Timing, time_each
from headgate.labels.bulk import Decisions, numbers_of
from headgate.labels.column import read_labels, warm
from headgate.labels.interning import LabelTable
from headgate.labels.journal import MemoryJournal
from headgate.labels.label import Clearance, Rules

PAPER_NS = 60
MOST_PLAIN, MOST_NESTED = 10, 50
"""Times accumulo-access, for labels that never repeat: plain ones of up to `_PLAIN_ROLES` roles, and nested ones."""
_PLAIN_ROLES = 16
_READER = Clearance(roles=frozenset(HELD))


@dataclass(frozen=True)
class Sizes:
    """How much is measured; `names` is approximately how many role names one repetition reads where all labels
    differ."""

    column: int
    repeated: tuple[int, ...]
    grid: tuple[tuple[int, int], ...]
    names: int
    repetitions: int
    warm_up: float


QUICK = Sizes(1_000_000, (16,), ((4, 1), (4, 4), (16, 4), (64, 16), (256, 16)), 20_000, 5, 0.2)
FULL = Sizes(
    column=1_000_000,
    repeated=(16, 1000),
    grid=tuple((roles, terms) for roles in (4, 16, 64, 256) for terms in (1, 2, 4, 8, 16) if terms <= roles),
    names=80_000,
    repetitions=7,
    warm_up=1.0,
)
_NESTED = (16, 4)


@dataclass(frozen=True)
class Column:
    """What is decided at once: `tuples` labels, drawn from fewer expressions or one of each."""

    expressions: Expressions
    tuples: int

    @property
    def repeats(self) -> bool:
        return self.tuples > len(self.expressions.texts)

    def indices(self) -> npt.NDArray[np.int64]:
        """Which expression is at which position."""
        distinct = len(self.expressions.texts)
        return np.random.default_rng(1).integers(0, distinct, self.tuples) if self.repeats else np.arange(distinct)

    def shown(self) -> str:
        if self.repeats:
            return f"{len(self.expressions.texts):,} repeated"
        return "distinct, nested" if self.expressions.nested else "distinct"


def run(quick: bool, progress: Progress) -> Report:
    return measure(QUICK if quick else FULL, progress)


def measure(sizes: Sizes, progress: Progress, *, java: bool = True) -> Report:
    columns = _columns(sizes)
    warm()
    progress.expect(2 * len(columns) if java else len(columns))
    ours = [_ours(column, sizes, progress) for column in columns]
    theirs: list[accumulo.Answer] = []
    versions = {}
    missing = "it was not asked for"
    if java:
        try:
            versions = {"java": accumulo.java_version(), accumulo.ARTIFACT: accumulo.VERSION}
            theirs = _theirs(columns, sizes, progress)
        except accumulo.Unavailable as reason:
            missing = str(reason)
    rows = _rows(columns, ours, theirs)
    return Report(
        title="Label decisions: nanoseconds per tuple (median)",
        rows=rows,
        goals=[
            Goal("repeated labels, given as numbers", ours[0]["numbers"].median, PAPER_NS, "ns per tuple"),
            *_beside(columns, ours, theirs),
        ],
        notes=[*_NOTES, *(_BESIDE if theirs else [f"accumulo-access was not measured: {missing}."])],
        environment=environment("numpy", "pyarrow", **versions),
        plots=[_plot(rows)],
    )


def _beside(
    columns: Sequence[Column], ours: Sequence[dict[str, Timing]], theirs: Sequence[accumulo.Answer]
) -> list[Goal]:
    """Goals for labels that never repeat, relative to accumulo-access; the slowest column counts."""
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for column, mine, other in zip(columns, ours, theirs, strict=False):  # none without Java
        if not column.repeats and column.expressions.roles <= _PLAIN_ROLES:
            ratios[column.expressions.nested].append(mine["texts"].median / other.direct.median)
    goals = (
        (False, f"distinct, plain, up to {_PLAIN_ROLES} roles", MOST_PLAIN),
        (True, "distinct, nested", MOST_NESTED),
    )
    return [
        Goal(name, max(ratios[nested]), most, "times accumulo-access") for nested, name, most in goals if ratios[nested]
    ]


def _columns(sizes: Sizes) -> list[Column]:
    """The first is the one the goal is about."""
    repeated = [Column(expressions(4, 2, count), sizes.column) for count in sizes.repeated]
    grid = [(roles, terms, False) for roles, terms in sizes.grid] + [(*_NESTED, True)]
    distinct = [expressions(r, t, sizes.names // max(r, 8), nested=nested) for r, t, nested in grid]
    return repeated + [Column(made, len(made.texts)) for made in distinct]


def _ours(column: Column, sizes: Sizes, progress: Progress) -> dict[str, Timing]:
    """Timings by the form in which the labels are given."""
    made = column.expressions
    progress.step(f"{column.shown()}, {made.roles} roles in {made.terms}")
    indices = column.indices()
    texts = pa.array(made.texts).take(pa.array(indices))
    if not column.repeats:
        _agree("headgate", made, _read_and_decided(texts), np.array(made.permitted)[indices])
        return {"texts": time_each(column.tuples, sizes.repetitions, lambda: partial(_read_and_decided, texts))}
    _agree("headgate", made, _decisions().of_texts(texts), np.array(made.permitted)[indices])
    labels = _labels()
    decisions = _decisions(labels)
    numbers = numbers_of(texts, labels)
    coded = texts.dictionary_encode()
    decisions.of_numbers(numbers)
    return {
        "numbers": time_each(column.tuples, sizes.repetitions, lambda: partial(decisions.of_numbers, numbers)),
        "dictionary": time_each(column.tuples, sizes.repetitions, lambda: partial(decisions.of_texts, coded)),
        "texts": time_each(column.tuples, sizes.repetitions, lambda: partial(decisions.of_texts, texts)),
    }


def _read_and_decided(texts: pa.Array) -> npt.NDArray[np.bool_]:
    return read_labels(texts).permitted(Rules(), _READER)


def _labels() -> LabelTable:
    return LabelTable(Rules(), MemoryJournal())


def _decisions(labels: LabelTable | None = None) -> Decisions:
    return Decisions(Rules(), _READER, labels or _labels())


def _theirs(columns: Sequence[Column], sizes: Sizes, progress: Progress) -> list[accumulo.Answer]:
    blocks = [accumulo.Block(column.tuples, column.expressions.texts) for column in columns]
    progress.step("accumulo-access")
    answers = []
    measured = accumulo.measure(accumulo.jar(), HELD, blocks, warm_up=sizes.warm_up, repetitions=sizes.repetitions)
    for column, answer in zip(columns, measured, strict=True):
        made = column.expressions
        _agree("accumulo-access", made, np.array(answer.permitted), np.array(made.permitted))
        answers.append(answer)
        progress.step(f"accumulo-access: {column.shown()}, {made.roles} roles in {made.terms}")
    return answers


def _agree(who: str, made: Expressions, decided: npt.NDArray[np.bool_], expected: npt.NDArray[np.bool_]) -> None:
    """Wrong decisions have no cost worth measuring."""
    if not np.array_equal(decided, expected):
        raise RuntimeError(f"{who} decides differently on expressions of {made.roles} roles in {made.terms}")


def _rows(columns: Sequence[Column], ours: Sequence[dict[str, Timing]], theirs: Sequence[accumulo.Answer]) -> list[Row]:
    rows: list[Row] = []
    for i, column in enumerate(columns):
        for given, timing in ours[i].items():
            row: dict[str, str | int | float | None] = {
                "labels": column.shown(),
                "given as": given,
                "roles": column.expressions.roles,
                "terms": column.expressions.terms,
                "tuples": column.tuples,
                "headgate ns": timing.median,
                "spread": timing.spread,
            }
            if theirs and given == "texts":
                mapped = theirs[i].mapped
                row["accumulo ns"] = theirs[i].direct.median
                row["map ns"] = mapped.median if mapped else None
                row["ratio"] = timing.median / theirs[i].direct.median
            rows.append(row)
    return rows


def _plot(rows: Sequence[Row]) -> Plot:
    """Distinct labels by their size; repeated ones are levels, because their size does not matter."""
    distinct = [row for row in rows if row["labels"] == "distinct"]
    series = {
        f"{who}, {terms} {'term' if terms == 1 else 'terms'}": [
            (float(str(row["roles"])), float(str(row[column])))
            for row in distinct
            if row["terms"] == terms and row.get(column) is not None
        ]
        for who, column in (("Headgate", "headgate ns"), ("accumulo-access", "accumulo ns"))
        for terms in (1, 4, 16)
    }
    repeated = [row for row in rows if "repeated" in str(row["labels"])][:3]
    return Plot(
        "One decision about a label that is new, and (dashed) about one of 16 or so that repeat",
        "roles in the label",
        "ns of processor time",
        {name: points for name, points in series.items() if points},
        {f"repeated, as {row['given as']}": float(str(row["headgate ns"])) for row in repeated},
        log_x=True,
        log_y=True,
    )


_NOTES = (
    "The clock is processor time. `spread` is slowest minus fastest repetition, as a part of the median.",
    "Given as numbers: labels are interned already. Dictionary and texts: Arrow columns whose texts were seen before.",
    "Distinct: nothing is remembered from one repetition to the next: every text is read into its minimal form, equal",
    "labels are found, and each is decided, as numbers; no object is made of any of them.",
    "`roles` and `terms` are the role names and the alternatives of one label; half of the labels permit.",
)
_BESIDE = (
    "accumulo-access: `canAccess` for each tuple's String, after warm-up; its garbage collection is not counted.",
    "`map ns`: accumulo-access behind a HashMap from text to decision, the nearest to what Headgate does with texts.",
    "`ratio` is headgate ns / accumulo ns. accumulo-access evaluates while it reads; Headgate makes the minimal form.",
    "Every decision of accumulo-access was compared with Headgate's, and they agree.",
)
