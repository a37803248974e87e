"""The delivery log alone: order, positions, what a crash leaves, what is removed, and whom a record is for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.egress.delivery_log import DeliveryLog, Entry, LogPosition
from headgate.egress.log_records import AFTER, DeliveryRecord, decode, encode
from headgate.egress.version_results import is_for_subscriber
from headgate.errors import LeaseLost
from headgate.labels import parse_label
from headgate.model.results import Recipient, ResultBatch, notice
from headgate.model.snapshot import CatalogSnapshot
from headgate.testing import ManualClock

LABELS = (parse_label("doctor & (nurse | clerk) AT S FROM a, b"), parse_label("TRUE"))


def batch(values: Sequence[int], *subscribers: str, query: str = "1") -> ResultBatch:
    size, numbers = len(values), np.array(values, np.int64)
    texts = pa.array([f"text {n}" for n in values], pa.string())
    return ResultBatch(
        subscribers, query, np.zeros(size, np.int64), numbers, (pa.array(numbers), texts), numbers % 2, LABELS
    )


def deliver(log: DeliveryLog, version: int, *batches: ResultBatch) -> dict[str, object]:
    """One version, as the pipeline delivers it; returns the state from before."""
    log.stage(version, batches)
    before = log.state(batches)
    log.prepare(batches, (), as_staged=True)
    log.publish(lambda: None)
    log.complete()
    return before


def read(
    log: DeliveryLog, name: str, after: LogPosition | None = None, most: int = 3, query: str = "1"
) -> list[object]:
    found: list[object] = []
    position = after or LogPosition()
    while entries := log.read(name, query, position, most):
        for entry in entries:
            found += [entry.batch.word] if entry.batch.word else entry.batch.values[0].to_pylist()
            position = entry.positions[-1]
    return found


def test_a_record_is_what_was_written() -> None:
    given = batch([1, 2, 3], "a", "b")
    found = decode(encode(7, given, None, 1.5))
    assert (found.subscribers, found.query, found.kinds) == (given.subscribers, given.query, given.kinds)
    assert [x.to_pylist() for x in found.values] == [x.to_pylist() for x in given.values]
    assert found.labels.tolist() == given.labels.tolist() and found.times.tolist() == given.times.tolist()
    word = notice(("a",), "1", ended="so", outgoing=Recipient("a", "U", "s", ("n",), frozenset({"r"})))
    told = decode(encode(7, word, -1, 1.5))
    assert told.word == {"ended": "so"} and told.outgoing == word.outgoing


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", "ab"]), st.integers(0, 7)), max_size=3), max_size=8),
    st.integers(1, 5),
    st.integers(0, 40),
    st.booleans(),
)
def test_every_reader_reads_its_own_in_order_from_anywhere(
    tmp_path_factory: pytest.TempPathFactory, versions: list[list[tuple[str, int]]], most: int, cut: int, again: bool
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log, expected, number = DeliveryLog(folder, segment=500), dict[str, list[int]](a=[], b=[]), 0
    for version, parts in enumerate(versions, 1):
        taken: set[str] = set()
        batches = []
        for names, size in parts:
            if size and taken.isdisjoint(names):  # one batch of results for a reader in a version
                taken |= set(names)
                values = range(number, number + size)
                number += size
                batches.append(batch(values, *names))
                for name in names:
                    expected[name] += values
        deliver(log, version, *batches)
    if again:
        states = log.state()
        log = DeliveryLog(folder)
        log.restore(states, out=True)
    for name, all_of_it in expected.items():
        assert read(log, name, most=most) == all_of_it
        entries = log.read(name, "1", LogPosition(), cut) if cut else []
        if entries:
            seen = sum(len(x.batch) for x in entries)
            assert read(log, name, entries[-1].positions[-1], most) == all_of_it[seen:]


def test_what_a_crash_interrupted_is_delivered_again_at_the_same_positions(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path)
    deliver(log, 1, batch(range(5), "a", "b"))
    before = deliver(log, 2, batch(range(5, 10), "a", "b"))
    (entry,) = log.read("a", "1", LogPosition(1, 4), 3)
    last = entry.positions[-1]
    again = DeliveryLog(tmp_path)
    again.restore(before, out=False)  # as after kill -9 before the delivery was recorded
    assert read(again, "a") == list(range(5))
    # delivered under the rights of now, one reader at a time, and the first result is permitted no more
    some = [batch(range(5, 10), name).left(np.array([False, True, True, True, True])) for name in "ba"]
    again.prepare(some, (), as_staged=False)
    again.publish(lambda: None)
    assert read(again, "a", last) == [8, 9]
    assert read(again, "a", LogPosition(1, 4)) == [6, 7, 8, 9]
    again.restore(again.state(), out=True)  # an engine that starts again in the same process
    assert read(again, "a") == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_nothing_is_readable_before_it_is_published_nor_if_the_lease_is_lost(tmp_path: Path) -> None:
    log, woken = DeliveryLog(tmp_path), list[set[tuple[str, str]]]()
    log.wake = woken.append
    log.stage(1, [])
    log.prepare([batch([1], "a")], (), as_staged=True)
    assert read(log, "a") == []

    def lost() -> None:
        raise LeaseLost("lost")

    with pytest.raises(LeaseLost):
        log.publish(lost)
    assert (read(log, "a"), woken) == ([], [])
    log.prepare([batch([2], "a")], (), as_staged=False)
    log.publish(lambda: None)
    assert (read(log, "a"), woken) == ([2], [{("a", "1")}])


def test_what_is_for_others_is_not_looked_through_twice(tmp_path: Path) -> None:
    """A reader that receives nothing for a month looks at the newest version, not at the month."""
    log = DeliveryLog(tmp_path)
    deliver(log, 1, batch([1], "a", "b"))
    assert log.passed("a", "1", LogPosition()) == LogPosition()  # something is there for it
    position = log.read("a", "1", LogPosition(), 3)[-1].positions[-1]
    for version in range(2, 9):
        before = deliver(log, version, batch([version], "b"))
    assert log.read("a", "1", position, 3) == []
    position = log.passed("a", "1", position)
    assert (position, log.passed("a", "1", position)) == (LogPosition(7, AFTER), position)
    log.restore(before, out=False)  # the newest version is delivered again, and is now for both
    log.prepare([batch([8], "a", "b")], (), as_staged=False)
    log.publish(lambda: None)
    assert read(log, "a", position) == [8]


def test_a_reader_passes_nothing_of_which_it_was_not_told_that_it_is_lost(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path, most=1, segment=1)
    deliver(log, 1, batch([1], "a"))
    for version in (2, 3):
        deliver(log, version, batch([version], "b"))
    assert log.read("a", "1", LogPosition(), 3) == []
    assert log.passed("a", "1", LogPosition()) == LogPosition()
    assert log.lost("a", "1", LogPosition()) == LogPosition(1, 0)


def test_notices_stand_where_they_were_said(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path)
    deliver(log, 1, notice(("a",), "1", waits="w"), batch([1, 2], "a"), notice(("a",), "1", ended="e"))
    assert read(log, "a", most=1) == [{"waits": "w"}, 1, 2, {"ended": "e"}]


def test_each_of_several_notices_of_one_version_has_a_position_of_its_own(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path)
    before = [notice(("a",), "1", changed="c"), notice(("a", "b"), "1", waits="w")]
    deliver(log, 1, *before, batch([1, 2], "a"), notice(("a",), "1", continues="g"), notice(("b", "a"), "1", ended="e"))
    deliver(log, 2, batch([3], "a", "b"))
    expected = {
        "a": [{"changed": "c"}, {"waits": "w"}, 1, 2, {"continues": "g"}, {"ended": "e"}, 3],
        "b": [{"waits": "w"}, {"ended": "e"}, 3],
    }
    for name, whole in expected.items():
        assert read(log, name) == whole
        positions = [x for entry in _all(log, name) for x in entry.positions]
        assert sorted(set(positions)) == positions and len(positions) == len(whole)
        for number, position in enumerate(positions, 1):
            assert read(log, name, position) == whole[number:]
    assert read(log, "a", log.end()) == []


def test_a_notice_has_the_same_position_when_its_version_is_delivered_again_to_fewer(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path)
    first = [notice(("b",), "1", waits="w"), notice(("a", "b"), "1", ended="e"), notice(("a",), "1", qos="q")]
    before = deliver(log, 1, *first)
    positions = [x for entry in _all(log, "a") for x in entry.positions]
    again = DeliveryLog(tmp_path)
    again.restore(before, out=False)
    deliver(again, 1, *(x.to(("a",)) for x in first if "a" in x.subscribers))
    assert [x for entry in _all(again, "a") for x in entry.positions] == positions
    assert read(again, "a", positions[0]) == [{"qos": "q"}]


def _all(log: DeliveryLog, name: str) -> list[Entry]:
    found: list[Entry] = []
    while some := log.read(name, "1", found[-1].positions[-1] if found else LogPosition(), 100):
        found += some
    return found


def test_a_notice_for_an_owner_is_not_for_the_subscriber_it_is_about(tmp_path: Path) -> None:
    log, name = DeliveryLog(tmp_path), "ned@U#1"
    own = notice((name,), "1", suspended="x", outgoing=Recipient("ned", "U", "joe.s", ("n",)))
    owners = notice((name,), "1", suspended="y", outgoing=Recipient("joe", "U", "joe.s.subscribers", ()))
    other = notice(("ned2@U#1",), "1", suspended="z", outgoing=Recipient("ned", "U", "joe.s", ("n",)))
    assert [is_for_subscriber(x) for x in (own, owners, other)] == [True, False, False]
    deliver(log, 1, own, owners)
    assert read(log, name) == [{"suspended": "x"}]


def test_the_oldest_are_removed_and_their_readers_are_told(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path, most=3000, segment=1000)
    deliver(log, 1, batch(range(10), "early"))
    for version in range(2, 12):
        deliver(log, version, batch(range(10), "a"))
    assert log.size <= 3000 + 2000
    assert log.lost("a", "1", LogPosition()) and log.lost("early", "1", LogPosition())
    assert not log.lost("a", "1", log.end()) and not log.lost("nobody", "1", LogPosition())
    again = DeliveryLog(tmp_path, most=3000, segment=1000)
    again.restore(log.state(), out=True)
    assert again.lost("early", "1", LogPosition()) and read(again, "a") == read(log, "a") != []
    assert not log.lost("early", "1", LogPosition(1, 9))


def test_results_are_kept_for_a_time_and_their_segments_are_few(tmp_path: Path) -> None:
    clock = ManualClock()
    log = DeliveryLog(tmp_path, longest=86_400, clock=clock)
    for version in range(1, 24 * 4):
        clock.advance(3600)
        deliver(log, version, batch([version], "a"))
        assert len(list(tmp_path.glob("*.log"))) <= 27
    found = read(log, "a")
    first = 24 * 4 - len(found)
    assert found == list(range(first, 24 * 4)) and 24 <= len(found) <= 27
    assert log.lost("a", "1", LogPosition()) and not log.lost("a", "1", LogPosition(first - 1, 1 << 40))
    again = DeliveryLog(tmp_path, longest=86_400, clock=clock)
    again.restore(log.state(), out=True)
    clock.advance(30 * 86_400)
    deliver(again, 24 * 4, batch([24 * 4], "a"))
    assert read(again, "a") == [24 * 4]


def test_nobody_is_remembered_who_has_no_subscription_any_more(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path, most=1, segment=1)
    for version in range(1, 4):
        deliver(log, version, batch([version], "a"))
    assert log.lost("a", "1", LogPosition())
    log.retain(CatalogSnapshot())
    assert not log.lost("a", "1", LogPosition())


def test_a_new_history_begins_with_nothing(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path)
    deliver(log, 1, batch([1], "a"))
    other = DeliveryLog(tmp_path)  # the state was removed, and nothing is restored
    deliver(other, 1, batch([2], "a"))
    assert read(other, "a") == [2] and other.history != log.history


def test_a_reader_behind_is_told_at_the_first_result_after_what_was_removed(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path / "log", most=1, segment=1)
    deliver(log, 1, batch([1], "a"))
    (first,) = log.read("a", "1", LogPosition(), 3)
    deliver(log, 2, batch([2], "a"))
    deliver(log, 3, batch([3], "a"))
    (third,) = log.read("a", "1", first.positions[-1], 3)
    assert (first.lost, third.lost, third.batch.values[0].to_pylist()) == (None, LogPosition(2, 0), [3])
    deliver(log, 4, batch([4], "a"))
    (fourth,) = log.read("a", "1", third.positions[-1], 3)
    assert fourth.lost is None


def test_what_is_removed_while_it_is_read_is_lost_and_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DeliveryLog(tmp_path / "log", most=1, segment=1)
    deliver(log, 1, batch([1], "a"))
    real = log._batch

    def late(record: DeliveryRecord) -> ResultBatch:
        monkeypatch.setattr(log, "_batch", real)
        deliver(log, 2, batch([2], "a"))
        return real(record)

    monkeypatch.setattr(log, "_batch", late)
    (entry,) = log.read("a", "1", LogPosition(), 3)
    assert (entry.lost, entry.batch.values[0].to_pylist()) == (LogPosition(1, 0), [2])


def test_a_reader_that_stopped_inside_a_version_is_told_if_its_rest_is_removed(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path / "log", most=1, segment=1)
    deliver(log, 1, batch([1, 2, 3], "a"))
    (first,) = log.read("a", "1", LogPosition(), 2)
    inside, end = first.positions[-1], LogPosition(1, 2)
    deliver(log, 2, batch([4], "a"))
    again = DeliveryLog(tmp_path / "log", most=1, segment=1)
    again.restore(log.state(), out=True)
    for one in (log, again):
        assert [(x.lost, x.batch.values[0].to_pylist()) for x in one.read("a", "1", inside, 9)] == [(end, [4])]
        assert [(x.lost, x.batch.values[0].to_pylist()) for x in one.read("a", "1", end, 9)] == [(None, [4])]
