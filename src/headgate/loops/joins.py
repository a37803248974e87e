"""Pairs of rows with equal keys that are there at the same time: the new rows of both inputs meet the rows of the other
input, in the order in which they come.

Each input keeps its rows in chains by key, the latest row first. A row is there until a time (`UNTIL`), and until the
tuple at a position displaces it (`gone`, which is empty where no tuple does). Rows that leave in the order in which
they came (`fifo`) need no removal from their chains: behind the first row that has left, all have left. Their numbers
may be used again; such a row has another key, or came later than the row before it in the chain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.loops.compiled import compiled, inlined

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Slots = npt.NDArray[np.int32]

CHAIN, CAME, UNTIL = range(3)
"""What a chain has of each row, side by side, so that most rows are left after one look at memory: the row before it
and its key, in 32 bits each; the position at which it came; the time until which it is there."""
LINKS = 3
UNLINKED = -1
"""Instead of the row before it and its key: a row is in no chain."""


class Side(NamedTuple):
    """One input of a join.

    rows, keys, times: its new rows in order, the key of each (-1: it equals none), the time at which it came
    until: the time until which each new row is there
    came, gone: by row
    head, links: the chains, by key and by row
    behind: by row, the next row in the chain; only if rows do not leave in the order in which they came
    """

    rows: Ints
    keys: Ints
    times: Ints
    until: Ints
    came: Ints
    gone: Ints
    head: Slots
    links: Ints
    behind: Ints
    fifo: bool


@inlined
def _chained(before: int, key: int) -> int:
    return (key << 32) | (before & 0xFFFFFFFF)


@inlined
def _before(chained: int) -> int:
    return ((chained & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


@inlined
def _link(side: Side, new: int) -> None:
    """Put a new row at the head of the chain of its key."""
    row, key = side.rows[new], side.keys[new]
    links, first = side.links, np.int64(side.head[key])
    links[row, CHAIN] = _chained(first, key)
    links[row, CAME], links[row, UNTIL] = side.came[row], side.until[new]
    if not side.fifo:
        side.behind[row] = -1
        if first >= 0:
            side.behind[first] = row
    side.head[key] = row


@compiled
def unlink(rows: Ints, head: Slots, links: Ints, behind: Ints) -> None:
    """Take rows out of their chains."""
    for row in rows:
        chained = links[row, CHAIN]
        if chained == UNLINKED:
            continue
        key, before = chained >> 32, _before(chained)
        if behind[row] >= 0:
            links[behind[row], CHAIN] = _chained(before, key)
        else:
            head[key] = before
        if before >= 0:
            behind[before] = behind[row]
        links[row, CHAIN] = UNLINKED


@inlined
def _meet(own: Side, new: int, other: Side, count: int, mine: Ints, others: Ints, at: Ints) -> int:
    """Let a new row meet the rows of the other input, and list the pairs in the order in which those came; returns how
    many pairs there are now, more than fit if there is no room."""
    before = count
    key, position, time = own.keys[new], own.came[own.rows[new]], own.times[new]
    links, fifo, stays = other.links, other.fifo, len(other.gone) == 0
    row, latest = int(other.head[key]), np.int64(1) << 62
    while row >= 0:
        chained = links[row, CHAIN]
        if fifo and (chained >> 32 != key or links[row, CAME] >= latest):
            break
        latest = links[row, CAME]
        if links[row, UNTIL] >= time and (stays or other.gone[row] > position):
            if count < len(mine):
                mine[count], others[count], at[count] = own.rows[new], row, position
            count += 1
        elif fifo:
            break
        row = _before(chained)
    first, last = before, min(count, len(mine)) - 1
    while first < last:  # a chain begins with the latest row
        others[first], others[last] = others[last], others[first]
        first, last = first + 1, last - 1
    return count


@compiled
def meetings(left: Side, right: Side, progress: Ints, of_left: Ints, of_right: Ints, at: Ints) -> int:
    """Let the new rows of both inputs meet the rows of the other, and put them into their chains. Where a row of each
    came with the same tuple, the two meet once. Stops before a row whose meetings do not fit; `progress` says how far
    it came (new rows of the left, of the right), and the caller goes on with more room. Returns how many pairs were
    found, or, negative, how many fit so far and at least one more."""
    i, j, count = progress[0], progress[1], 0
    while i < len(left.rows) or j < len(right.rows):
        before = count
        first = j >= len(right.rows) or (i < len(left.rows) and left.came[left.rows[i]] <= right.came[right.rows[j]])
        if first and left.keys[i] >= 0:
            count = _meet(left, i, right, count, of_left, of_right, at)
        elif not first and right.keys[j] >= 0:
            count = _meet(right, j, left, count, of_right, of_left, at)
        if count > len(at):
            progress[0], progress[1], progress[2] = i, j, count - before
            return -1 - before
        if first:
            if left.keys[i] >= 0:
                _link(left, i)
            i += 1
        else:
            if right.keys[j] >= 0:
                _link(right, j)
            j += 1
    progress[0], progress[1], progress[2] = i, j, 0
    return count


@compiled
def link_rows(side: Side) -> None:
    """Put the new rows of an input into their chains."""
    for new in range(len(side.rows)):
        if side.keys[new] >= 0:
            _link(side, new)


@compiled
def list_rows(rows: Ints, parts: Ints, head: Ints, following: Ints, preceding: Ints) -> None:
    """Enter rows into the lists of the rows that they are made of: one list for each row of one input."""
    for i in range(len(rows)):
        row, part = rows[i], parts[i]
        following[row] = head[part]
        preceding[row] = -1
        if head[part] >= 0:
            preceding[head[part]] = row
        head[part] = row


@compiled
def unlist_rows(rows: Ints, parts: Ints, head: Ints, following: Ints, preceding: Ints) -> None:
    for i in range(len(rows)):
        row = rows[i]
        if preceding[row] >= 0:
            following[preceding[row]] = following[row]
        else:
            head[parts[i]] = following[row]
        if following[row] >= 0:
            preceding[following[row]] = preceding[row]


@compiled
def rows_made_of(parts: Ints, head: Ints, following: Ints, marked: Bools, found: Ints) -> int:
    """The rows made of these rows of one input, each once: those found are marked. Fills as many as there is room for,
    and returns how many there are; nothing is marked if they do not fit."""
    count = 0
    for part in parts:
        row = head[part]
        while row >= 0:
            if not marked[row]:
                if count < len(found):
                    found[count] = row
                count += 1
            row = following[row]
    if count <= len(found):
        for k in range(count):
            marked[found[k]] = True
    return count
