"""What a label decision costs: where labels repeat, where every tuple has a new one, and in accumulo-access.

Measured is the way of a tuple: ingress reads its label (`ingress/validation.py`), the dictionary numbers it
(`visibility/dictionary.py`), and the visibility index decides whether a view sees it (`visibility/index.py`). Paper 000
measured 60 ns per tuple for its SecFilter (a comparison of bit sets); that is the goal for labels that repeat, which
are decided once and then looked up.
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
from headgate.columns.sorting import Ints
from headgate.cql.queries import parse_query
from headgate.ingress.validation import Ingress
from headgate.labels.column import warm
from headgate.labels.label import Clearance, Rules
from headgate.labels.levels import LEAST
from headgate.model.query import ContinuousQuery
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.model.visibility import HIDDEN
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.visibility.dictionary import Dictionary
from headgate.visibility.index import VisibilityIndex
from headgate.visibility.watermarks import Moments

PAPER_NS = 60
MOST_PLAIN, MOST_NESTED = 10, 50
"""Times accumulo-access, for labels that never repeat: plain ones of up to `_PLAIN_ROLES` roles, and nested ones."""
_PLAIN_ROLES = 16
_READER = Clearance(roles=frozenset(HELD), sources=frozenset({"s"}))
_COLUMNS = (("policy", Type.STRING),)


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
    rows = pa.table({"policy": pa.array(made.texts).take(pa.array(indices))})
    _agree("headgate", made, _Path().decided(rows), np.array(made.permitted)[indices])
    if not column.repeats:
        return {"texts": time_each(column.tuples, sizes.repetitions, lambda: partial(_Path().decided, rows))}
    path = _Path()
    numbers = path.numbers(rows)
    path.seen(numbers)
    return {
        "numbers": time_each(column.tuples, sizes.repetitions, lambda: partial(path.seen, numbers)),
        "texts": time_each(column.tuples, sizes.repetitions, lambda: partial(path.decided, rows)),
    }


class _Path:
    """The way of a tuple's label through the engine, for one stream and one view that have seen nothing yet."""

    def __init__(self) -> None:
        rules, query = Rules(), bind_query(parse_query("SELECT policy FROM s"), lambda _: Stream("s", _COLUMNS))
        self._dictionary = Dictionary()
        descriptor = StreamDescriptor("s", _COLUMNS, labels={"LABEL": "policy"})
        self._ingress = Ingress(descriptor, rules, self._dictionary.number)
        self._index = VisibilityIndex(rules)
        self._index.add_view(ContinuousQuery("q", query, LEAST), {"reader": _READER})
        self._known = 0

    def numbers(self, rows: pa.Table) -> Ints:
        """The label numbers of tuples, read from their texts."""
        batch, _ = self._ingress.take(rows, 0)
        new = {number: self._dictionary.labels[number] for number in self._dictionary.new_since(self._known)}
        self._index.add_labels(new)
        self._known = self._dictionary.next
        return batch.labels

    def seen(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        """Which tuples the view sees."""
        batch = TupleBatch("s", np.zeros(len(numbers), np.int64), numbers, {})
        (rows,) = self._index.arrive([batch], Moments(len(numbers)))
        return np.asarray(self._index.table[rows, 0] != HIDDEN, np.bool_)

    def decided(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        return self.seen(self.numbers(rows))


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
    "Given as numbers: the dictionary has the labels. Texts: an Arrow column, whose texts ingress has read before.",
    "Distinct: nothing is remembered from one repetition to the next: ingress reads every text into its minimal form,",
    "the dictionary numbers every label, and the visibility index decides it.",
    "`roles` and `terms` are the role names and the alternatives of one label; half of the labels permit.",
)
_BESIDE = (
    "accumulo-access: `canAccess` for each tuple's String, after warm-up; its garbage collection is not counted.",
    "`map ns`: accumulo-access behind a HashMap from text to decision, the nearest to what Headgate does with texts.",
    "`ratio` is headgate ns / accumulo ns. accumulo-access evaluates while it reads; Headgate makes the minimal form.",
    "Every decision of accumulo-access was compared with Headgate's, and they agree.",
)
