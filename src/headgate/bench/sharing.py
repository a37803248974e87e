"""`headgate bench sharing`: which of paper 002's queries share operators (Table 2), in each architecture.

For every pair of Q1 to Q8, one executing and one that comes later: what the paper's table says, how the definitions
relate the trees that our engine executes, and whether both share operators while they run, if they were created at one
level or at two. All queries run in processors of each architecture; operators that are shared are known by their
processor time, which is one and the same for all who share them.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path

from headgate.bench.architectures import engine_of
from headgate.bench.battlefield import QUERIES, STREAMS, Soldiers, rules, snapshot
from headgate.bench.harness import Progress, Report, Row, environment
from headgate.cql.queries import parse_query
from headgate.labels import Clearance, Level
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.plan.lowering import lower
from headgate.plan.queries import Query, bind_query
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
    "Q1 to Q8 ran twice each, as executing and as incoming ones, in the processors of each architecture.",
    "By the paper's definitions all of Table 2 holds, if tuples as they arrive and in order are one source.",
    "The engine keeps these sources apart: windows wait for order, and selections without a window do not.",
    "Q3 with Q4 and Q5 goes beyond the paper (bp > 50 follows from bp > 120), but a plan has one set of streams.",
    "Queries of two levels share nothing in any architecture: a plan has one level.",
    "Trusted: subscribers of several levels share the plan of one query. Apart: each level computes it for its own.",
]


def run(quick: bool, progress: Progress) -> Report:  # noqa: ARG001
    progress.expect(2 * len(ARCHITECTURES))
    running: dict[str, set[tuple[str, str]]] = {}
    for architecture, (words, low) in product(ARCHITECTURES, (("one level", HIGH), ("two levels", LOW))):
        progress.step(f"{architecture}, {words}")
        running[f"{architecture}, {words}"] = sharing(architecture, low, HIGH)
    found = (_row(executing, incoming, running) for executing, incoming in product(QUERIES, repeat=2))
    rows = [row for row in found if any(row[x] != "-" for x in _KINDS)]
    return Report("Sharing of Q1 to Q8", rows, notes=_NOTES, environment=environment())


_KINDS = ("paper", "by definition")
_BATCHES, _BATCH = 3, 500


def _row(executing: str, incoming: str, running: dict[str, set[tuple[str, str]]]) -> Row:
    found = relation(lower(meant(incoming)), lower(meant(executing)))
    related = found is not SharingKind.NONE
    return {
        "executing": executing,
        "incoming": incoming,
        "paper": TABLE_2.get((executing, incoming), "-"),
        "by definition": found.value if related else "-",
        **{x: "shared" if related and (executing, incoming) in pairs else "-" for x, pairs in running.items()},
    }


def meant(name: str) -> Query:
    text = QUERIES[name].format(rows={"Q3": 5}.get(name, 20), bp={"Q8": 100}.get(name, 120))
    return bind_query(parse_query(text), lambda target: STREAMS[target.name])


def sharing(architecture: str, low: Level, high: Level) -> set[tuple[str, str]]:
    """Runs all queries at both levels: the pairs of a low and a high one that share operators."""
    catalog, soldiers = _catalog(low, high), Soldiers(2)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = engine_of(architecture, home, catalog)
        stack.callback(engine.close)
        for _ in range(_BATCHES):
            engine.take(soldiers.batch(_BATCH))
        engine.wait()
        work = {x.name: engine.work(x.name) for x in catalog.queries}
    return {(a, b) for a, b in product(QUERIES, repeat=2) if work[_name("executing", a)] & work[_name("incoming", b)]}


def _name(place: str, query: str) -> str:
    return f"{place} {query}"


def _catalog(low: Level, high: Level) -> CatalogSnapshot:
    """Each query with a subscriber of its own level."""
    made = [(_name(place, x), x, level) for place, level in (("executing", low), ("incoming", high)) for x in QUERIES]
    queries = tuple(ContinuousQuery(name, meant(query), level) for name, query, level in made)
    subscribers = tuple(
        Subscriber(f"s{x.name}", x.name, Clearance(frozenset(), x.level, frozenset(STREAMS)), level=str(x.level))
        for x in queries
    )
    return replace(snapshot(2, 1), rules=rules(2), queries=queries, subscribers=subscribers)
