"""Columns by slot against a plain dict of rows."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import HeadgateError
from headgate.loops.slots import SlotPool
from headgate.loops.store import ColumnStore

SCHEMA = pa.schema(
    {
        "tiny": pa.int8(),
        "whole": pa.int64(),
        "single": pa.float32(),
        "double": pa.float64(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "local": pa.timestamp("us"),
        "moment": pa.timestamp("us", "UTC"),
        "text": pa.string(),
        "bytes": pa.binary(),
    }
)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tiny": st.integers(-128, 127),
    "whole": st.integers(-(2**63), 2**63 - 1),
    "single": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "flag": st.booleans(),
    "day": st.integers(-(2**31), 2**31 - 1),
    "local": st.integers(-(2**63), 2**63 - 1),
    "moment": st.integers(-(2**63), 2**63 - 1),
    "text": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}
_NUMBERS = {"day": pa.int32(), "local": pa.int64(), "moment": pa.int64()}


@st.composite
def _column(draw: st.DrawFn, name: str, count: int) -> pa.Array | pa.ChunkedArray:
    """A column with NULLs or without, cut out of a longer one or in chunks."""
    kind = _VALUES[name] if draw(st.booleans()) else st.none() | _VALUES[name]
    values = draw(st.lists(kind, min_size=count + 3, max_size=count + 3))
    array = pa.array(values, _NUMBERS.get(name, SCHEMA.field(name).type)).view(SCHEMA.field(name).type)
    cut = draw(st.integers(0, 3))
    array = array[cut : cut + count]
    if draw(st.booleans()):
        middle = draw(st.integers(0, count))
        return pa.chunked_array([array[:middle], array[middle:]], array.type)
    return array


def _plain(name: str, array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values that plain Python compares as they are: dates and timestamps as numbers, -0.0 apart from 0.0."""
    chunk = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if name in _NUMBERS:
        chunk = chunk.view(_NUMBERS[name])
    values = chunk.to_pylist()
    return [str(value) if isinstance(value, float) else value for value in values]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_rows_come_back_as_they_were_put(data: st.DataObject) -> None:
    store, pool, model = ColumnStore(SCHEMA), SlotPool(), dict[int, dict[str, Any]]()
    for _ in range(data.draw(st.integers(1, 5))):
        count = data.draw(st.integers(0, 12))
        slots = pool.take(count)
        arrays = {name: data.draw(_column(name, count)) for name in SCHEMA.names}
        store.put(slots, arrays, capacity=pool.capacity)
        rows = zip(*(_plain(name, arrays[name]) for name in SCHEMA.names), strict=True)
        model.update(zip(slots.tolist(), (dict(zip(SCHEMA.names, row, strict=True)) for row in rows), strict=True))
        gone = data.draw(st.lists(st.sampled_from(sorted(model)), unique=True)) if model else []
        store.drop(np.array(gone, np.int64))
        pool.give(np.array(gone, np.int64))
        for slot in gone:
            del model[slot]
        chosen = data.draw(st.lists(st.sampled_from(sorted(model)), max_size=50)) if model else []
        for name in SCHEMA.names:
            found = store.take(name, np.array(chosen, np.int64))
            found.validate(full=True)
            assert found.type == SCHEMA.field(name).type
            assert _plain(name, found) == [model[slot][name] for slot in chosen]
        lengths = store.lengths("text", np.array(chosen, np.int64)).tolist()
        assert lengths == [len((model[slot]["text"] or "").encode()) for slot in chosen]


def test_loops_read_numbers_by_slot_and_zero_for_null() -> None:
    store = ColumnStore(pa.schema({"x": pa.int64()}))
    store.put(np.array([2, 0]), {"x": pa.array([7, 8])}, capacity=5)
    assert store.numbers("x").tolist() == [8, 0, 7, 0, 0]
    assert store.valid("x") is None
    junk = pa.Array.from_buffers(pa.int64(), 1, [pa.py_buffer(b"\0"), pa.py_buffer(np.array([99]))])
    store.put(np.array([2]), {"x": junk})
    assert store.numbers("x").tolist() == [8, 0, 0, 0, 0]
    valid = store.valid("x")
    assert valid is not None and valid.tolist() == [True, True, False, True, True]
    store.put(np.array([2]), {"x": pa.array([3])})
    assert valid.all()


def test_bytes_under_a_null_text_are_not_kept() -> None:
    buffers = [pa.py_buffer(b"\1"), pa.py_buffer(np.array([0, 1, 7], np.int32)), pa.py_buffer(b"asecret")]
    store = ColumnStore(pa.schema({"x": pa.string()}))
    store.put(np.arange(2), {"x": pa.Array.from_buffers(pa.string(), 2, buffers)})
    assert store.lengths("x", np.arange(2)).tolist() == [1, 0]
    assert b"secret" not in store.texts("x").heap.tobytes()


def test_memory_follows_what_is_held_not_what_passed() -> None:
    store, pool = ColumnStore(pa.schema({"x": pa.string()})), SlotPool()
    texts = pa.array([letter * 100 for letter in string.ascii_letters])
    held = [pool.take(52) for _ in range(10)]
    for slots in held:
        store.put(slots, {"x": texts}, capacity=pool.capacity)
    for _ in range(1000):
        store.drop(held[0])
        pool.give(held.pop(0))
        held.append(pool.take(52))
        store.put(held[-1], {"x": texts}, capacity=pool.capacity)
    assert store.nbytes < 4 * 52 * 10 * 100
    assert store.take("x", held[5]).equals(texts)
    for slots in held:
        store.drop(slots)
    assert store.texts("x").heap.nbytes < 52 * 100


def test_dropping_short_texts_beside_many_empty_ones_does_not_rewrite_the_heap() -> None:
    store = ColumnStore(pa.schema({"x": pa.string()}))
    store.put(np.arange(10_000), {"x": pa.array([""] * 10_000)})
    store.put(np.array([0]), {"x": pa.array(["abc"])})
    heap = store.texts("x").heap
    store.drop(np.array([0]))
    assert store.texts("x").heap is heap


def test_a_text_may_be_replaced_and_dropped_twice() -> None:
    store = ColumnStore(pa.schema({"x": pa.string()}))
    for text in ("one", "two two", ""):
        store.put(np.array([3, 4]), {"x": pa.array([text, text])})
        assert store.take("x", np.array([3])).to_pylist() == [text]
    store.drop(np.array([3, 3]))
    store.drop(np.array([3]))
    store.put(np.array([3]), {"x": pa.array(["back"])})
    assert store.take("x", np.array([4, 3])).to_pylist() == ["", "back"]


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    store = ColumnStore(pa.schema({"x": pa.string(), "y": pa.int32()}))
    store.put(np.array([0]), {"x": pa.array(["a"]), "y": pa.array([1], pa.int32())})
    with pytest.raises(ValueError, match=r"^cannot put `int64` into column `y`: it has type `int32`$"):
        store.put(np.array([0]), {"x": pa.array(["b"]), "y": pa.array([2])})
    with pytest.raises(ValueError, match=r"^cannot put 2 values of column `y` into 1 slots$"):
        store.put(np.array([0]), {"x": pa.array(["b"]), "y": pa.array([2, 3], pa.int32())})
    for slot in (-1, 1):
        with pytest.raises(IndexError, match=f"^cannot use slots {slot} to {slot}: there are 1$"):
            store.take("x", np.array([slot]))
        with pytest.raises(IndexError):
            store.drop(np.array([slot]))
    assert store.take("x", np.array([0])).to_pylist() == ["a"]


@pytest.mark.parametrize(
    "type_", [pa.uint8(), pa.float16(), pa.timestamp("ns"), pa.large_string(), pa.decimal128(9, 2)]
)
def test_types_without_a_form_are_refused(type_: pa.DataType) -> None:
    with pytest.raises(ValueError, match=r"^cannot keep values of type `.*`: loops have no form for them$"):
        ColumnStore(pa.schema({"x": type_}))


def test_more_texts_than_one_column_can_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.loops.store.MOST_BYTES", 5)
    store = ColumnStore(pa.schema({"x": pa.string()}))
    store.put(np.arange(2), {"x": pa.array(["abc", "de"])})
    assert store.take("x", np.array([0, 1])).to_pylist() == ["abc", "de"]
    with pytest.raises(HeadgateError, match=r"^cannot read 2 texts of `x` at once: they are longer than 2 GB$"):
        store.take("x", np.array([0, 0]))
