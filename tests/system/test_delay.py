"""Streams that declare how long their tuples take to arrive: time passes by the clock, for everyone alike."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from worlds.harness import NOW, Bench, stream

BEGIN = int(NOW.timestamp() * 1000)
COUNT = "SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND]"
AHEAD = 600_000


def bench(home: Path, *texts: str, delay: int | None = 1000) -> Bench:
    """Queries q0, q1 and so on; ann sees what is for nurses of the last one."""
    found = Bench(home, stream("s", "a INT"))
    found.descriptors["s"] = replace(found.descriptors["s"], delay=delay)
    for number, text in enumerate(texts):
        found.query(f"q{number}", text)
    found.subscribed(ann=(f"q{len(texts) - 1}", "nurse"))
    return found


def take(found: Bench, second: float, *labels: str, settled: float | None = None) -> None:
    """Tuples of one second after NOW, which come then."""
    pipeline = found.pipeline or found.begin()
    at = NOW + dt.timedelta(seconds=second)
    rows = found.table("s", [(label, 1) for label in labels], [at] * len(labels))
    found._numbers["s"] = found._numbers.get("s", -1) + 1
    known = None if settled is None else BEGIN + int(settled * 1000)
    pipeline.take("s", found._numbers["s"], rows, BEGIN + AHEAD, known)


def pass_time(found: Bench, second: float) -> None:
    """All that came until so many seconds after NOW was read."""
    assert found.pipeline is not None
    found.pipeline.pass_time({"s": BEGIN + int(second * 1000)})


@pytest.mark.parametrize("hidden", [0, 500])
def test_a_result_comes_by_the_clock_whatever_else_comes(tmp_path: Path, hidden: int) -> None:
    found = bench(tmp_path, COUNT)
    take(found, 0.5, "nurse", *["doctor"] * hidden)
    assert found.fetched("ann", "q0") == []
    pass_time(found, 1.9)
    assert found.fetched("ann", "q0") == []
    pass_time(found, 2.001)  # 1.001: nothing of the first second is on its way any more
    assert found.fetched("ann", "q0") == [(1,)]


def test_a_busy_stream_says_with_its_batches_how_far_it_was_read(tmp_path: Path) -> None:
    found = bench(tmp_path, COUNT)
    take(found, 0.5, "nurse")
    take(found, 2.1, "doctor", settled=1.5)
    assert found.fetched("ann", "q0") == []
    take(found, 2.2, "doctor", settled=2.1)
    assert found.fetched("ann", "q0") == [(1,)]


def test_without_a_declared_delay_only_tuples_move_time(tmp_path: Path) -> None:
    found = bench(tmp_path, COUNT, delay=None)
    take(found, 0.5, "nurse")
    pass_time(found, 100)
    assert found.fetched("ann", "q0") == []


def test_the_clock_makes_all_stages_final(tmp_path: Path) -> None:
    found = bench(tmp_path, "SELECT a FROM s", 'SELECT COUNT(*) AS n FROM "out.q0" [RANGE 1 SECOND SLIDE 1 SECOND]')
    take(found, 0.5, "nurse", "doctor")
    pass_time(found, 2.5)
    assert found.fetched("ann", "q1") == [(1,)]


def test_a_tuple_that_took_longer_than_declared_is_late_and_counted(tmp_path: Path) -> None:
    found = bench(tmp_path, COUNT)
    take(found, 0.5, "nurse")
    pass_time(found, 3)
    take(found, 0.6, "nurse")
    take(found, 2.5, "nurse")
    found.end()
    assert found.fetched("ann", "q0") == [(1,), (1,)]
    assert found.pipeline is not None and found.pipeline.counts.late["s"] == 1


def test_a_restart_knows_how_far_the_clock_had_come(tmp_path: Path) -> None:
    found = bench(tmp_path, COUNT)
    take(found, 0.5, "nurse")
    pass_time(found, 3)
    assert found.fetched("ann", "q0") == [(1,)]
    assert found.pipeline is not None
    found.pipeline.close()
    found.begin()
    take(found, 0.6, "nurse")
    pass_time(found, 4)
    assert found.fetched("ann", "q0") == []


def test_time_that_makes_nothing_final_writes_nothing(tmp_path: Path) -> None:
    found = bench(tmp_path, COUNT)
    take(found, 0.5, "nurse")
    assert found.pipeline is not None
    pass_time(found, 2.5)
    version = found.pipeline._committer.version
    for second in range(3, 30):
        pass_time(found, second)
    assert found.pipeline._committer.version == version


@pytest.mark.parametrize("restart", [False, True])
def test_hidden_tuples_do_not_decide_whether_a_tuple_is_late(tmp_path: Path, restart: bool) -> None:
    """The attack: a look at the clock that makes nothing final for anybody writes nothing. So it depended on what
    others held whether the look counted, and with it whether a tuple was late that took longer than declared."""
    received = []
    for hidden in (True, False):
        found = bench(tmp_path / str(hidden), "SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND]")
        found.subscribed(ann=("q0", "nurse"), bob=("q0", "doctor"))
        take(found, 0.5, "doctor" if hidden else "clerk")
        pass_time(found, 10)
        take(found, 6, "nurse")
        if restart:
            assert found.pipeline is not None
            found.pipeline.close()
            found.begin()
        take(found, 12, "nurse")
        found.end()
        received.append(found.fetched("ann", "q0"))
    assert received == [[(1,)], [(1,)]]
