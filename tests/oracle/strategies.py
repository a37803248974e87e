"""Random queries over the streams of `given`, random tuples, random changes of rights: small, so that things meet.

They are functions of a seed: hypothesis, left alone, prefers what is simple, of which a join yields nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from headgate.labels import Clearance
from headgate.testing.oracle import Change, Event, Tuple

from .given import a, b, who

WINDOWS = (
    *("[ROWS 1]", "[ROWS 2]", "[ROWS 3]", "[NOW]", "[UNBOUNDED]", "[RANGE 1 MILLISECOND]", "[RANGE 3 MILLISECONDS]"),
    *("[PARTITIONED BY k ROWS 1]", "[PARTITIONED BY k ROWS 2]"),
    *("[RANGE 2 MILLISECONDS SLIDE 2 MILLISECONDS]", "[RANGE 5 MILLISECONDS SLIDE 2 MILLISECONDS]"),
)
UNBOUNDED = ("", "[UNBOUNDED]")
LABELS = ("TRUE", "TRUE", "r1", "r1", "r2", "r1 | r2", "r1 & r2")
PEOPLE = ("ann", "bob")
CLEARANCES = (who("r1"), who("r1", "r2"), who("r2"), who())

T = TypeVar("T")


def seeded(make: Callable[[Random], T]) -> st.SearchStrategy[T]:
    return st.integers(0, 1 << 64).map(lambda seed: make(Random(seed)))


def random_query(rng: Random, windows: Sequence[str] = WINDOWS, *, plain: bool = False) -> str:
    """Blocks with windows; plain ones have neither aggregates nor DISTINCT."""
    return " UNION ALL ".join(_block(rng, windows, plain) for _ in range(rng.choice([1, 1, 2])))


def _block(rng: Random, windows: Sequence[str], plain: bool) -> str:
    """Whatever it does, a block has the results n and m, both BIGINT."""
    first, second = rng.choices(windows, k=2)
    before = rng.choice(["", "WHERE A.v > 0", "WHERE A.v IS NULL OR A.k < 3"])
    sources, left, right, conditions = rng.choice(
        [
            (f"A {first}", "A.k", "A.v", ["", "WHERE A.v < 3", "WHERE A.s IS NULL"]),
            (f"A {first}, B {second}", "A.v", "B.w", ["", "WHERE A.k = B.k", "WHERE A.v < B.w"]),
            (f"B {first}, A {second}", "A.v", "B.w", ["", "WHERE A.k = B.k", "WHERE A.v < B.w"]),
            (f"A {first}, A {second} AS Z", "A.v", "Z.k", ["WHERE A.k = Z.v", "WHERE A.v < Z.v"]),
        ]
    )
    after = rng.choice(conditions)
    if not plain and rng.random() < 0.5:
        results = f"{rng.choice(['', 'RSTREAM'])} SUM({left}) AS n, COUNT({right}) AS m"
        group = rng.choice(["GROUP BY A.k", "GROUP BY A.k, A.s", ""])
        return f"SELECT {results} {before} FROM {sources} {after} {group} {rng.choice(['', 'HAVING COUNT(*) > 1'])}"
    operator = rng.choice(["ISTREAM", "DSTREAM", "RSTREAM"])
    distinct = "" if plain else rng.choice(["", "DISTINCT"])
    return f"SELECT {operator} {distinct} {left} + 0 AS n, {right} + 0 AS m {before} FROM {sources} {after}"


def random_tuple(rng: Random, around: int) -> Tuple:
    key, value = rng.choices([0, 1, 2, 3, None], k=2)
    time, label = around // 2 + rng.randint(-2, 2), rng.choice(LABELS)
    return a(time, key, value, label) if rng.random() < 0.5 else b(time, key, value, label)


def random_event(rng: Random, around: int) -> Event:
    if rng.random() < 0.8:
        return random_tuple(rng, around)
    return Change(rng.choice(PEOPLE), rng.choice([*CLEARANCES, None]))


def in_order(events: Sequence[Event]) -> list[Event]:
    """The same with the times of the tuples in order."""
    times = iter(sorted(event.time for event in events if isinstance(event, Tuple)))
    return [
        Tuple(event.stream, next(times), event.values, event.label) if isinstance(event, Tuple) else event
        for event in events
    ]


queries = seeded(random_query)
unbounded_queries = seeded(lambda rng: random_query(rng, UNBOUNDED, plain=True))
clearances = st.sampled_from(CLEARANCES)
subscribers: st.SearchStrategy[dict[str, Clearance]] = st.fixed_dictionaries(dict.fromkeys(PEOPLE, clearances))
tuples: st.SearchStrategy[list[Tuple]] = seeded(lambda rng: [random_tuple(rng, n) for n in range(rng.randint(1, 20))])
events: st.SearchStrategy[list[Event]] = seeded(lambda rng: [random_event(rng, n) for n in range(rng.randint(1, 20))])
