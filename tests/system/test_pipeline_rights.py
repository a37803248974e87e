"""Cases of a whole pipeline that are easy to get wrong, each by name; planted faults show that the comparison with the
oracle notices them.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from worlds.pipeline_replay import one_case
from worlds.pipeline_worlds import Step
from worlds.story import DESCRIPTORS, RULES, S, Story, running, snapshot, who

from headgate.egress.filter import ResultFilter
from headgate.labels import Semantics, parse_label
from headgate.model.view import View
from headgate.plan.queries import Stream
from headgate.visibility.index import VisibilityIndex
from headgate.visibility.lateness import ArrivalTimes
from headgate.visibility.policy import VisibilityPolicy

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")


WEAK = replace(RULES, semantics={"lab": Semantics.WEAK})
OF_LAB = {name: replace(x, policy=parse_label("TRUE FROM lab")) for name, x in DESCRIPTORS.items()}
COUNT = running("q", "SELECT COUNT(*) AS n FROM s [ROWS 9]")


def test_visibility_is_recomputed_when_the_semantics_changes_with_the_queries(tmp_path: Path) -> None:
    """New queries make new processors: those must not take what was seen under other rules as seen."""
    first = replace(snapshot([COUNT], {"ann": who()}, WEAK), descriptors=OF_LAB)
    story = Story(tmp_path, first)
    assert story.batch(first, (1, "TRUE"), (2, "TRUE")) == {"ann": [(1, (1,), "TRUE FROM lab, s")]}
    other = running("r", "SELECT n FROM s WHERE n > 90")
    assert story.batch(snapshot([COUNT, other], {"ann": who()}), (3, "TRUE"), (4, "TRUE")) == {
        "ann": [(3, (1,), "TRUE FROM s")]
    }


def test_visibility_is_recomputed_when_the_semantics_changes_while_nothing_runs(tmp_path: Path) -> None:
    first = replace(snapshot([COUNT], {"ann": who()}, WEAK), descriptors=OF_LAB)
    story = Story(tmp_path, first)
    story.batch(first, (1, "TRUE"), (2, "TRUE"))
    now = snapshot([COUNT], {"ann": who()})
    assert story.restart(now) == {}
    assert story.batch(now, (3, "TRUE"), (4, "TRUE")) == {"ann": [(3, (1,), "TRUE FROM s")]}


def test_views_that_part_keep_common_tuples_and_each_loses_what_it_may_not_see(tmp_path: Path) -> None:
    first = snapshot([COUNT], {"ann": who("a"), "bob": who("a")})
    story = Story(tmp_path, first)
    story.batch(first, (1, "a"), (2, "TRUE"))
    parted = snapshot([COUNT], {"ann": who("a"), "bob": who()})
    story.restart(parted)
    found = story.batch(parted, (3, "TRUE"))
    assert found == {"ann": [(2, (2,), "a FROM s")], "bob": [(2, (1,), "TRUE FROM s")]}


def test_subscribers_of_one_view_get_only_the_column_labels_of_their_own(tmp_path: Path) -> None:
    """Both have seen nothing of the column, so one computation serves both; their labels differ all the same."""
    labelled = replace(S, labels=(("n", parse_label("a")),))
    query = running("q", "SELECT COUNT(n) AS n FROM s [ROWS 1]", labelled)
    story = Story(tmp_path, first := snapshot([query], {"ann": who("a"), "bob": who()}))
    story.batch(first, (1, "TRUE"))
    found = story.batch(first, (2, "TRUE"))
    assert found == {"ann": [(1, (1,), "a FROM s")], "bob": [(1, (0,), "TRUE FROM s")]}
    gained = snapshot([query], {"ann": who("a"), "bob": who("a")})
    assert story.batch(gained, (3, "TRUE"))["bob"] == [(2, (0,), "a FROM s")]


def test_a_right_lost_during_delivery_withholds_the_results(tmp_path: Path) -> None:
    stateless = running("q", "SELECT n FROM s")
    story = Story(tmp_path, first := snapshot([stateless], {"ann": who("a")}))
    lost = snapshot([stateless], {"ann": who()})
    assert story.batch(first, (1, "a"), (2, "TRUE"), during=lost) == {"ann": [(2, (2,), "TRUE FROM s")]}
    assert story.restart(lost) == {}  # it is out


def test_a_subscriber_who_returns_begins_with_nothing_and_others_go_on(tmp_path: Path) -> None:
    story = Story(tmp_path, both := snapshot([COUNT], {"ann": who(), "bob": who()}))
    one = snapshot([COUNT], {"ann": who()})
    story.batch(both, (1, "TRUE"))
    story.batch(one, (2, "TRUE"))
    story.batch(both, (3, "TRUE"))
    found = story.batch(both, (4, "TRUE"))
    assert found == {"ann": [(3, (3,), "TRUE FROM s")], "bob": [(3, (1,), "TRUE FROM s")]}


def test_a_query_over_results_reads_what_its_own_reader_would_receive(tmp_path: Path) -> None:
    over = Stream("o_q", COUNT.query.columns)
    story = Story(
        tmp_path, first := snapshot([COUNT, running("r", "SELECT n FROM o_q", over)], {"ann": who("a"), "bob": who()})
    )
    first = replace(first, subscribers=tuple(x for x in first.subscribers if x.query == "r"))
    story.batch(first, (1, "a"), (2, "TRUE"))
    assert story.batch(first, (3, "TRUE")) == {
        "ann": [(2, (2,), "a FROM o_q, s")],
        "bob": [(2, (1,), "TRUE FROM o_q, s")],
    }


LOST_COLUMN = {
    "SELECT DSTREAM x.n AS n FROM s [UNBOUNDED] x, s [UNBOUNDED] y WHERE x.n = y.n": [],
    "SELECT DSTREAM n FROM s [UNBOUNDED] x WHERE x.n > 0": [],
    "SELECT x.n AS n FROM s [UNBOUNDED] x WHERE x.n IS NULL": [
        (2, (None,), "TRUE FROM s"),
        (3, (None,), "TRUE FROM s"),
    ],
}


@pytest.mark.parametrize("text", LOST_COLUMN)
def test_rows_that_come_or_go_with_a_lost_column_are_not_reported(text: str, tmp_path: Path) -> None:
    """Tuple 1 was there at an instant before the column was lost: it neither goes nor comes by that."""
    query = running("q", text, replace(S, labels=(("n", parse_label("a")),)))
    story = Story(tmp_path, first := snapshot([query], {"ann": who("a")}))
    lost = snapshot([query], {"ann": who()})
    story.batch(first, (1, "TRUE"), (2, "TRUE"))
    assert [*story.batch(lost, (3, "TRUE")).values(), *story.batch(lost, (4, "TRUE")).values()] == [
        [x] for x in LOST_COLUMN[text]
    ]


@pytest.mark.parametrize("between", [0, 1, 2])
def test_partitions_that_a_lost_column_makes_one_keep_the_last_however_many_batches_follow(
    between: int, tmp_path: Path
) -> None:
    """Tuple 1 leaves by the loss alone; it is tuple 2 that the next one displaces."""
    query = running(
        "q", "SELECT DSTREAM at FROM s [PARTITIONED BY n ROWS 1]", replace(S, labels=(("n", parse_label("a")),))
    )
    story = Story(tmp_path, first := snapshot([query], {"ann": who("a")}))
    lost = snapshot([query], {"ann": who()})
    assert story.batch(first, (1, "TRUE"), (2, "TRUE"), (3, "TRUE")) == {}
    for _ in range(between):
        assert story.batch(lost) == {}
    found = story.batch(lost, (4, "TRUE"))["ann"]
    assert [(time, at.second) for time, (at,), _ in found if isinstance(at, dt.datetime)] == [(3, 2)]


# It would be noticed --------------------------------------------------------------------------------------------------


def _notices(folder: Path) -> bool:
    for seed in range(120):
        try:
            one_case(seed, folder / str(seed), Counter(), unrest=seed % 2 == 0)
        except AssertionError:
            return True
    return False


def _to_the_next(self: ResultFilter, views: Sequence[View], found: Sequence[object]) -> list[object]:
    """What one view has computed goes to whoever looks through the next."""
    mine = _PARCELS(self, views, found)  # type: ignore[arg-type]
    names = [result_batch.subscribers for result_batch in mine]
    return [result_batch.to(other) for result_batch, other in zip(mine, [*names[1:], *names[:1]], strict=True)]


def _forgetful(self: VisibilityIndex, view: View, names: Collection[str]) -> View:
    return self.add_view(view.running, {name: view.clearances.pop(name) for name in names})


_PARCELS, _REACHED, _ARRIVED = ResultFilter.result_batches, View.reached, ArrivalTimes.__init__
FAULTS: dict[str, tuple[type, str, Callable[..., object]]] = {
    "ingress lets everything in": (VisibilityPolicy, "sees", lambda _, view, *__: [1] * len(view.columns)),
    "ingress hides no column": (VisibilityPolicy, "_hidden", lambda *_: frozenset()),
    "lateness is too short": (View, "reached", lambda self, stream: _REACHED(self, stream) + 600),
    "lateness is too long": (View, "reached", lambda self, stream: _REACHED(self, stream) - 600),
    "time runs ahead of the clock": (
        ArrivalTimes,
        "__init__",
        lambda self, times, kind, kinds, _: _ARRIVED(self, times, kind, kinds),
    ),
    "time is held back by the clock for ever": (
        ArrivalTimes,
        "__init__",
        lambda self, times, kind, kinds, clock: _ARRIVED(self, times, kind, kinds, clock and clock - 5000),
    ),
    "results go to the wrong view": (ResultFilter, "result_batches", _to_the_next),
    "labels of columns are forgotten": (View, "column_labels", lambda *_: ()),
    "what is lost comes back": (VisibilityPolicy, "both", lambda _, before, now: max(before, now)),
    "views forget when they part": (VisibilityIndex, "split_view", _forgetful),
    "results of others are read by all": (VisibilityIndex, "_for_some", lambda _, number, __: number),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_notices_every_planted_fault(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    assert _notices(tmp_path)


def test_after_the_end_windows_begin_anew(tmp_path: Path) -> None:
    story = Story(tmp_path, first := snapshot([COUNT], {"ann": who()}))
    story.batch(first, (1, "TRUE"), (2, "TRUE"))
    ended = {"ann": [(2, (2,), "TRUE FROM s")]}
    assert story._step(Step("end", first, first)) == ended
    assert story.batch(first, (1, "TRUE"), (2, "TRUE")) == {"ann": [(1, (1,), "TRUE FROM s")]}
    story._step(Step("end", first, first))
    assert story.restart(first) == {}
    assert story.batch(first, (1, "TRUE"), (2, "TRUE")) == {"ann": [(1, (1,), "TRUE FROM s")]}
