"""A process that was stopped, replaced and continued: it publishes nothing and commits nothing.

The old process is stopped before each call of the operating system that changes something, in turn. Its successor
starts, does the interrupted batch again unless it was committed, and one more. Then the old process continues.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from worlds.harness import Bench, stream

from headgate.egress import folder as folders
from headgate.egress.folder import ResultFolder
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import FileSink
from headgate.errors import Conflict, Fenced, HeadgateError
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.fencing import Fence
from headgate.recovery.pipeline import Pipeline
from headgate.recovery.state import OF_EPOCH, Saved, StateFolder
from headgate.storage import LocalStorage

KINDS: list[Callable[..., Any]] = [FileSink, ParquetSink]


class World(Bench):
    """A home in which several processes may work, one after the other or not."""

    def __init__(self, home: Path, make: Callable[..., Any]) -> None:
        super().__init__(home / "home", stream("s", "x INT"))
        self.query("q", "SELECT x FROM s")
        self.query("held", "SELECT x, COUNT(*) AS n FROM s [ROWS 100] GROUP BY x")
        self.subscribed(ann=("q", "r1"), bob=("held", "r1"))
        self.out, self.make = home / "out", make
        self.tables = [self.table("s", [("r1", number)]) for number in range(3)]

    def start(self, *, take_over: bool = False) -> Pipeline:
        return Pipeline(
            self.home, self, lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [self.make(self.out, self)], self.clock, take_over=take_over,
        )  # fmt: skip

    def replaced(self) -> None:
        """Another process takes over, does what is left, and ends."""
        successor = self.start(take_over=True)
        try:
            for number in range(successor.done("s") + 1, 3):
                successor.take("s", number, self.tables[number])
        finally:
            successor.close()

    def results(self) -> list[int]:
        if self.make is FileSink:
            lines = (self.out / "ann" / "q.jsonl").read_text().splitlines()
            return [x["values"]["x"] for x in map(json.loads, lines)]
        files = sorted((self.out / "ann" / "q").glob("*.parquet"))
        return [x for file in files for x in pq.read_table(file).column("x").to_pylist()]


@contextmanager
def stopped(step: int, then: Callable[[], None]) -> Iterator[list[int]]:
    """The process stops before the change of this number; what happens `then` is not counted."""
    left = [step]

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def do(*given: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == -1:
                then()
            return act(*given, **more)

        return do

    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "fsync", "link", "rename", "unlink", "write", "ftruncate", "pwrite"):
            patch.setattr(os, name, counted(getattr(os, name)))
        for name in ("rename", "unlink"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        yield left


def attacked(home: Path, make: Callable[..., Any], step: int) -> tuple[list[int], list[int], bool]:
    """The results that are out; which steps were left; whether the old process was told to end."""
    world = World(home, make)
    old = world.start()
    old.take("s", 0, world.tables[0])

    replaced = [False]

    def then() -> None:
        with suppress(Conflict):  # the old process was stopped while it changed a file of results
            world.replaced()
            replaced[0] = True

    told = False
    with stopped(step, then) as left:
        try:
            old.take("s", 1, world.tables[1])
        except Fenced:
            told = True
    if left[0] >= 0:
        old.close()
        return world.results(), left, told
    with pytest.raises(Fenced) if replaced[0] else suppress(Fenced):
        old.take("s", 2, world.tables[2])
    old.close()
    world.replaced()
    return world.results(), left, told


def every_step(tmp_path: Path, make: Callable[..., Any], first: int, by: int) -> Iterator[tuple[list[int], bool]]:
    for step in range(first, 500, by):
        results, left, told = attacked(tmp_path / str(step), make, step)
        if left[0] >= 0:
            assert step > 10
            return
        yield results, told
    raise AssertionError("it does not end")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch, no_waiting_for_disks: None) -> None:  # noqa: ARG001
    monkeypatch.setattr(folders, "_PATIENCE", 0.0)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("by", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_process_that_was_replaced_publishes_nothing(tmp_path: Path, make: Callable[..., Any], by: int) -> None:
    found = list(every_step(tmp_path, make, 0, by))
    assert [results for results, _ in found] == [[0, 1, 2]] * len(found)
    assert found[0][1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "make"),
    [
        ("state", FileSink),
        ("state", ParquetSink),
        ("versions", FileSink),
        ("versions", ParquetSink),
        ("results", FileSink),
    ],
)
def test_the_attack_succeeds_without_each_part_of_the_fence(
    tmp_path: Path, make: Callable[..., Any], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a look at the epoch, without a fence around files of results, or with versions of equal numbers. A
    successor removes what an old process has staged in Parquet, so there the fence around files alone is not missed."""
    if fault == "state":
        monkeypatch.setattr(Fence, "check", lambda _: None)
        monkeypatch.setattr(ResultFolder, "change", _unfenced)
    if fault == "results":
        monkeypatch.setattr(ResultFolder, "change", _unfenced)
    if fault == "versions":
        monkeypatch.setattr(StateFolder, "next", property(lambda self: max(self._files, default=0) + 1))
        monkeypatch.setattr(ResultFolder, "change", _unfenced)
    assert any(results != [0, 1, 2] for results in _until_damage(tmp_path, make))


def _until_damage(tmp_path: Path, make: Callable[..., Any]) -> Iterator[list[int] | None]:
    """None: the state or the results were damaged, or the old process goes on."""
    try:
        for results, _ in every_step(tmp_path, make, 0, 1):
            yield results
    except (HeadgateError, pytest.fail.Exception):
        yield None


@contextmanager
def _unfenced(_: object) -> Iterator[None]:
    yield


def test_the_last_process_to_start_has_the_highest_epoch(tmp_path: Path) -> None:
    records = LocalStorage(tmp_path)
    first = Fence(records, "here")
    first.check()
    second = Fence(records, "here")
    assert (second.epoch, second.identity) == (first.epoch + 1, first.identity)
    second.check()
    with pytest.raises(Fenced, match="another process has taken over the state in `here`"):
        first.check()
    assert len(records.names()) == 1


def test_two_that_start_at_the_same_moment_have_different_epochs(tmp_path: Path) -> None:
    """Each lists the records before and after the other has written its own."""
    records, other = LocalStorage(tmp_path), list[Fence]()

    class Between(LocalStorage):
        def commit(self, name: str, content: Any) -> bool:
            if not other:
                other.append(Fence(records, "here"))
            return super().commit(name, content)

    late = Fence(Between(tmp_path), "here")
    assert late.epoch > other[0].epoch
    with pytest.raises(Fenced):
        other[0].check()


def test_what_a_replaced_process_commits_does_not_count(tmp_path: Path) -> None:
    records = LocalStorage(tmp_path / "epochs")
    one = Fence(records, "here")
    states = StateFolder(tmp_path / "state", one.epoch)  # it does not look at the epoch any more
    states.save(Saved(states.next, {}, {"by": "one"}))
    two = Fence(records, "here")
    successor = StateFolder(tmp_path / "state", two.epoch, two.check)
    states.save(Saved(states.next, {}, {"by": "the one that was replaced"}))
    found = StateFolder(tmp_path / "state", Fence(records, "here").epoch).newest()
    assert found is not None and found.rest == {"by": "one"}
    assert successor.next == two.epoch * OF_EPOCH + 1
