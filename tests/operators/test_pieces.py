"""Batches are cut where no instant is divided, and the results of pieces are those of the batch."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.columns.narrow import narrowed
from headgate.operators import pieces as module
from headgate.operators.emit import NOTHING, Emitted
from headgate.operators.evaluation import BlockEmitted
from headgate.operators.label_sets import LabelSets, one_after_another
from headgate.operators.pieces import joined, pieces
from headgate.operators.program import Block

A, B = (cast(Block, name) for name in ("block a", "block b"))


@given(st.lists(st.integers(0, 30)), st.integers(1, 9))
def test_pieces_have_all_tuples_in_order_and_divide_no_instant(times: list[int], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SIZE", size)
        at = np.array(sorted(times), np.int64)
        found = list(pieces(at, 31))
    assert [x for piece, _ in found for x in range(piece.start, piece.stop)] == list(range(len(at)))
    assert [end for _, end in found] == sorted({end for _, end in found}) and found[-1][1] == 31
    since = -1
    for piece, end in found:
        assert ((at[piece] >= since) & (at[piece] < end)).all()
        since = end
    for piece, _ in found[:-1]:
        assert piece.stop - piece.start <= size or len(set(at[piece].tolist())) == 1


def results(*times: int, label: int = 0) -> Emitted:
    at, values = np.array(times, np.int64), (pa.array([str(x) for x in times]),)
    labels = LabelSets(np.zeros(len(times), np.int64), (frozenset({label}),))
    return Emitted(at, at + 1, (at + 2,), values, labels)


def test_results_of_pieces_follow_each_other_by_block() -> None:
    parts = [
        [BlockEmitted(A, (0, 1), results(1, 2, label=7)), BlockEmitted(B, (2,), results(1))],
        [BlockEmitted(A, (0, 1), results(3, label=8))],
        [BlockEmitted(B, (2,), results(5))],
    ]
    first, second = joined(parts)
    found = first.emitted
    assert (first.block, first.views, second.block, second.views) == (A, (0, 1), B, (2,))
    assert [*map(list, (found.time, found.instant, found.rows[0]))] == [[1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert found.values[0].to_pylist() == ["1", "2", "3"]
    assert [found.labels.sets[x] for x in found.labels.numbers] == [frozenset({7}), frozenset({7}), frozenset({8})]
    assert second.emitted.time.tolist() == [1, 5]


def test_a_view_that_exceeds_a_limit_receives_nothing_of_any_piece() -> None:
    parts = [
        [BlockEmitted(A, (0, 1), results(1))],
        [BlockEmitted(A, (0,), NOTHING, "too much"), BlockEmitted(A, (1,), results(2))],
        [BlockEmitted(A, (0,), NOTHING, "still too much"), BlockEmitted(A, (1,), results(3))],
    ]
    ended, others = joined(parts)
    assert (ended.views, ended.exceeded, len(ended.emitted)) == ((0,), "too much", 0)
    assert (others.views, others.exceeded, others.emitted.time.tolist()) == ((1,), "", [1, 2, 3])


def test_what_fails_for_all_has_no_results() -> None:
    parts = [[BlockEmitted(A, (0, 1), results(1))], [BlockEmitted(A, (0, 1), NOTHING, "too much")]]
    assert [(x.views, x.exceeded) for x in joined(parts)] == [((0,), "too much"), ((1,), "too much")]


@given(st.lists(st.lists(st.integers(0, 400), min_size=1), min_size=1))
def test_label_sets_of_parts_are_those_of_their_rows(parts: list[list[int]]) -> None:
    def sets_of(labels: list[int]) -> LabelSets:
        kinds = sorted(set(labels))
        numbers = np.array([kinds.index(x) for x in labels], np.int64)
        return LabelSets(narrowed(numbers, len(kinds)), tuple(frozenset({x}) for x in kinds))

    found = one_after_another([sets_of(x) for x in parts])
    assert [found.sets[x] for x in found.numbers.tolist()] == [frozenset({x}) for part in parts for x in part]
    many = one_after_another([sets_of(list(range(200))), sets_of(list(range(100, 400)))])
    assert [min(many.sets[x]) for x in many.numbers.tolist()] == [*range(200), *range(100, 400)]
