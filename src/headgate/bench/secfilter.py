"""`headgate bench secfilter`: what labelling and filtering add to a query (paper 000, Figures 13 to 15).

As in the paper, queries of 4 to 64 operators over one stream have one output: here unions of blocks, each of three
selections and a projection, which together emit every tuple once. The same engine runs them without security
(`unsecured`), with a label on the stream (as in the paper, where rights go by the source), and with a role expression
on every tuple (which the paper does not have). All three take turns, batch by batch.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import pyarrow as pa

from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.pipelines import running
from headgate.bench.unsecured import UnlabelledIngress, UnsecuredProcessor, results
from headgate.bench.vitals import LABELS, ROLES, STREAMS, Vitals, snapshot
from headgate.egress.filter import ResultFilter
from headgate.execution.executors import LocalExecutor
from headgate.execution.processor import Processor
from headgate.expressions.duck import evaluate
from headgate.ingress.validation import Ingress
from headgate.labels import LEAST, Clearance, Rules, parse_label
from headgate.model.query import ContinuousQuery
from headgate.model.stream import StreamDescriptor
from headgate.visibility.dictionary import Dictionary

MOST_OVERHEAD = 1.0
PAPER_NS = 60
OPERATORS = (4, 8, 16, 32, 64)
_BLOCK = "SELECT patient, hr - {n} AS hr WHERE hr < {most} AND patient >= {low} AND patient < {high} FROM hr"
_EACH = 4
_PATIENTS = 960
OFF, STREAM, TUPLE = "without security", "label of the stream", "labels of tuples"


@dataclass(frozen=True)
class Sizes:
    batch: int
    repetitions: int


QUICK, FULL = Sizes(100_000, 15), Sizes(200_000, 61)


@dataclass(frozen=True)
class Cost:
    """Nanoseconds per tuple, one figure for each repetition."""

    ingress: list[float]
    rest: list[float]

    @property
    def whole(self) -> list[float]:
        return [a + b for a, b in zip(self.ingress, self.rest, strict=True)]


def run(quick: bool, progress: Progress) -> Report:
    return measure(QUICK if quick else FULL, progress)


def measure(sizes: Sizes, progress: Progress) -> Report:
    progress.expect(len(OPERATORS))
    rows: list[Row] = []
    for operators in OPERATORS:
        progress.step(f"{operators} operators")
        costs = _costs(operators, sizes)
        rows += [_row(operators, name, costs) for name in costs]
    secured = [row for row in rows if row["security"] != OFF]
    return Report(
        title="What labelling and filtering add: nanoseconds of processor time per tuple",
        rows=rows,
        goals=[
            Goal(
                f"{row['operators']} operators, {row['security']}: overhead", _of(row, "overhead %"), MOST_OVERHEAD, "%"
            )
            for row in secured
            if _of(row, "operators") >= 16
        ],
        notes=_NOTES,
        environment=environment("numpy", "pyarrow"),
        plots=[
            Plot(
                "What security adds to a query",
                "operators",
                "overhead in %",
                _series(secured, "overhead %"),
                {"goal": MOST_OVERHEAD},
                log_x=True,
            ),
            Plot(
                "What labelling and filtering take",
                "operators",
                "ns of processor time per tuple",
                _series(secured, "added ns"),
                {"secure Borealis (on a processor of its time)": PAPER_NS},
                log_x=True,
            ),
        ],
    )


def _series(rows: Sequence[Row], column: str) -> dict[str, list[tuple[float, float]]]:
    return {
        name: [(_of(row, "operators"), _of(row, column)) for row in rows if row["security"] == name]
        for name in (STREAM, TUPLE)
    }


def query(operators: int) -> ContinuousQuery:
    """The blocks divide the patients among them: every tuple is emitted once."""
    blocks = operators // _EACH
    share = _PATIENTS // blocks
    texts = (_BLOCK.format(n=i, most=100_000 + i, low=share * i, high=share * (i + 1)) for i in range(blocks))
    return running("q", " UNION ALL ".join(texts), STREAMS)


class Way:
    """One of the three ways to run a query."""

    def __init__(self, descriptor: Ingress, processor: Processor, numbers: Dictionary) -> None:
        self._ingress = descriptor
        self._processor = processor
        self._numbers = numbers

    def take(self, batch: pa.Table) -> tuple[float, float, int]:
        """Seconds of ingress, seconds of everything else, and the number of results."""
        start = time.process_time()
        arrivals, _ = self._ingress.take(batch, 0)
        entered = time.process_time()
        result_batches = self._processor.batch([arrivals])
        return entered - start, time.process_time() - entered, results(result_batches)


def ways(running_: ContinuousQuery) -> dict[str, Way]:
    streams = snapshot([], []).descriptors["hr"], snapshot([], [], labelled=False).descriptors["hr"]
    labelled, plain = streams
    return {
        OFF: _unsecured(running_, plain),
        STREAM: _secured(
            running_, StreamDescriptor(plain.name, plain.columns, plain.event_time, policy=parse_label("doctor"))
        ),
        TUPLE: _secured(running_, labelled),
    }


def _unsecured(running_: ContinuousQuery, descriptor: StreamDescriptor) -> Way:
    numbers = Dictionary()
    return Way(UnlabelledIngress(descriptor, Rules(), numbers.number), UnsecuredProcessor(running_), numbers)


def _secured(running_: ContinuousQuery, descriptor: StreamDescriptor) -> Way:
    """The subscriber has every role, so that the results are the same."""
    numbers = Dictionary()
    processor = Processor(
        [running_], Rules(), lambda program, schema: LocalExecutor(program, schema, evaluate), ResultFilter
    )
    ingress = Ingress(descriptor, Rules(), numbers.number)
    if descriptor.labels:
        ingress.register([(text,) for text in LABELS])
    processor.add_labels(numbers.labels)
    processor.subscribe(running_.name, {"somebody": Clearance(frozenset(ROLES), LEAST, frozenset({descriptor.name}))})
    return Way(ingress, processor, numbers)


def _costs(operators: int, sizes: Sizes) -> dict[str, Cost]:
    """The ways take turns, in an order drawn anew each time, after one batch that warms up."""
    drawn, vitals, all_ways = random.Random(3), Vitals(_PATIENTS), ways(query(operators))
    costs = {name: Cost([], []) for name in all_ways}
    gc.collect()
    gc.disable()  # otherwise one of them would pay for the garbage of all
    try:
        for number in range(sizes.repetitions + 1):
            batch = vitals.batch(sizes.batch)["hr"]
            for name in drawn.sample(list(all_ways), len(all_ways)):
                ingress, rest, found = all_ways[name].take(batch)
                if found != sizes.batch:
                    raise RuntimeError(f"{name}: {found} results of {sizes.batch} tuples")
                if number:
                    costs[name].ingress.append(1e9 * ingress / sizes.batch)
                    costs[name].rest.append(1e9 * rest / sizes.batch)
    finally:
        gc.enable()
    return costs


def _row(operators: int, name: str, costs: dict[str, Cost]) -> Row:
    own, off = costs[name], costs[OFF]
    row: Row = {"operators": operators, "security": name, "ns per tuple": median(own.whole)}
    if name == OFF:
        return row
    return {
        **row,
        "labelling ns": _added(own.ingress, off.ingress),
        "filtering ns": _added(own.rest, off.rest),
        "added ns": _added(own.whole, off.whole),
        "overhead %": 100 * _added(own.whole, off.whole) / median(off.whole),
    }


def _added(own: Sequence[float], off: Sequence[float]) -> float:
    """The median of the differences between each repetition and the one without security beside it."""
    return median(a - b for a, b in zip(own, off, strict=True))


def _of(row: Row, column: str) -> float:
    return float(str(row[column]))


_NOTES = (
    "The clock is processor time. All three take the same batches in turns; added: the median of the differences.",
    "Operators: three selections and a projection in each block; the union over the blocks is not counted.",
    "Labelling is ingress; filtering is all the rest: who sees a tuple, and what may go out. Nothing is written down.",
    "Without security: the same ingress, operators and result batches; no label is read, nothing is decided.",
)
