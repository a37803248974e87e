"""Sliding blocks beside windows of rows: the rows of the previous instant are the same however batches are split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from worlds.story import RULES, Story, running, snapshot, who

from headgate.labels import Level, parse_label
from headgate.model.query import ContinuousQuery
from headgate.plan.expressions import Value
from headgate.testing.oracle import Change, Event, Tuple, exact

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")

SLIDING = "s [RANGE 6 SECONDS SLIDE 3 SECONDS] x"
QUERIES = [
    f"SELECT DSTREAM x.n AS n, y.n AS m FROM {SLIDING}, s [ROWS 1] y",
    f"SELECT DSTREAM x.n AS n, y.n AS m FROM {SLIDING}, s [ROWS 2] y",
    f"SELECT DSTREAM x.n AS n, y.n AS m FROM {SLIDING}, s [PARTITIONED BY p ROWS 1] y",
    f"SELECT DISTINCT y.p AS p FROM {SLIDING}, s [ROWS 1] y",
    f"SELECT DSTREAM DISTINCT y.n AS m FROM {SLIDING}, s [ROWS 2] y",
]
Batch = tuple[str, Sequence[tuple[int, str]]]
"""The roles that ann has, and tuples."""


def received(
    queries: Sequence[ContinuousQuery], batches: Sequence[Batch], home: Path
) -> list[tuple[int, tuple[Value, ...]]]:
    snapshots = {role: snapshot(queries, {"ann": who(*role.split())}) for role, _ in batches}
    story = Story(home, snapshots[batches[0][0]])
    steps = [story.batch(snapshots[role], *tuples).get("ann", []) for role, tuples in batches]
    return [(time, values) for found in steps for time, values, _ in found]


def expected(query: ContinuousQuery, batches: Sequence[Batch]) -> list[tuple[int, tuple[Value, ...]]]:
    events: list[Event] = []
    for role, tuples in batches:
        events.append(Change("ann", who(*role.split())))
        for n, label in tuples:
            events.append(Tuple("s", 1000 * n, {"n": n, "p": label}, parse_label(f"{label} FROM s")))
    first = {"ann": who(*batches[0][0].split())}
    found = exact(query.query, events, first, rules=RULES, level=Level("U"))["ann"]
    return [(x.time // 1000, x.values) for x in found if x.after < len(events)]


@pytest.mark.parametrize("text", QUERIES)
def test_a_row_that_left_between_two_instants_is_known_at_the_next(text: str, tmp_path: Path) -> None:
    query = running("q", text)
    for number, sizes in enumerate(([14], [1] * 14, [4, 1, 1, 0, 8], [5, 0, 0, 9])):
        batches: list[Batch] = [("a", [(n, ("TRUE", "a")[n % 2]) for n in places]) for places in _places(sizes)]
        assert received([query], batches, tmp_path / str(number)) == expected(query, batches) != []


def _places(sizes: Sequence[int]) -> list[range]:
    return [range(1 + sum(sizes[:n]), 1 + sum(sizes[: n + 1])) for n in range(len(sizes))]


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("between", [0, 1])
def test_a_displaced_row_does_not_return_when_the_row_that_displaced_it_is_lost(
    text: str, between: int, tmp_path: Path
) -> None:
    query = running("q", text)
    before: list[Batch] = [("a", [(n, "a" if n > 3 else "TRUE")]) for n in range(1, 7)]
    lost: list[Batch] = [*[("", ())] * between, *(("", [(n, "TRUE")]) for n in (8, 9, 10, 11, 13))]
    batches = [*before, *lost]
    assert received([query], batches, tmp_path) == expected(query, batches)


def test_other_blocks_of_the_same_window_see_the_row_leave(tmp_path: Path) -> None:
    """They report it once, when it leaves; and nobody reports what another remembers."""
    sliding, counting = running("q", QUERIES[0]), running("r", "SELECT DSTREAM n FROM s [ROWS 1]")
    batches: list[Batch] = [("", [(n, "TRUE")]) for n in range(1, 14)]
    both = [*expected(sliding, batches), *expected(counting, batches)]
    assert sorted(received([sliding, counting], batches, tmp_path)) == sorted(both)
