"""Which labels the rows of each group have, while rows come and go, and a number for each different set of labels.

Each label has a random token of 128 bits, and a group the sum (exclusive or) of the tokens of its labels. Groups with
the same sum have the same labels: two different sets have the same sum with a probability of 2**-128, and nobody who
chooses labels knows the tokens. So a set is recognised in one step, whatever its size; its members are listed only when
it is new.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops import counts as multiset
from headgate.loops.compiled import compiled, inlined
from headgate.loops.hashing import find_or_add

Ints = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]
Cells = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]

CHANGES, EMISSIONS, MEMBERS = range(3)


@compiled
def kinds_of(labels: Ints, cached: Ints, kind: Ints, found: Ints, missed: Ints) -> int:
    """The kinds of labels that a cache has: `cached` has the label at each place, `kind` its kind. Returns how many it
    has not; `missed` are their rows."""
    mask, count = len(cached) - 1, 0
    for n in range(len(labels)):
        place = labels[n] & mask
        if cached[place] == labels[n]:
            found[n] = kind[place]
        else:
            missed[count] = n
            count += 1
    return count


@compiled
def enter_rows(
    tuples: Ints, came: Ints, slots: Ints, time: Ints, label: Ints, cached: Ints, kind: Ints, of_tuple: Cells,
    times: Ints, positions: Ints, kinds: Cells, missed: Ints,
) -> int:  # fmt: skip
    """Put rows of a sequence into slots: their tuples, with times and labels by tuple, which came at these positions.
    Kinds of labels are those that a cache has (`kinds_of`); returns how many it has not, `missed` are their rows."""
    mask, count = len(cached) - 1, 0
    for n in range(len(tuples)):
        one, slot = tuples[n], slots[n]
        of_tuple[slot], times[slot], positions[slot] = one, time[one], came[n]
        place = label[one] & mask
        if cached[place] == label[one]:
            kinds[slot] = kind[place]
        else:
            missed[count] = n
            count += 1
    return count


@inlined
def _changed(cells: Cells, table: Ints, seed: np.uint64, used: Ints, group: int, kind: int, sign: int) -> bool:
    """Count a label of a group; returns whether it has come or gone. `cells` has a place for each group and label; with
    many of both it is empty, and the counts are in a hash table."""
    if len(cells):
        cells[group, kind] += sign
        left = int(cells[group, kind])
    else:
        left = multiset.change(table, seed, used, group, kind, sign)
    return left == (1 if sign > 0 else 0)


@inlined
def _has(cells: Cells, table: Ints, seed: np.uint64, group: int, kind: int) -> bool:
    if len(cells):
        return bool(cells[group, kind] > 0)
    return multiset.count(table, seed, group, kind) > 0


@compiled
def set_numbers(
    row: Ints, group: Ints, sign: Signs, kinds: Ints, after: Ints, of: Ints, cells: Cells, table: Ints,
    seed: np.uint64, used: Ints, tokens: Ints, sums: Ints, number: Ints, sets: Words, sets_a: Ints, sets_b: Ints,
    sets_size: Ints, sets_seed: np.uint64, ends: Ints, members: Ints, progress: Ints, found: Ints,
) -> bool:  # fmt: skip
    """The number of the set of labels that each emitted group has. `kinds[row, side]` are the labels of a row's tuples,
    `sums` the sums of tokens, `number` the number of each group's set, or -1. The members of set n end at `ends[n]`.

    Stops where there is no room for a new set, and returns False; `progress` says how far it came."""
    k, m = progress[CHANGES], progress[EMISSIONS]
    while True:
        end = after[m] if m < len(after) else len(row)
        while k < end:
            g = group[k]
            for side in range(kinds.shape[1]):
                kind = kinds[row[k], side]
                if _changed(cells, table, seed, used, g, kind, sign[k]):
                    sums[g, 0] ^= tokens[kind, 0]
                    sums[g, 1] ^= tokens[kind, 1]
                    number[g] = -1
            k += 1
        if m == len(after):
            progress[CHANGES], progress[EMISSIONS] = k, m
            return True
        g = of[m]
        if number[g] < 0:
            if sets_size[0] == len(sets_a) or progress[MEMBERS] + len(tokens) > len(members):
                progress[CHANGES], progress[EMISSIONS] = k, m
                return False
            before = sets_size[0]
            number[g] = find_or_add(sets, sets_a, sets_b, sets_size, sums[g, 0], sums[g, 1], sets_seed)
            if number[g] == before:
                for kind in range(len(tokens)):
                    if _has(cells, table, seed, g, kind):
                        members[progress[MEMBERS]] = kind
                        progress[MEMBERS] += 1
                ends[before] = progress[MEMBERS]
        found[m] = number[g]
        m += 1


@compiled
def into_table(cells: Cells, table: Ints, seed: np.uint64, used: Ints) -> None:
    """Move counts from the cells of groups and labels into a hash table with enough room."""
    for group in range(cells.shape[0]):
        for kind in range(cells.shape[1]):
            if cells[group, kind]:
                multiset.change(table, seed, used, group, kind, cells[group, kind])
