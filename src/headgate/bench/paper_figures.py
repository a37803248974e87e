"""The tables and figures of the five papers that have a bench: what each shows, what the paper found, and where in a
report our own finding is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.bench.harness import Report, Value, written

Ours = Callable[[Report], str]
BESIDE = "in the table below"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper: what it shows, what the paper found, the bench that repeats it, and where in its
    report our own finding is."""

    name: str
    shows: str
    theirs: str
    bench: str
    ours: Ours = lambda _: BESIDE


@dataclass(frozen=True)
class Paper:
    """`discussed` is the page that explains where we differ; `without` are tables and figures that have no bench."""

    number: str
    title: str
    experiments: Sequence[Experiment]
    without: str
    discussed: str = ""

    @property
    def page(self) -> str:
        return f"paper-{self.number}.md"

    @property
    def benches(self) -> list[str]:
        return list(dict.fromkeys(x.bench for x in self.experiments))


def span(column: str, unit: str, **wanted: Value) -> Ours:
    """The first and the last value of a column, among the rows that have these values elsewhere."""

    def found(report: Report) -> str:
        rows = [x for x in report.rows if x.get(column) is not None and wanted.items() <= x.items()]
        ends = list(dict.fromkeys(written(x[column]) for x in (rows[:1] + rows[-1:])))
        return f"{' to '.join(ends)} {unit}" if ends else BESIDE

    return found


def goals(*names: str) -> Ours:
    """What was measured of the goals whose names begin like this."""

    def found(report: Report) -> str:
        some = [f"{written(x.measured)} {x.unit}" for name in names for x in report.goals if x.name.startswith(name)]
        return ", ".join(some) or BESIDE

    return found


_OF_STREAM = {"security": "label of the stream"}
_SIGNED = {"way": "each tuple signed"}

BOREALIS = Paper(
    "000",
    "Securing the Borealis Data Stream Engine",
    (
        Experiment(
            "Figure 11",
            "set-up of queries of 4 to 140 objects",
            "a little more than without",
            "plan",
            span("ms with security", "ms with security"),
        ),
        Experiment("Figure 12", "what security adds to it", "18 to 5 %", "plan", span("overhead %", "%")),
        Experiment(
            "Figure 13",
            "labelling and filtering a tuple",
            "about 60 ns",
            "secfilter",
            span("added ns", "ns", **_OF_STREAM),
        ),
        Experiment(
            "Figure 14",
            "a tuple through 4 to 64 operators",
            "grows with operators",
            "secfilter",
            span("ns per tuple", "ns", **_OF_STREAM),
        ),
        Experiment(
            "Figure 15", "what security adds to it", "9 to 1 %", "secfilter", span("overhead %", "%", **_OF_STREAM)
        ),
    ),
    "Figures 1 to 10 show models and scenes; the scene of Figures 8 to 10 is `headgate demo exchange`.",
)
SHARED = Paper(
    "001",
    "Secure Shared Continuous Query Processing",
    (
        Experiment(
            "Figure 9, DS1 and DS4",
            "three users share a query",
            "0.7 and 2 % longer than without access control",
            "shared",
            span("overhead %", "% longer", sharing="user-level"),
        ),
        Experiment(
            "Figure 9, DS2 and DS5",
            "three roles share a query",
            "4 and 6.9 % longer than without access control",
            "shared",
            span("overhead %", "% longer", sharing="role-level cumulative", roles=3),
        ),
        Experiment(
            "Figure 9, DS3 and DS6",
            "half of the tuples are of other roles",
            "2 and 2.2 times as fast as with all",
            "shared",
            goals("half dropped, cumulative"),
        ),
    ),
    "Table 1 and Figures 1 to 8 show examples and plans.",
)
LEVELS = Paper(
    "002",
    "Multilevel Secure Data Stream Processing",
    (
        Experiment("Table 2", "which of Q1 to Q8 share operators", "in the column of the paper", "sharing"),
        Experiment("Figure 2", "replicated processors; which architecture suits", "left open", "architectures"),
    ),
    "Table 1 has the queries of both benches; Figures 1, 3 and 4 show a lattice and operator trees.",
    "mls.md",
)
SENDLOG = Paper(
    "003",
    "Unified Platform for Secure Networked Information Systems",
    (
        Experiment(
            "Figures 5, 6",
            "best paths: bytes that signatures add; time",
            "30 % at 128 nodes",
            "sendlog",
            span("% more bytes", "%", experiment="best path", **_SIGNED),
        ),
        Experiment(
            "Figures 7, 8, 11, 12",
            "Chord: the same; latency of lookups",
            "47 %",
            "sendlog-overlays",
            span("% more bytes", "%", experiment="chord", **_SIGNED),
        ),
        Experiment(
            "Figures 9, 10, 13",
            "PIER's join over Chord: the same",
            "8 %",
            "sendlog-overlays",
            span("% more bytes", "%", experiment="pier", **_SIGNED),
        ),
        Experiment(
            "Figures 14, 15",
            "packets: bytes that provenance adds; latency",
            "12 %",
            "sendlog-overlays",
            span("% more bytes", "%", experiment="tracing", way="provenance"),
        ),
    ),
    "Figures 1 to 4 show plans and provenance (`headgate sendlog explain`, `headgate why`).",
    "sendlog.md",
)
STAR = Paper(
    "004",
    "STAR: Secure Real-Time Transaction Processing with Timeliness Guarantees",
    (
        Experiment("Table 1, Figures 4 to 18", "misses, utilisation, QoS", "in the column of the paper", "star"),
        Experiment(
            "section 3",
            "at most 5 % misses without a covert channel",
            "has two channels",
            "star",
            goals("strict STAR: highest miss ratio"),
        ),
        Experiment(
            "section 3",
            "the same for live queries, by the clock of the processor",
            "simulated only",
            "deadlines",
            goals("clock of the processor: highest miss ratio"),
        ),
    ),
    "Figures 1 to 3 show the model and the architecture.",
    "star.md",
)
PAPERS = (BOREALIS, SHARED, LEVELS, SENDLOG, STAR)
