"""A view that nears a limit: the owner of its query and the operator are told once, before it ends, and nobody else."""

from __future__ import annotations

import datetime as dt
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from worlds.attacked import bench, small
from worlds.harness import NOW, Bench

from headgate import logs
from headgate.execution.executors import Executor, PartitionedExecutor
from headgate.execution.partition_groups import partition_groups
from headgate.expressions.duck import evaluate
from headgate.model import limits
from headgate.model.limits import Limits, machine_memory
from headgate.model.results import Recipient
from headgate.model.snapshot import SubscriptionStatus
from headgate.recovery.pipeline import Pipeline

FEW = Limits(rows=1000, tuples=100, text=1000, bytes=1_000_000)
ALL = "SELECT COUNT(*) AS n FROM s [UNBOUNDED]"
HELD = (
    "its windows hold more than 80 % of 100 tuples, and the query ends beyond them; use smaller windows, or have the "
    "setting view_tuples raised"
)
STATE = (
    "its windows hold nearly as many tuples as its owner's roles allow (MAX STATE), and the query ends beyond them; "
    "use smaller windows, or have MAX STATE of a role raised (ALTER ROLE)"
)
RESULTS = (
    "it has nearly as many results in a second as its owner's roles allow (MAX RESULTS), and the query ends beyond "
    "them; select fewer results, or have MAX RESULTS of a role raised (ALTER ROLE)"
)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    found, before = io.StringIO(), logging.getLogger("headgate")
    handlers, level, propagate = before.handlers, before.level, before.propagate
    logs.configure("warning", "json", found)
    yield found
    before.handlers, before.level, before.propagate = handlers, level, propagate


def begin(found: Bench, few: Limits = FEW) -> None:
    """`joe` owns all queries."""
    found.limits = few
    found.begin(found.files())
    know(found)


def know(found: Bench) -> None:
    standings = tuple(
        SubscriptionStatus(x.name, x.query, 1, Recipient(x.name, "U", f"out.{x.query}", ()), owner="joe")
        for x in found.now.subscribers
    )
    found.now = replace(found.now, standings=standings, streams=frozenset({1}))


def lines(found: Bench, name: str) -> list[str]:
    path = found.home / "out" / name
    return path.read_text().splitlines() if path.exists() else []


def warned(found: Bench, query: str = "q") -> list[str]:
    """What the owner is told."""
    told = [json.loads(line) for line in lines(found, f"joe/out.{query}.subscribers.jsonl")]
    return [x["warned"] for x in told if "warned" in x]


def told(found: Bench, who: str, query: str = "q") -> list[str]:
    """What a reader receives, as it reads it."""
    return lines(found, f"{who}/{query}.jsonl")


def test_the_owner_and_the_operator_are_warned_once(tmp_path: Path, log: io.StringIO) -> None:
    found = bench(tmp_path, q=ALL)
    found.subscribed(eve=("q", ""))
    begin(found)
    assert found.pipeline is not None
    for _ in range(3):
        found.take("s", *small(26))
    assert warned(found) == [] and log.getvalue() == "" and found.pipeline.notices() == []
    found.take("s", *small(6))  # the last tuple of a stream waits: 83 are in the window
    for _ in range(5):
        found.take("s", *small(1))
    assert warned(found) == [f"for a subscriber: {HELD}"]
    (line,) = log.getvalue().splitlines()
    assert {"level": "warning", "event": "a query nears a limit", "query": "q", "why": HELD}.items() <= json.loads(
        line
    ).items()
    (operator,) = found.pipeline.notices()
    assert str(operator) == f"the subscription of eve to out.q nears a limit: {HELD}"
    assert not any("warned" in line for line in told(found, "eve"))  # it can do nothing about it


def test_a_warning_is_not_repeated_after_a_restart(tmp_path: Path) -> None:
    found = bench(tmp_path, q=ALL)
    found.subscribed(eve=("q", ""))
    begin(found)
    found.take("s", *small(90))
    assert len(warned(found)) == 1
    found.pipeline.close()  # type: ignore[union-attr]
    begin(found)
    found.take("s", *small(2))
    assert len(warned(found)) == 1


@pytest.mark.parametrize("hidden", [0, 95])
def test_what_others_see_warns_nobody(hidden: int, tmp_path: Path) -> None:
    """Without this, an owner who reads its own query would learn how much of it is hidden."""
    found = bench(tmp_path, q=ALL, other=ALL)
    found.subscribed(eve=("q", "nurse"), dora=("other", "doctor"))
    begin(found)
    found.take("s", *small(20, "nurse"), *small(hidden, "doctor"))
    found.take("s", *small(2, "nurse"))
    assert warned(found) == []
    assert len(warned(found, "other")) == (1 if hidden else 0)


@pytest.mark.parametrize("split", [[100], [10] * 10, [79, 21]])
def test_limits_of_roles_warn_at_one_certain_tuple(split: list[int], tmp_path: Path) -> None:
    """Also if windows hold less again at the end of the batch."""
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS]", r="SELECT a FROM s")
    for name, limits_ in {"q": {"most_state": 24}, "r": {"most_results": 24}}.items():
        found.queries[name] = replace(found.queries[name], **limits_)  # type: ignore[arg-type]
    found.subscribed(eve=("q", ""), amy=("r", ""))
    begin(found, Limits())
    times = [NOW - dt.timedelta(hours=1) + dt.timedelta(milliseconds=n if n < 20 else 5000 * n) for n in range(100)]
    for first, size in zip(accumulate(split, initial=0), split, strict=False):
        found.take("s", *small(size), times=times[first : first + size])
    assert warned(found) == [f"for a subscriber: {STATE}"]
    assert warned(found, "r") == [f"for a subscriber: {RESULTS}"]
    assert not any("ended" in line for who in (("eve", "q"), ("amy", "r")) for line in told(found, *who))


def test_a_query_over_a_query_warns_its_own_owner(tmp_path: Path) -> None:
    found = bench(tmp_path, p=ALL)
    found.query("q", "SELECT n FROM out.p")
    found.subscribed(eve=("q", ""))
    begin(found)
    found.take("s", *small(90))
    assert warned(found) == [f"for a subscriber: {HELD}"]


def test_limits_are_sums_over_partitions(tmp_path: Path) -> None:
    """Each of 4 partitions holds a part: together they exceed the limit."""
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED] GROUP BY a")
    found.subscribed(eve=("q", ""))
    begin(found)
    found.pipeline.close()  # type: ignore[union-attr]

    def make(queries: object, program: object, _: object) -> Executor:
        return PartitionedExecutor(program, partition_groups(queries), 4, evaluate)  # type: ignore[arg-type]

    found.pipeline = Pipeline(found.home, found, make, [found.mailbox, found.files()], found.clock, FEW)
    found.take("s", *small(90))
    assert warned(found) == [f"for a subscriber: {HELD}"]
    found.take("s", *small(20))
    assert [x.ended for x in found.mailbox.fetch("eve", "q", found.now) if x.ended] == [FEW.exceeded("tuples")]


def test_limits_follow_the_memory_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container may have less than its machine."""
    container = tmp_path / "memory.max"
    container.write_text("max\n")
    monkeypatch.setattr(limits, "_CGROUPS", (str(container),))
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (16 << 30) // 4096}.get)
    machine_memory.cache_clear()
    whole = Limits()
    container.write_text(f"{4 << 30}\n")
    machine_memory.cache_clear()
    part = Limits()
    machine_memory.cache_clear()
    assert (whole.tuples, whole.rows, whole.bytes) == (1 << 24, 1 << 25, 2 << 30)
    assert (part.tuples, part.rows, part.bytes) == (1 << 22, 1 << 23, 512 << 20)
    assert whole.text == part.text == 1_000_000
