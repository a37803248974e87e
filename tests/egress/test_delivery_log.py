"""The delivery log alone: order, positions, what a crash leaves, what is removed, and whom a record is for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.egress.delivery_log import DeliveryLog, Position, is_for_subscriber
from headgate.egress.log_records import decode, encode
from headgate.errors import LeaseLost
from headgate.labels import parse_label
from headgate.model.results import Recipient, ResultBatch, notice

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


def read(log: DeliveryLog, name: str, after: Position | None = None, most: int = 3, query: str = "1") -> list[object]:
    found: list[object] = []
    position = after or Position()
    while entries := log.read(name, query, position, most):
        for entry in entries:
            found += [entry.batch.word] if entry.batch.word else entry.batch.values[0].to_pylist()
            position = entry.positions[-1]
    return found


def test_a_record_is_what_was_written() -> None:
    given = batch([1, 2, 3], "a", "b")
    found = decode(encode(7, given, None))
    assert (found.subscribers, found.query, found.kinds) == (given.subscribers, given.query, given.kinds)
    assert [x.to_pylist() for x in found.values] == [x.to_pylist() for x in given.values]
    assert found.labels.tolist() == given.labels.tolist() and found.times.tolist() == given.times.tolist()
    word = notice(("a",), "1", ended="so", outgoing=Recipient("a", "U", "s", ("n",), frozenset({"r"})))
    assert decode(encode(7, word, -1)).word == {"ended": "so"} and decode(encode(7, word, -1)).outgoing == word.outgoing


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
        entries = log.read(name, "1", Position(), cut) if cut else []
        if entries:
            seen = sum(len(x.batch) for x in entries)
            assert read(log, name, entries[-1].positions[-1], most) == all_of_it[seen:]


def test_what_a_crash_interrupted_is_delivered_again_at_the_same_positions(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path)
    deliver(log, 1, batch(range(5), "a", "b"))
    before = deliver(log, 2, batch(range(5, 10), "a", "b"))
    (entry,) = log.read("a", "1", Position(1, 4), 3)
    last = entry.positions[-1]
    again = DeliveryLog(tmp_path)
    again.restore(before, out=False)  # as after kill -9 before the delivery was recorded
    assert read(again, "a") == list(range(5))
    # delivered under the rights of now, one reader at a time, and the first result is permitted no more
    some = [batch(range(5, 10), name).left(np.array([False, True, True, True, True])) for name in "ba"]
    again.prepare(some, (), as_staged=False)
    again.publish(lambda: None)
    assert read(again, "a", last) == [8, 9]
    assert read(again, "a", Position(1, 4)) == [6, 7, 8, 9]
    again.restore(again.state(), out=True)  # an engine that starts again in the same process
    assert read(again, "a") == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_nothing_is_readable_before_it_is_published_nor_if_the_lease_is_lost(tmp_path: Path) -> None:
    log, woken = DeliveryLog(tmp_path), list[set[str]]()
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
    assert (read(log, "a"), woken) == ([2], [{"1"}])


def test_notices_stand_where_they_were_said(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path)
    deliver(log, 1, notice(("a",), "1", waits="w"), batch([1, 2], "a"), notice(("a",), "1", ended="e"))
    assert read(log, "a", most=1) == [{"waits": "w"}, 1, 2, {"ended": "e"}]


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
    assert log.is_lost("a", "1", Position()) and log.is_lost("early", "1", Position())
    assert not log.is_lost("a", "1", log.end()) and not log.is_lost("nobody", "1", Position())
    again = DeliveryLog(tmp_path, most=3000, segment=1000)
    again.restore(log.state(), out=True)
    assert again.is_lost("early", "1", Position()) and read(again, "a") == read(log, "a") != []
    assert not log.is_lost("early", "1", Position(1, 9))


def test_a_new_history_begins_with_nothing(tmp_path: Path) -> None:
    log = DeliveryLog(tmp_path)
    deliver(log, 1, batch([1], "a"))
    other = DeliveryLog(tmp_path)  # the state was removed, and nothing is restored
    deliver(other, 1, batch([2], "a"))
    assert read(other, "a") == [2] and other.history != log.history
