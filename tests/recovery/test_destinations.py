"""Several sinks of one run: the results of a batch are counted once, whichever sink is the last."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds.harness import Bench, stream

from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import Sink
from headgate.recovery.pipeline import Pipeline


class Other(Mailbox):
    name = "other"


class _Killed(BaseException):
    pass


def ward(home: Path, *, files_last: bool) -> tuple[Bench, list[Sink]]:
    bench = Bench(home, stream("s", "x INT"))
    bench.query("q", "SELECT x FROM s")
    bench.subscribed(ann=("q", "nurse"))
    return bench, [bench.files(), *([] if files_last else [Other()])]


@pytest.mark.parametrize("files_last", [True, False])
def test_results_are_counted_once_for_all_sinks(tmp_path: Path, files_last: bool) -> None:
    bench, sinks = ward(tmp_path, files_last=files_last)
    pipeline = bench.begin(*sinks)
    bench.take("s", ("nurse", 1), ("nurse", 2), ("doctor", 3))
    assert list(pipeline.counts.results.values()) == list(pipeline.counts.received.values()) == [2]


@pytest.mark.parametrize("files_last", [True, False])
def test_results_that_one_sink_gets_again_after_a_crash_are_counted(
    tmp_path: Path, files_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, sinks = ward(tmp_path, files_last=files_last)

    def killed(*_: object) -> None:
        raise _Killed

    pipeline = bench.begin(*sinks)
    monkeypatch.setattr(Pipeline, "_deliver", killed)
    with pytest.raises(_Killed):
        bench.take("s", ("nurse", 1), ("nurse", 2))
    monkeypatch.undo()
    pipeline.close()
    assert list(bench.begin(*sinks).counts.results.values()) == [2]
