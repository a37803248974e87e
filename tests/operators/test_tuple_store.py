"""The store of a partition: tuples stay while somebody holds them, and come out in the order of the language."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY, Program
from headgate.operators.tuple_store import TupleStore
from headgate.plan.secure import SecurePlan

SCHEMA = pa.schema([(TIME, pa.int64()), (STREAM, pa.int16()), (ARRIVAL, pa.int64()), (LABEL, pa.int64()),
                    (VISIBILITY, pa.int64()), ("s", pa.string())])  # fmt: skip
PROGRAM = Program((), (), ("a", "b"), {("a", "s"): "s"}, SecurePlan())
Key = tuple[int, int, int]


def table(keys: list[Key], visibility: int = 0) -> pa.Table:
    times, streams, arrivals = ([key[x] for key in keys] for x in range(3))
    rest = [0] * len(keys), [visibility] * len(keys), [f"{key}" for key in keys]
    return pa.table([times, streams, arrivals, *rest], schema=SCHEMA)


@pytest.fixture
def store() -> TupleStore:
    return TupleStore(PROGRAM, SCHEMA)


def test_a_tuple_is_gone_when_its_last_holder_lets_go(store: TupleStore) -> None:
    slots = store.add(table([(1, 0, 0), (2, 0, 1)]))
    store.hold(slots[:1])
    store.release(slots)
    store.settle()
    assert len(store) == 1
    assert store.column("a", "s", slots[:1]).to_pylist() == ["(1, 0, 0)"]
    store.release(slots[:1])
    store.settle()
    assert len(store) == 0


def test_a_released_tuple_is_readable_until_the_batch_is_settled(store: TupleStore) -> None:
    slots = store.add(table([(1, 0, 0)]))
    store.release(slots)
    assert store.column("a", "s", slots).to_pylist() == ["(1, 0, 0)"]


def test_visibility_rows_are_present_while_tuples_have_them(store: TupleStore) -> None:
    first, second = store.add(table([(1, 0, 0)], visibility=70)), store.add(table([(2, 0, 1)], visibility=3))
    assert store.present.tolist() == [3, 70]
    store.release(first)
    store.settle()
    assert store.present.tolist() == [3]
    store.renumber_visibility(np.arange(100) + 5)
    assert store.present.tolist() == [8]
    store.release(second)
    store.settle()
    assert store.present.tolist() == []


keys = st.tuples(st.one_of(st.integers(0, 3), st.integers(-(1 << 60), 1 << 60)), st.integers(0, 1), st.integers(0, 40))


@settings(max_examples=150, deadline=None)
@given(st.lists(keys, max_size=20, unique=True), st.integers(0, 20))
def test_tuples_are_ordered_by_time_then_stream_then_arrival(given_keys: list[Key], cut: int) -> None:
    """Also if they are two runs that are in order, as two streams bring them."""
    for some in (given_keys, sorted(given_keys[:cut]) + sorted(given_keys[cut:])):
        store = TupleStore(PROGRAM, SCHEMA)
        slots = store.in_order(store.add(table(some)))
        found = list(zip(*(store.numbers(x)[slots].tolist() for x in (TIME, STREAM, ARRIVAL)), strict=True))
        assert found == sorted(some)
