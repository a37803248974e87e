"""Chains of rows by key against a search through all rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops.joins import CHAIN, LINKS, Side, meetings, unlink

SPAN, KEYS = 5, 3


@dataclass(frozen=True)
class Came:
    """A row that came at a position, which is also its time, with a key (-1: it equals none)."""

    left: bool
    at: int
    key: int


class Rows:
    """The rows of both sides, fed batch by batch. Rows of the left leave in the order in which they came."""

    def __init__(self, rows: list[Came]) -> None:
        self._rows = rows
        size = len(rows)
        self._came = np.array([row.at for row in rows], np.int64)
        self._gone = np.full(size, 1 << 62)
        self._chains = [
            (np.full(KEYS, -1, np.int32), np.full((size, LINKS), -1), np.full(size, -1)) for _ in (True, False)
        ]  # fmt: skip

    def batch(self, first: int, end: int, room: int) -> list[tuple[int, int]]:
        sides = []
        for left, (head, links, behind) in zip((True, False), self._chains, strict=True):
            new = np.array([n for n in range(first, end) if self._rows[n].left == left], np.int64)
            own = np.array([self._rows[n].key for n in new.tolist()], np.int64)
            until = self._came[new] + SPAN
            gone = np.empty(0, np.int64) if left else self._gone  # of the left nothing is displaced
            sides.append(Side(new, own, self._came[new], until, self._came, gone, head, links, behind, left))
        found, progress = list[tuple[int, int]](), np.zeros(3, np.int64)
        while True:
            of_left, of_right, at = (np.empty(room, np.int64) for _ in range(3))
            count = meetings(sides[0], sides[1], progress, of_left, of_right, at)
            fit = count if count >= 0 else -1 - count
            found += zip(of_left[:fit].tolist(), of_right[:fit].tolist(), strict=True)
            if count >= 0:
                return found
            room = max(2 * room, int(progress[2]))

    def leave(self, row: int) -> None:
        unlink(np.array([row]), *self._chains[1])

    def key_in_chain(self, row: int) -> int:
        return int(self._chains[1][1][row, CHAIN]) >> 32


came = st.lists(st.builds(lambda left, key: (left, key), st.booleans(), st.integers(-1, KEYS - 1)), max_size=30)


@settings(max_examples=150, deadline=None)
@given(came, st.lists(st.integers(0, 30), max_size=3), st.integers(1, 4))
def test_rows_meet_those_of_the_other_side_with_their_key_that_are_still_there(
    given_rows: list[tuple[bool, int]], cuts: list[int], room: int
) -> None:
    rows = [Came(left, at, key) for at, (left, key) in enumerate(given_rows)]
    wanted = {
        (a, b)
        for a, left in enumerate(rows)
        for b, right in enumerate(rows)
        if left.left and not right.left and left.key == right.key >= 0 and abs(left.at - right.at) <= SPAN
    }
    fed, found = Rows(rows), list[tuple[int, int]]()
    bounds = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    for first, end in pairwise(bounds):
        found += fed.batch(first, end, room)
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_a_row_that_was_taken_out_of_its_chain_meets_nobody() -> None:
    rows = [Came(False, 0, 1), Came(False, 1, 1), Came(False, 2, 1), Came(True, 3, 1)]
    fed = Rows(rows)
    fed.batch(0, 3, 4)
    fed.leave(1)
    assert fed.key_in_chain(1) == -1
    assert sorted(fed.batch(3, 4, 4)) == [(3, 0), (3, 2)]


def test_a_slot_that_is_used_again_ends_the_chain_of_its_earlier_row() -> None:
    """A stale chain: the head of key 1 is a row whose slot a row with key 2 has taken."""
    rows = [Came(True, 0, 1), Came(False, 1, 1)]
    fed = Rows(rows)
    fed.batch(0, 1, 4)
    fed._chains[0][1][0, CHAIN] = 2 << 32
    assert fed.batch(1, 2, 4) == []
