"""Pairs of rows with equal keys that are there at the same time: the new rows of both inputs meet the rows of the other
input, in the order in which they come.

Each input keeps its rows in chains by key, the latest row first. A row is there until a time (`until`), and until the
tuple at a position displaces it (`gone`). Rows that leave in the order in which they came (`fifo`) need no removal from
their chains: behind the first row that has left, all have left. Their numbers may be used again; such a row has another
key, or came later than the row before it in the chain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.compiled import compiled

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@compiled
def link(row: int, key: int, head: Ints, before: Ints, behind: Ints, key_of: Ints, fifo: bool) -> None:
    """Put a row at the head of the chain of its key."""
    before[row] = head[key]
    key_of[row] = key
    if not fifo:
        behind[row] = -1
        if head[key] >= 0:
            behind[head[key]] = row
    head[key] = row


@compiled
def unlink(rows: Ints, head: Ints, before: Ints, behind: Ints, key_of: Ints) -> None:
    """Take rows out of their chains."""
    for row in rows:
        if key_of[row] < 0:
            continue
        if behind[row] >= 0:
            before[behind[row]] = before[row]
        else:
            head[key_of[row]] = before[row]
        if before[row] >= 0:
            behind[before[row]] = behind[row]
        key_of[row] = -1


@compiled
def _probe(
    key: int,
    position: int,
    time: int,
    head: Ints,
    before: Ints,
    key_of: Ints,
    came: Ints,
    until: Ints,
    gone: Ints,
    fifo: bool,
    own: int,
    swapped: bool,
    count: int,
    left: Ints,
    right: Ints,
    at: Ints,
) -> int:
    row, latest = head[key], np.int64(1) << 62
    while row >= 0:
        if fifo and (key_of[row] != key or came[row] >= latest):
            break
        latest = came[row]
        if until[row] >= time and gone[row] > position:
            if count < len(left):
                left[count], right[count] = (row, own) if swapped else (own, row)
                at[count] = position
            count += 1
        elif fifo:
            break
        row = before[row]
    return count


@compiled
def meetings(
    left_rows: Ints,
    left_keys: Ints,
    left_came: Ints,
    left_times: Ints,
    right_rows: Ints,
    right_keys: Ints,
    right_came: Ints,
    right_times: Ints,
    left_head: Ints,
    left_before: Ints,
    left_behind: Ints,
    left_key_of: Ints,
    left_position: Ints,
    left_until: Ints,
    left_gone: Ints,
    left_fifo: bool,
    right_head: Ints,
    right_before: Ints,
    right_behind: Ints,
    right_key_of: Ints,
    right_position: Ints,
    right_until: Ints,
    right_gone: Ints,
    right_fifo: bool,
    progress: Ints,
    left: Ints,
    right: Ints,
    at: Ints,
) -> int:
    """Let the new rows of both inputs meet the rows of the other, and put them into their chains. Where a row of each
    came with the same tuple, the two meet once. Stops before a row whose meetings do not fit; `progress` says how far
    it came (new rows of the left, of the right), and the caller goes on with more room. Returns how many pairs were
    found, or, negative, how many fit so far and at least one more."""
    i, j, count = progress[0], progress[1], 0
    while i < len(left_rows) or j < len(right_rows):
        before_count = count
        if j >= len(right_rows) or (i < len(left_rows) and left_came[i] <= right_came[j]):
            if left_keys[i] >= 0:
                count = _probe(
                    left_keys[i],
                    left_came[i],
                    left_times[i],
                    right_head,
                    right_before,
                    right_key_of,
                    right_position,
                    right_until,
                    right_gone,
                    right_fifo,
                    left_rows[i],
                    False,
                    count,
                    left,
                    right,
                    at,
                )
                if count > len(left):
                    progress[0], progress[1], progress[2] = i, j, count - before_count
                    return -1 - before_count
                link(left_rows[i], left_keys[i], left_head, left_before, left_behind, left_key_of, left_fifo)
            else:
                left_key_of[left_rows[i]] = -1
            i += 1
        else:
            if right_keys[j] >= 0:
                count = _probe(
                    right_keys[j],
                    right_came[j],
                    right_times[j],
                    left_head,
                    left_before,
                    left_key_of,
                    left_position,
                    left_until,
                    left_gone,
                    left_fifo,
                    right_rows[j],
                    True,
                    count,
                    left,
                    right,
                    at,
                )
                if count > len(left):
                    progress[0], progress[1], progress[2] = i, j, count - before_count
                    return -1 - before_count
                link(right_rows[j], right_keys[j], right_head, right_before, right_behind, right_key_of, right_fifo)
            else:
                right_key_of[right_rows[j]] = -1
            j += 1
    progress[0], progress[1], progress[2] = i, j, 0
    return count


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
