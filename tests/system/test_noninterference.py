"""Hidden tuples change nothing that an observer sees: random pairs of runs are compared in everything that reaches the
observer. Planted leaks show that the comparison notices them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.noninterference import pair

from headgate.columns.sorting import Bools, Ints
from headgate.egress import parquet_files, parquet_staging, sinks
from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import FileSink, Verify
from headgate.execution import metering
from headgate.model.results import BlockResults, ResultBatch
from headgate.model.view import View
from headgate.recovery.state import StateFolder
from headgate.visibility import watermarks
from headgate.visibility.index import VisibilityIndex
from headgate.visibility.lateness import ArrivalTimes
from headgate.visibility.policy import VisibilityPolicy

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")


def check(first: int, pairs: int, folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + pairs):
        one, two, noise = pair(seed, folder / "pair")
        assert one.told == two.told, f"seed {seed}"
        counts["pairs"] += 1
        counts["results"] += one.results
        counts["noise"] += noise
        counts["ended"] += one.ended
        counts["pairs with results"] += one.results > 0
        shutil.rmtree(folder / "pair")
    assert counts["results"] > 2 * pairs and counts["noise"] > 10 * pairs and counts["ended"] > pairs / 20
    return counts


def test_hidden_tuples_change_nothing_an_observer_sees(tmp_path: Path) -> None:
    check(0, 200, tmp_path)


@pytest.mark.long
def test_hidden_tuples_change_nothing_an_observer_sees_in_many_pairs(tmp_path: Path) -> None:
    print(dict(check(10_000, 3_000, tmp_path)))


# What would break it --------------------------------------------------------------------------------------------------


def everything_is_shown(patch: pytest.MonkeyPatch) -> None:
    """The ingress filter is off; egress still decides about every result."""
    patch.setattr(VisibilityPolicy, "sees", lambda _, view, *__: [1] * len(view.columns))


def one_watermark(patch: pytest.MonkeyPatch) -> None:
    """Lateness is judged by all tuples of a stream, whoever sees them."""

    def late(self: ArrivalTimes, seen: Bools, before: int, lateness: int, others: int) -> Bools | None:
        times, there = self.times, self.those(seen)
        greatest = np.maximum.accumulate(np.concatenate([[before], times]))
        found = there & (times < np.minimum(greatest[:-1] - lateness, others))
        return found if found.any() else None

    patch.setattr(ArrivalTimes, "late", late)
    patch.setattr(ArrivalTimes, "latest", lambda self, _: int(self.times.max()))
    patch.setattr(ArrivalTimes, "reached", lambda self, _: self.times)


def hidden_columns_are_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VisibilityPolicy, "_hidden", lambda *_: frozenset())


def tables_are_shown(patch: pytest.MonkeyPatch) -> None:
    """The ingress filter is off for tables; egress still decides about every result."""

    def of_table(self: VisibilityIndex, table: str, labels: Ints) -> Ints:
        found = made(self, table, labels)
        for number in self._of_tables.values():
            self._rows[number][:] = 1
        return found

    made = VisibilityIndex.of_table
    patch.setattr(VisibilityIndex, "of_table", of_table)


def numbered_files(patch: pytest.MonkeyPatch) -> None:
    """Files are called after the batch that everybody shares."""
    written = FileSink.prepare

    def prepare(self: FileSink, results: Sequence[ResultBatch], rejected: Sequence[Any], *, as_staged: bool) -> None:
        self.batch = getattr(self, "batch", 0) + 1  # type: ignore[attr-defined]
        name = sinks.file_name
        patch.setattr(sinks, "file_name", lambda path: name((*path[:-1], f"{path[-1]}-{self.batch}")))  # type: ignore[attr-defined]
        written(self, results, rejected, as_staged=as_staged)
        patch.setattr(sinks, "file_name", name)

    patch.setattr(FileSink, "prepare", prepare)


def numbered_lines(patch: pytest.MonkeyPatch) -> None:
    """Results are numbered across all subscribers."""
    lines, numbers = sinks.lines_of, Counter[str]()

    def numbered(result_batch: ResultBatch, address: sinks.Address) -> list[str]:
        numbers["all"] += len(result_batch)
        return [f"{numbers['all']} {line}" for line in lines(result_batch, address)]

    patch.setattr(sinks, "lines_of", numbered)


def one_mailbox(patch: pytest.MonkeyPatch) -> None:
    """What is kept for all together is limited."""
    written = Mailbox.publish

    def publish(self: Mailbox, verify: Verify) -> None:
        written(self, verify)
        while sum(self._sizes.values()) > self._most:
            key = next(iter(self._kept))
            gone = sum(map(len, self._kept.pop(key)))
            self._sizes.pop(key)
            self.lost[key] += gone

    patch.setattr(Mailbox, "publish", publish)


def columns_do_not_protect(patch: pytest.MonkeyPatch) -> None:
    """The labels of columns are no part of those of results (found by this test: cumulative queries told them)."""
    patch.setattr(View, "column_labels", lambda *_: ())


def results_come_again(patch: pytest.MonkeyPatch) -> None:
    """A mailbox is given the last batch once more after a restart (found by this test), if a crash left no note that it
    is out."""
    patch.setattr(Mailbox, "keeps", False)
    patch.setattr(StateFolder, "out", lambda *_: None)


def state_of_all(patch: pytest.MonkeyPatch) -> None:
    """MAX STATE counts all tuples that wait, whoever sees them."""
    enter = watermarks.enter

    def all_enter(view: View, times: Ints, entering: Bools, moments: Ints, marks: Ints) -> int | None:
        return enter(view, times, np.ones_like(entering), moments, marks)

    patch.setattr(watermarks, "enter", all_enter)


def results_of_all(patch: pytest.MonkeyPatch) -> None:
    """MAX RESULTS counts what all views together yield in a batch."""
    metered, yielded = metering.within_limits, Counter[int]()

    def anew(views: Iterable[View], found: Sequence[BlockResults]) -> list[BlockResults]:
        yielded.clear()
        return metered(views, found)

    def together(times: Ints, most: int, second: int, _: int) -> tuple[int | None, int, int]:
        for number, time in enumerate(times.tolist()):
            yielded[time // 1000] += 1
            if yielded[time // 1000] > most:
                return number, second, 0
        return None, second, 0

    patch.setattr(metering, "within_limits", anew)
    patch.setattr(metering, "too_many_results", together)


def a_file_for_each_batch(patch: pytest.MonkeyPatch) -> None:
    """Parquet files end where batches end, which hidden tuples move."""

    def begin_another(_folder: object, _place: str, rows: int, _table: object) -> tuple[None, int, None]:
        return None, rows + -rows % parquet_files.ROWS, None

    patch.setattr(parquet_staging, "_last_file", begin_another)


FAULTS = (
    a_file_for_each_batch,
    state_of_all,
    results_of_all,
    everything_is_shown,
    one_watermark,
    hidden_columns_are_read,
    tables_are_shown,
    numbered_files,
    numbered_lines,
    one_mailbox,
    columns_do_not_protect,
    results_come_again,
)


RARE: dict[Callable[[pytest.MonkeyPatch], None], tuple[int, dict[str, Any]]] = {
    columns_do_not_protect: (775, {"together": True}),
    results_of_all: (0, {"results": 4}),
}
"""Faults that few worlds find out: from which world on to look, and what these worlds have beside."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_the_comparison_notices_every_planted_leak(
    fault: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels of columns matter to cumulative queries; worlds that tell of others by their windows are passed over."""
    first, beside = RARE.get(fault, (0, {}))
    for seed in range(first, first + 120):
        fault(monkeypatch)
        found = differ(seed, tmp_path / str(seed), beside)
        monkeypatch.undo()
        if found and not (beside and differ(seed, tmp_path / f"{seed} as it is", beside)):
            return
    pytest.fail("nothing was found out")


def differ(seed: int, folder: Path, beside: Mapping[str, Any]) -> bool:
    try:
        one, two, _ = pair(seed, folder, **beside)
    except AssertionError:
        return True
    return one.told != two.told
