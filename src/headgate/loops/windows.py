"""The changes of a window: which rows enter it and which leave it, in order.

A *step* is an instant of the block. A row that leaves at a step leaves before others enter at it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.compiled import compiled

Ints = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]
_NEAR = 8


@compiled
def steps_after(values: Ints, bounds: Ints, found: Ints) -> None:
    """For each value, how many of the bounds, which ascend, are not greater, as `np.searchsorted` says; but
    values nearly always ascend too, so the search goes on where the last one ended."""
    place = 0
    for i in range(len(values)):
        value = values[i]
        if place and bounds[place - 1] > value:
            place = np.searchsorted(bounds[:place], value, side="right")
        for _ in range(_NEAR):
            if place == len(bounds) or bounds[place] > value:
                break
            place += 1
        else:
            place += np.searchsorted(bounds[place:], value, side="right")
        found[i] = place


@compiled
def is_ordered(rows: Ints, time: Ints, stream: npt.NDArray[np.int16], arrival: Ints) -> bool:
    """Whether rows are in the order of SPEC.md, 4.2: by time, stream and arrival."""
    for i in range(1, len(rows)):
        a, b = rows[i - 1], rows[i]
        if time[a] > time[b]:
            return False
        if time[a] == time[b] and (stream[a] > stream[b] or (stream[a] == stream[b] and arrival[a] > arrival[b])):
            return False
    return True


@compiled
def merged_runs(one: Ints, other: Ints, time: Ints, stream: npt.NDArray[np.int16], arrival: Ints, found: Ints) -> None:
    """Merge two runs, each of which is in the order of SPEC.md, 4.2."""
    i = j = 0
    for k in range(len(found)):
        if i < len(one) and j < len(other):
            a, b = one[i], other[j]
            first = time[a] < time[b] or (
                time[a] == time[b] and (stream[a] < stream[b] or (stream[a] == stream[b] and arrival[a] <= arrival[b]))
            )
        else:
            first = i < len(one)
        if first:
            found[k] = one[i]
            i += 1
        else:
            found[k] = other[j]
            j += 1


@compiled
def first_from(rows: Ints, time: Ints, stream: npt.NDArray[np.int16], arrival: Ints, key: tuple[int, int, int]) -> int:
    """How many of these rows, which are in order, come before a time, stream and arrival."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        row = rows[middle]
        before = time[row] < key[0] or (
            time[row] == key[0] and (stream[row] < key[1] or (stream[row] == key[1] and arrival[row] < key[2]))
        )
        if before:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def pairs_ascend(step: Ints, left: Ints, left_came: Ints, right: Ints, right_came: Ints) -> bool:
    """Whether pairs of rows are in the order of results: by step, and at each by the positions of both rows."""
    for i in range(1, len(step)):
        if step[i - 1] < step[i]:
            continue
        if step[i - 1] > step[i]:
            return False
        a, b = left_came[left[i - 1]], left_came[left[i]]
        if a > b or (a == b and right_came[right[i - 1]] > right_came[right[i]]):
            return False
    return True


@compiled
def is_ascending(first: Ints, second: Ints) -> bool:
    """Whether rows are in order by a first key and then by a second one, given as [row, 0]."""
    for i in range(1, len(first)):
        if first[i - 1] > first[i] or (first[i - 1] == first[i] and second[i - 1, 0] > second[i, 0]):
            return False
    return True


@compiled
def interleaved(
    entering: Ints, enters_at: Ints, leaving: Ints, leaves_at: Ints, row: Ints, sign: Signs, step: Ints, entered: Ints
) -> None:
    """Merge the rows that enter and those that leave, both in the order of their steps. `entered` are the positions of
    those that enter."""
    i = j = 0
    for k in range(len(row)):
        if j < len(leaving) and (i >= len(entering) or leaves_at[j] <= enters_at[i]):
            row[k], sign[k], step[k] = leaving[j], -1, leaves_at[j]
            j += 1
        else:
            row[k], sign[k], step[k] = entering[i], 1, enters_at[i]
            entered[i] = k
            i += 1


@compiled
def last_of_each(
    entering: Ints,
    partition: Ints,
    most: int,
    head: Ints,
    tail: Ints,
    count: Ints,
    following: Ints,
    left: Ints,
    left_at: Ints,
) -> int:
    """The rows that leave a PARTITIONED window while others enter: each partition keeps its last `most` rows, as a
    queue (`head`, `tail`, `following`). Fills in the rows that left and the number of the row that displaced each;
    returns how many there are."""
    found = 0
    for i in range(len(entering)):
        row, own = entering[i], partition[i]
        following[row] = -1
        if count[own] == 0:
            head[own] = row
        else:
            following[tail[own]] = row
        tail[own] = row
        count[own] += 1
        if count[own] > most:
            left[found], left_at[found] = head[own], i
            head[own] = following[head[own]]
            count[own] -= 1
            found += 1
    return found


@compiled
def slides_over(times: Ints, covered: int, span: int, slide: int, since: int, until: int, found: Ints) -> int:
    """The multiples of `slide` in [since, until) at which a window (T - span, T] holds a tuple: one of `times`
    (ascending), or an earlier one, which it holds before `covered`. Fills as many as there is room for; returns how
    many there are."""
    count = 0
    at = -(-since // slide) * slide
    for i in range(-1, len(times)):
        if i >= 0:
            first = -(-times[i] // slide) * slide
            at = max(at, first)
            end = min(times[i] + span, until)
        else:
            end = min(covered, until)
        if at < end:
            many = (end - at + slide - 1) // slide
            for n in range(min(many, len(found) - count)):
                found[count + n] = at + n * slide
            count += many
            at += many * slide
    return count


@compiled
def first_held(order: Ints, times: Ints, span: int, now: int) -> int:
    """How many of these rows, in order, a window by time no longer holds at a time."""
    count = 0
    while count < len(order) and times[order[count]] + span < now:
        count += 1
    return count


@compiled
def came_before(order: Ints, positions: Ints, passed: int) -> int:
    """How many of these rows, in order, came before a position; most of them did."""
    count = len(order)
    while count and positions[order[count - 1]] >= passed:
        count -= 1
    return count
