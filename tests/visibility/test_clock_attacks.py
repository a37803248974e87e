"""Attacks by clocks: a sender whose tuples are ahead of the clock does not stop its readers."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from worlds.harness import NOW, Bench, Row, stream

from headgate.recovery.messages import LATE
from headgate.service.streams import clock_of

COUNT = "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 1 SECOND]"


def at(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


def live(found: Bench, *seconds: int, ahead: int | None = None) -> None:
    """A tuple each second, read half a second later; the last one brings another along whose clock is ahead."""
    for second in seconds:
        found.clock.advance((at(second + 0.5) - NOW).total_seconds() + NOW.timestamp() - found.clock.now())
        rows: list[Row] = [("TRUE", second)]
        times: list[dt.datetime | None] = [at(second)]
        if ahead is not None and second == seconds[-1]:
            rows.append(("TRUE", -1))
            times.append(at(second + ahead))
        found.take("s", *rows, times=times)


def bench(home: Path, text: str = COUNT) -> Bench:
    found = Bench(home, stream("s", "a INT"))
    found.query("q", text)
    found.subscribed(amy=("q", ""))
    return found


def test_a_tuple_ahead_of_the_clock_does_not_stop_its_readers(tmp_path: Path) -> None:
    found = bench(tmp_path)
    found.begin(found.files())
    live(found, *range(1, 6), ahead=3500)
    found.fetched("amy", "q")
    live(found, *range(6, 31))
    assert found.fetched("amy", "q") == [(n,) for n in (6, 7, 8, 9, 10, *[10] * 19)]  # one a second, as before
    assert found.pipeline is not None and not found.pipeline.counts.late
    found.end()
    assert found.fetched("amy", "q")[-1] == (1,)  # the one from ahead is not lost either


def test_a_clock_that_is_always_ahead_makes_nobody_wait_and_nobody_late_within_the_lateness(tmp_path: Path) -> None:
    found = bench(tmp_path, "SELECT a FROM s [ROWS 1]")
    found.queries["q"].lateness["s"] = 1000  # type: ignore[index]
    for second in range(1, 31):
        live(found, second, ahead=3500)
    assert [a for (a,) in found.fetched("amy", "q") if a != -1] == list(range(1, 30))


def test_late_tuples_are_counted_for_the_owner(tmp_path: Path) -> None:
    found = bench(tmp_path)
    found.begin(found.files())
    live(found, 1, 2, 9)
    found.take("s", ("TRUE", 1), ("TRUE", 2), ("TRUE", 3), times=[at(3), at(4), at(9)])
    assert found.pipeline is not None
    assert found.pipeline.counts.late == {"s": 2}
    assert found.pipeline.counts.unseen["s"] == 0  # they are late, and not hidden
    (line,) = (tmp_path / "out/owner/s.rejected.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == f"{LATE}: 2 tuples"


def test_late_tuples_are_counted_for_every_set_of_readers(tmp_path: Path) -> None:
    found = bench(tmp_path)
    found.query("p", "SELECT a FROM s")
    for who in ({"amy": ("q", "")}, {"amy": ("q", ""), "fay": ("q", "nurse"), "dora": ("p", "")}, {"dora": ("p", "")}):
        found.subscribed(**who)
        found.clock.advance(60)
        found.take("s", ("TRUE", 1), ("TRUE", 2), ("FALSE", 3), times=[at(9), at(3), at(4)])
        assert found.pipeline is not None
        count = found.pipeline.counts
        assert (count.late.pop("s"), count.unseen.pop("s")) == (1, 1)
        found.end()


def test_a_batch_repeated_after_a_crash_is_decided_by_the_same_clock(tmp_path: Path) -> None:
    found = bench(tmp_path)
    pipeline = found.begin()
    came = int((NOW.timestamp() + 1) * 1000)
    found.clock.advance(7200)  # it went on two hours later
    pipeline.take("s", 0, found.table("s", [("TRUE", 1), ("TRUE", 2)], [at(1), at(3600)]), came)
    pipeline.take("s", 1, found.table("s", [("TRUE", 3)], [at(2)]), came + 1000)
    pipeline.take("s", 2, found.table("s", [("TRUE", 4)], [at(4000)]), came + 1000)  # beyond the skew of an hour
    assert pipeline.counts.rejected.total() == 1
    pipeline.take("s", 3, found.table("s", [("TRUE", 5)], [at(9)]), came + 9000)
    assert found.fetched("amy", "q") == [(n,) for n in (1, 2, 2, 2, 2, 2, 2, 2)]


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", 'v1\n{"batchTimestampMs": null}', "v1\nnothing"])
def test_without_a_saved_clock_the_present_time_counts(text: str, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(text)
    assert clock_of(tmp_path, 3) is None
    assert clock_of(tmp_path, 4) is None
    (tmp_path / "offsets" / "4").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000123}\n{"x":1}')
    assert clock_of(tmp_path, 4) == 1_700_000_000_123
