"""The ingress log alone: durable before acknowledged, once, in order, whatever is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.errors import HeadgateError, StoreError
from headgate.ingress.folder_log import FolderLog
from headgate.ingress.sequence_numbers import REMEMBERED_SECONDS, OutOfOrder, Producer
from headgate.testing import ManualClock

SAM = Producer("sam", "U", "p")


def table(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    found = FolderLog(tmp_path / "ingress")
    yield found
    found.close()


def rows(log: FolderLog, stream: str = "s") -> list[int]:
    """What the engine would read, in the order in which Spark gives files."""
    files = sorted(log.folder_of(stream).glob("*.parquet"), key=lambda x: (x.stat().st_mtime_ns // 1_000_000, x.name))
    return [n for path in files for n in pq.read_table(path).column("n").to_pylist()]


def test_what_is_acknowledged_is_there_in_order(log: FolderLog) -> None:
    waiting = [log.append("s", table(n, n + 1), SAM) for n in range(0, 200, 2)]
    assert [x.result(20).rows for x in waiting] == [2] * 100
    assert rows(log) == list(range(200))
    assert len(list(log.folder_of("s").glob("*.parquet"))) <= 100
    assert {x.stat().st_mode & 0o077 for x in log.folder_of("s").iterdir()} == {0}


def test_a_number_is_taken_once_also_after_a_restart(tmp_path: Path) -> None:
    log = FolderLog(tmp_path)
    assert not log.append("s", table(1), SAM, 1).result(20).is_repeat
    assert log.append("s", table(1), SAM, 1).result(20).is_repeat
    group = [log.append("s", table(n), SAM, n) for n in (2, 2, 3, 2)]
    assert [x.result(20).is_repeat for x in group] == [False, True, False, True]
    log.close()
    log = FolderLog(tmp_path)
    assert log.append("s", table(3), SAM, 3).result(20).is_repeat
    assert not log.append("s", table(9), Producer("sam", "S", "p"), 1).result(20).is_repeat
    with pytest.raises(OutOfOrder, match="4 comes next"):
        log.append("s", table(5), SAM, 5).result(20)
    assert rows(log) == [1, 2, 3, 9]
    log.close()


@pytest.mark.parametrize("where", ["_write_file", "_commit", "_name"])
def test_whatever_is_interrupted_a_tuple_counts_once(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash at each step: what was answered is there, and what is sent again is there once."""
    log = FolderLog(tmp_path)
    log.append("s", table(1), SAM, 1).result(20)

    def crash(*_: object) -> None:
        raise OSError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(FolderLog, where, crash)
        with pytest.raises(StoreError):
            log.append("s", table(2), SAM, 2).result(20)
    log._store.close()  # without a word: as if the process had ended there
    log._requests.put(None)
    again = FolderLog(tmp_path)
    answer = again.append("s", table(2), SAM, 2).result(20)
    assert answer.is_repeat == (where == "_name")  # it counted when it was recorded
    assert rows(again) == [1, 2]
    again.close()


def test_files_that_were_not_recorded_are_removed(tmp_path: Path) -> None:
    FolderLog(tmp_path).close()
    (tmp_path / ".new" / "00000000000000000001.parquet").write_bytes(b"half")
    log = FolderLog(tmp_path)
    assert list((tmp_path / ".new").iterdir()) == [] and rows(log) == []
    log.close()


def test_times_of_files_never_go_back(log: FolderLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append("s", table(1), SAM).result(20)
    monkeypatch.setattr("headgate.ingress.folder_log.time.time_ns", lambda: 0)
    log.append("s", table(2), SAM).result(20)
    assert rows(log) == [1, 2]


def test_a_second_process_is_refused(log: FolderLog, tmp_path: Path) -> None:
    log.append("s", table(1), SAM).result(20)
    with pytest.raises(HeadgateError, match="another process uses it"):
        FolderLog(tmp_path / "ingress")


def test_a_stream_is_full_when_its_files_are(tmp_path: Path) -> None:
    log = FolderLog(tmp_path, most_bytes=1)
    assert not log.is_full("s")
    log.append("s", table(1), SAM).result(20)
    log._sizes.clear()
    assert log.is_full("s") and not log.is_full("other")
    log.close()


def test_room_is_made_by_removing_the_oldest(tmp_path: Path) -> None:
    log = FolderLog(tmp_path, most_bytes=10_000)
    for n in range(40):
        log.append("s", table(n), SAM).result(20)
    log.make_room("s")
    found = rows(log)
    assert found == list(range(found[0], 40)) and found[0] > 0
    assert 0 < log.waiting("s") <= 5_000 and log.removed == found[0]
    log.close()


def test_what_is_left_of_dropped_streams_is_removed(tmp_path: Path) -> None:
    log = FolderLog(tmp_path)
    for stream in ("kept", "dropped"):
        log.append(stream, table(1), SAM, 1).result(20)
    log.keep({"kept"})
    assert rows(log, "kept") == [1] and not log.folder_of("dropped").exists()
    assert log.append("kept", table(1), SAM, 1).result(20).is_repeat
    assert not log.append("dropped", table(1), SAM, 1).result(20).is_repeat
    log.close()
    again = FolderLog(tmp_path)
    assert rows(again, "kept") == [1]
    again.close()


def test_producers_that_send_nothing_for_long_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.ingress.sequence_numbers.MOST_PRODUCERS", 3)
    clock = ManualClock(1_000_000.0)
    log = FolderLog(tmp_path / "ingress", clock=clock)

    def sent(name: str, number: int = 1, **more: bool) -> bool:
        return log.append("s", table(number), Producer("sam", "U", name), number, **more).result(20).is_repeat

    assert [sent(name) for name in "abc"] == [False] * 3
    with pytest.raises(HeadgateError, match="cannot take another producer"):
        sent("d")
    clock.advance(REMEMBERED_SECONDS + 1)
    assert not sent("a", 2)
    with pytest.raises(HeadgateError, match="cannot take another producer"):
        sent("d", for_ever=True)  # where requests are signed: nothing may be taken again that somebody has seen
    assert not sent("d")
    assert sent("a", 2) and not sent("b")  # a is remembered, b is not
    log.close()
