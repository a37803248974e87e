"""`headgate bench sharing`: which of paper 002's queries share operators (Table 2), in each architecture.

For every pair of Q1 to Q8, one executing and one that comes later: what the paper's table says, how the definitions
relate the trees that our engine executes, and whether some processor has both in one plan, if they were created at one
level or at two. Nothing is timed.
"""

from __future__ import annotations

from itertools import product

from headgate.bench.battlefield import QUERIES, STREAMS, rules
from headgate.bench.harness import Progress, Report, Row, environment
from headgate.bench.pipelines import Unchanging
from headgate.cql.queries import parse_query
from headgate.labels import Clearance, Level
from headgate.levels.restricted import OfLevel, levels_in
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.plan.lowering import lower
from headgate.plan.queries import Query, bind_query
from headgate.plan.secure import Mode, SecurePlan
from headgate.plan.sharing import SharingKind, relation

TABLE_2 = {(name, name): "complete" for name in QUERIES} | {
    ("Q2", "Q7"): "loose",
    ("Q4", "Q5"): "strict",
    ("Q4", "Q6"): "loose",
    ("Q4", "Q7"): "loose",
    ("Q5", "Q4"): "strict",
    ("Q5", "Q6"): "loose",
    ("Q5", "Q7"): "loose",
    ("Q6", "Q4"): "loose",
    ("Q6", "Q5"): "loose",
    ("Q6", "Q7"): "loose",
}
"""By the executing and the incoming query."""
LOW, HIGH = Level("U"), Level("L")
ARCHITECTURES = ("trusted", "replicated", "kernelized")
_NOTES = [
    "One level: both queries were created at L. Two levels: the executing one at U, the incoming one at L.",
    "By the paper's definitions all of Table 2 holds, if tuples as they arrive and in order are one source.",
    "The engine keeps these sources apart: windows wait for order, and selections without a window do not.",
    "Q3 with Q4 and Q5 goes beyond the paper (bp > 50 follows from bp > 120), but a plan has one set of streams.",
    "Queries of two levels share nothing in any architecture: a plan has one level.",
    "Trusted: subscribers of several levels share the plan of one query. Apart: each level computes it for its own.",
]


def run(quick: bool, progress: Progress) -> Report:  # noqa: ARG001
    progress.expect(1)
    progress.step("pairs")
    pairs = list(product(QUERIES, repeat=2))
    rows = [row for executing, incoming in pairs if any((row := _row(executing, incoming))[x] != "-" for x in _KINDS)]
    return Report("Sharing of Q1 to Q8", rows, notes=_NOTES, environment=environment())


_KINDS = ("paper", "by definition")


def _row(executing: str, incoming: str) -> Row:
    found = relation(lower(meant(incoming)), lower(meant(executing)))
    same = shared(executing, incoming, HIGH, HIGH)
    apart = shared(executing, incoming, LOW, HIGH)
    return {
        "executing": executing,
        "incoming": incoming,
        "paper": TABLE_2.get((executing, incoming), "-"),
        "by definition": "-" if found is SharingKind.NONE else found.value,
        **{f"{x}, one level": "shared" if same[x] and found is not SharingKind.NONE else "-" for x in ARCHITECTURES},
        **{f"{x}, two levels": "shared" if apart[x] and found is not SharingKind.NONE else "-" for x in ARCHITECTURES},
    }


def meant(name: str) -> Query:
    text = QUERIES[name].format(rows={"Q3": 5}.get(name, 20), bp={"Q8": 100}.get(name, 120))
    return bind_query(parse_query(text), lambda target: STREAMS[target.name])


def shared(executing: str, incoming: str, low: Level, high: Level) -> dict[str, bool]:
    """By architecture: whether some processor has both queries, in one plan."""
    catalog = _catalog((executing, low), (incoming, high))
    parts = [OfLevel(Unchanging(catalog), level).snapshot() for level in levels_in(catalog)]
    together, apart = _in_one_plan(catalog), any(map(_in_one_plan, parts))
    return {"trusted": together, "replicated": apart, "kernelized": apart}


def _in_one_plan(catalog: CatalogSnapshot) -> bool:
    plan = SecurePlan()
    for query in catalog.queries:
        plan.add(query.name, lower(query.query), mode=Mode.EXACT, level=query.level)
    return len(catalog.queries) == 2 and any(len(x.queries) == 2 for x in plan.plans.values())


def _catalog(*made: tuple[str, Level]) -> CatalogSnapshot:
    """Each query with a subscriber of its own level."""
    queries, subscribers = list[ContinuousQuery](), list[Subscriber]()
    for number, (name, level) in enumerate(made):
        queries.append(ContinuousQuery(f"{number}", meant(name), level))
        clearance = Clearance(frozenset(), level, frozenset(STREAMS))
        subscribers.append(Subscriber(f"s{number}", f"{number}", clearance, level=str(level)))
    return CatalogSnapshot(rules(2), {}, tuple(queries), tuple(subscribers))
