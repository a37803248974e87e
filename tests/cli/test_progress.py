"""How far a run is, where there is no terminal to show it on."""

from __future__ import annotations

import pytest

from headgate.cli.progress import Bar
from headgate.cli.run import _waiting
from headgate.recovery.counts import RunCounts
from headgate.testing import ManualClock


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize(
    ("follow", "everyone", "told"), [(True, False, "5 results"), (False, True, "7 tuples in 1 batch, 5 results")]
)
def test_without_a_terminal_it_says_that_it_is_ready_and_then_how_far_it_is_but_less_and_less_often(
    capsys: pytest.CaptureFixture[str], follow: bool, everyone: bool, told: str
) -> None:
    clock, counts = ManualClock(), RunCounts()
    with Bar(follow=follow, everyone=everyone, clock=clock) as bar:
        assert lines(capsys) == []
        bar.show(counts)
        assert lines(capsys) == ["ready"]
        counts.batches, counts.tuples["s"], counts.received["joe", "s"] = 1, 7, 5
        bar.show(counts)
        assert lines(capsys) == []
        clock.advance(1)
        bar.show(counts)
        assert lines(capsys) == [told]
        clock.advance(1000)
        bar.show(counts)
        assert lines(capsys) == []  # nothing has come
        written = 0
        for _ in range(600):
            counts.received["joe", "s"] += 1
            clock.advance(1)
            bar.show(counts)
            written += len(lines(capsys))
        assert 10 <= written <= 16


def test_what_ends_soon_writes_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar(follow=False, everyone=False, clock=ManualClock()) as bar:
        bar.show(RunCounts())
    assert lines(capsys) == []


def test_streams_that_can_be_read_again_are_named_as_they_were() -> None:
    failed = [
        "cannot read stream joe.a as `json`: PATH_NOT_FOUND: `a`",
        "cannot read stream joe.b any further: `b` is missing",
        "joe.mean: an input stream is unavailable",
    ]
    assert [*_waiting([], failed[:1])] == [f"{failed[0]}; it is tried again"]
    assert [*_waiting(failed, [])] == [
        f"{name} can be read again" for name in ("joe.mean", "stream joe.a", "stream joe.b")
    ]
