"""A share of results, from one place of their order to another, is that part of the whole order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.columns.sorting import Ints
from headgate.egress.gathered import Gathering, Piece, joined
from headgate.execution.tasks.written import to_file
from headgate.labels import PUBLIC
from headgate.model.results import BlockResults, ResultBatch
from headgate.storage import LocalStorage

TIMES = st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=4)


def piece(number: int, times: list[int], *, ordered: bool) -> Piece:
    """Results of one partition: no other has their instants, which are told apart by arrival numbers."""
    time: Ints = np.array(sorted(times) if ordered else times, np.int64)
    arrivals, nothing = 10 * np.arange(len(time)) + number, np.zeros(len(time), np.int64)
    order = (time, nothing, nothing, arrivals)
    values = (pa.array(arrivals),)
    return Piece(BlockResults("q", 0, (0,), time, values, nothing, (frozenset(),), order), (0,), passes=False)


def in_file(piece: Piece, number: int, folder: Path) -> Piece:
    return replace(piece, results=to_file(LocalStorage(folder), f"{number}.arrow", piece.results))


@settings(deadline=None)  # the first call compiles
@given(TIMES, st.booleans(), st.booleans(), st.data())
def test_a_share_is_a_part_of_the_whole(
    times: list[list[int]], ordered: bool, written: bool, data: st.DataObject
) -> None:
    pieces = tuple(piece(number, own, ordered=ordered) for number, own in enumerate(times))
    whole = Gathering("q", pieces, (PUBLIC,)).results()
    with TemporaryDirectory() as folder:
        if written:
            pieces = tuple(in_file(x, number, Path(folder)) for number, x in enumerate(pieces))
        check_a_share(Gathering("q", pieces, (PUBLIC,)), whole, data)


def check_a_share(gathering: Gathering, whole: ResultBatch, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(first, len(whole)))
    share = joined("q", *gathering.rows_between(first, end), gathering.kinds)
    assert share.times.tolist() == whole.times.tolist()[first:end]
    assert share.values[0].to_pylist() == whole.values[0].to_pylist()[first:end]
