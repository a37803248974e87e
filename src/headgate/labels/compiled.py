"""The compiled reader of role expressions: reads a column of texts in one loop, from bytes to minimal forms in numbers.

It reads the common syntax: plain names, `&`, `|`, parentheses, TRUE and FALSE, up to AT or FROM. It leaves every other
text (quotes, comments, other letters, an error, a size near a limit) to the grammar in `labels/text.py`, so that texts
have the same meaning and the same errors. The first compilation takes seconds; `make setup` stores the result on disk.

All of it is in one file, because the stored result is recompiled when this file changes, not when another one does.

A term is a set of roles: their numbers, ascending, in a slice of `roles`. Terms stand on a stack, as in any expression
parser: first the alternatives of a parenthesis, then the factors that `&` combines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from headgate.labels.roles import MAX_TERMS
from headgate.labels.text import MAX_DEPTH, MAX_TEXT
from headgate.lexing import MAX_NAME

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

NO_REST, ODD = -1, -2
"""In place of the offset of the clauses after the roles: there are none; or the text is left to the grammar."""
MOST_PRODUCTS = 256
"""Products that one `&` may make here; more are left to the grammar, which enforces the limit."""
_MOST_ROLES = 1 << 16  # of all terms, intermediate ones included, of one text

# Rows of numbers describe the text being read (`state`), each term, each open parenthesis (its first term; the first
# term of the current `&` chain or -1; whether it has a `|`) and each name, because compiled loops are fastest with
# plain arrays. The sign of a term has the bit `role mod 64` for each of its roles.
_PLACE, _DEPTH, _REST, _TERMS, _ROLES, _NAMES = range(6)
_START, _SIZE, _SIGN = range(3)
_LOW, _FACTORS, _SEVERAL = range(3)
_HASH = 2
_NAME, _TRUE, _FALSE, _CLAUSE = range(4)

# Classes of bytes.
_BLANK, _LETTER, _DIGIT = 1, 2, 4
_IN_WORDS = _LETTER | _DIGIT
_BYTES = np.zeros(256, np.uint8)
_BYTES[[*b" \t\r\n"]] = _BLANK
_BYTES[[*b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"]] = _LETTER
_BYTES[[*b"0123456789"]] = _DIGIT

_ONCE, _TWICE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def _compiled(function: Any, **more: Any) -> Any:
    options: dict[str, Any] = {"nogil": True, **more}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no writable cache folder: every process compiles it
        return njit(**options)(function)


def _inlined(function: Any) -> Any:
    """For functions called with every word: they are inlined, and references are not counted, since they create no
    array. Calls and reference counts took most of the time."""
    return _compiled(function, forceinline=True, _nrt=False)


# Sets of roles --------------------------------------------------------------------------------------------------------


@_inlined
def _push(terms: Ints, roles: Numbers, state: Ints, role: int) -> None:
    """Pushes a term of one role, or of none (`role` below 0)."""
    top, start = state[_TERMS], state[_ROLES]
    terms[top, _START], terms[top, _SIZE], terms[top, _SIGN] = start, 0, 0
    if role >= 0:
        roles[start] = role
        terms[top, _SIZE], terms[top, _SIGN] = 1, 1 << (role & 63)
        state[_ROLES] += 1
    state[_TERMS] += 1


@_compiled
def _contains(terms: Ints, roles: Numbers, whole: int, part: int) -> bool:
    if terms[part, _SIGN] & ~terms[whole, _SIGN] or terms[part, _SIZE] > terms[whole, _SIZE]:
        return False
    place, end = terms[whole, _START], terms[whole, _START] + terms[whole, _SIZE]
    for wanted in range(terms[part, _START], terms[part, _START] + terms[part, _SIZE]):
        while place < end and roles[place] < roles[wanted]:
            place += 1
        if place == end or roles[place] != roles[wanted]:
            return False
        place += 1
    return True


@_inlined
def _move(terms: Ints, source: int, target: int) -> None:
    terms[target, _START], terms[target, _SIZE] = terms[source, _START], terms[source, _SIZE]
    terms[target, _SIGN] = terms[source, _SIGN]


@_inlined
def _comes_before(terms: Ints, roles: Numbers, a: int, b: int) -> bool:
    """Smaller terms first, then by the numbers of their roles. This order makes the form of a label unique."""
    if terms[a, _SIZE] != terms[b, _SIZE]:
        return bool(terms[a, _SIZE] < terms[b, _SIZE])
    for n in range(terms[a, _SIZE]):
        left, right = roles[terms[a, _START] + n], roles[terms[b, _START] + n]
        if left != right:
            return bool(left < right)
    return False


@_compiled
def _sort(terms: Ints, roles: Numbers, low: int, high: int) -> None:
    """Sorts the terms from `low` to `high`. INVARIANT: the slot at `high` is free."""
    for n in range(low + 1, high):
        place = n
        while place > low and _comes_before(terms, roles, n, place - 1):
            place -= 1
        if place < n:
            _move(terms, n, high)
            for other in range(n, place, -1):
                _move(terms, other - 1, other)
            _move(terms, high, place)


@_compiled
def _minimise(terms: Ints, roles: Numbers, state: Ints, low: int) -> bool:
    """Sorts the terms from `low` on and applies absorption; false if too many are left."""
    _sort(terms, roles, low, state[_TERMS])
    kept = low
    for n in range(low, state[_TERMS]):
        absorbed = False
        for other in range(low, kept):
            if _contains(terms, roles, n, other):
                absorbed = True
                break
        if not absorbed:
            _move(terms, n, kept)
            kept += 1
    state[_TERMS] = kept
    return bool(kept - low <= MAX_TERMS)


@_compiled
def _union(terms: Ints, roles: Numbers, state: Ints, a: int, b: int) -> None:
    """Pushes the union of two terms."""
    top, start = state[_TERMS], state[_ROLES]
    left, right, into = terms[a, _START], terms[b, _START], start
    left_end, right_end = left + terms[a, _SIZE], right + terms[b, _SIZE]
    while left < left_end or right < right_end:
        if right == right_end or (left < left_end and roles[left] <= roles[right]):
            role = roles[left]
            left += 1
        else:
            role = roles[right]
            right += 1
        if into == start or roles[into - 1] != role:
            roles[into] = role
            into += 1
    terms[top, _START], terms[top, _SIZE] = start, into - start
    terms[top, _SIGN] = terms[a, _SIGN] | terms[b, _SIGN]
    state[_TERMS], state[_ROLES] = top + 1, into


@_inlined
def _extend(terms: Ints, roles: Numbers, state: Ints, term: int) -> None:
    """Merges the last term, of one role, into the one before it. INVARIANT: their slices of `roles` are adjacent."""
    start, end = terms[term, _START], terms[term, _START] + terms[term, _SIZE]
    role = roles[end]
    place = end
    while place > start and roles[place - 1] > role:
        place -= 1
    state[_TERMS] -= 1
    if place > start and roles[place - 1] == role:
        state[_ROLES] -= 1
        return
    for n in range(end, place, -1):
        roles[n] = roles[n - 1]
    roles[place] = role
    terms[term, _SIZE] += 1
    terms[term, _SIGN] |= terms[term + 1, _SIGN]


@_compiled
def _multiply(terms: Ints, roles: Numbers, state: Ints, left: int, right: int) -> bool:
    """Combines the terms from `left` on with those from `right` on by `&`; false if there are too many here."""
    end = state[_TERMS]
    single = right - left == 1 and end - right == 1 and terms[right, _SIZE] == 1
    if single and terms[left, _START] + terms[left, _SIZE] == terms[right, _START]:
        _extend(terms, roles, state, left)
        return True
    if (right - left) * (end - right) > MOST_PRODUCTS:
        return False
    for a in range(left, right):
        for b in range(right, end):
            if state[_ROLES] + terms[a, _SIZE] + terms[b, _SIZE] > _MOST_ROLES:
                return False
            _union(terms, roles, state, a, b)
    made = state[_TERMS] - end
    for n in range(made):
        _move(terms, end + n, left + n)
    state[_TERMS] = left + made
    return bool(_minimise(terms, roles, state, left))


# Names: slices of the texts in a hash table; its seed is secret, because senders choose the names --------------------


@_inlined
def _hash(data: Bytes, start: int, end: int, seed: np.uint64) -> np.uint64:
    found = seed ^ np.uint64(end - start)
    word, shift = np.uint64(0), np.uint64(0)
    for n in range(start, end):
        word |= np.uint64(data[n]) << shift
        shift += np.uint64(8)
        if shift == 64 or n == end - 1:
            found = (found ^ word) * _ONCE
            found ^= (found >> np.uint64(29)) ^ (seed << np.uint64(7))
            word, shift = np.uint64(0), np.uint64(0)
    found = (found ^ (found >> np.uint64(32))) * _TWICE
    return np.uint64(found ^ (found >> np.uint64(32)))


@_inlined
def _is_at(data: Bytes, start: int, other: int, size: int) -> bool:
    n = 0
    while n < size and data[start + n] == data[other + n]:
        n += 1
    return n == size


@_inlined
def _name(data: Bytes, start: int, size: int, slots: Numbers, names: Ints, state: Ints, seed: np.uint64) -> int:
    """The number of a name; a new name gets the next number."""
    hashed = _hash(data, start, start + size, seed)
    mask = np.uint64(len(slots) - 1)
    slot, sign = hashed & mask, np.int64(hashed)
    while slots[slot] >= 0:
        known = slots[slot]
        alike = names[known, _HASH] == sign and names[known, _SIZE] == size
        if alike and _is_at(data, start, names[known, _START], size):
            return int(known)
        slot = (slot + np.uint64(1)) & mask
    new = state[_NAMES]
    slots[slot] = new
    names[new, _START], names[new, _SIZE], names[new, _HASH] = start, size, sign
    state[_NAMES] += 1
    return int(new)


@_compiled
def _with_room(names: Ints, count: int, room: int) -> tuple[Numbers, Ints]:
    """The hash table and the names, grown to hold `room` names."""
    size = 1024
    while size < 2 * room:
        size *= 2
    slots, grown, mask = np.full(size, -1, np.int32), np.empty((size // 2, 3), np.int64), np.uint64(size - 1)
    for number in range(count):
        for field in range(3):
            grown[number, field] = names[number, field]
        slot = np.uint64(names[number, _HASH]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = number
    return slots, grown


@_inlined
def _end_of_word(data: Bytes, start: int, end: int) -> int:
    place = start
    while place < end and _BYTES[data[place]] & _IN_WORDS:
        place += 1
    return place


@_compiled
def _is_word(data: Bytes, start: int, end: int, word: bytes) -> bool:
    """Whether the text is this word, in upper or lower case; `word` is lower case."""
    n = 0
    while n < min(len(word), end - start) and data[start + n] | 32 == word[n]:
        n += 1
    return n == len(word) == end - start


@_inlined
def _kind(data: Bytes, start: int, end: int) -> int:
    first = data[start] | 32
    if end - start > 5 or (first != 116 and first != 102 and first != 97):  # t, f, a
        return _NAME
    if _is_word(data, start, end, b"true"):
        return _TRUE
    if _is_word(data, start, end, b"false"):
        return _FALSE
    if _is_word(data, start, end, b"at") or _is_word(data, start, end, b"from"):
        return _CLAUSE
    return _NAME


# One text -------------------------------------------------------------------------------------------------------------


@_inlined
def _open(state: Ints, open_: Ints, depth: int) -> None:
    open_[depth, _LOW], open_[depth, _FACTORS], open_[depth, _SEVERAL] = state[_TERMS], -1, 0


@_inlined
def _close(terms: Ints, roles: Numbers, state: Ints, open_: Ints, depth: int) -> bool:
    if not open_[depth, _SEVERAL]:
        return True
    return bool(_minimise(terms, roles, state, open_[depth, _LOW]))


@_inlined
def _factor(terms: Ints, roles: Numbers, state: Ints, open_: Ints, depth: int, low: int) -> bool:
    """Takes the terms from `low` on as the next factor of the current `&` chain."""
    if open_[depth, _FACTORS] >= 0:
        return bool(_multiply(terms, roles, state, open_[depth, _FACTORS], low))
    open_[depth, _FACTORS] = low
    return True


@_inlined
def _read_factor(
    data: Bytes, end: int, terms: Ints, roles: Numbers, state: Ints, open_: Ints, slots: Numbers, names: Ints,
    seed: np.uint64,
) -> bool:  # fmt: skip
    """Reads a role, TRUE or FALSE; false if the text is left to the grammar."""
    start, low = state[_PLACE], state[_TERMS]
    stop = _end_of_word(data, start, end)
    kind = _kind(data, start, stop)
    if kind == _CLAUSE or stop - start > MAX_NAME:
        return False
    if kind == _TRUE:
        _push(terms, roles, state, -1)
    elif kind == _NAME:
        _push(terms, roles, state, _name(data, start, stop - start, slots, names, state, seed))
    state[_PLACE] = stop
    return bool(_factor(terms, roles, state, open_, state[_DEPTH], low))


@_inlined
def _read_operator(data: Bytes, end: int, terms: Ints, roles: Numbers, state: Ints, open_: Ints) -> int:
    """Reads the symbol after a factor: 1 if another factor follows, 0 if not, -1 if the text is left to the grammar."""
    place, depth = state[_PLACE], state[_DEPTH]
    c = data[place]
    state[_PLACE] = place + 1
    if c == 38:  # &
        return 1
    if c == 124:  # |
        open_[depth, _FACTORS], open_[depth, _SEVERAL] = -1, 1
        return 1
    if c == 41 and depth > 0 and _close(terms, roles, state, open_, depth):  # )
        state[_DEPTH] = depth - 1
        return 0 if _factor(terms, roles, state, open_, depth - 1, open_[depth, _LOW]) else -1
    if depth == 0 and _BYTES[c] == _LETTER and _kind(data, place, _end_of_word(data, place, end)) == _CLAUSE:
        state[_REST] = place
        return 0
    return -1


@_compiled
def _read_text(
    data: Bytes, start: int, end: int, terms: Ints, roles: Numbers, state: Ints, open_: Ints, slots: Numbers,
    names: Ints, seed: np.uint64,
) -> int:  # fmt: skip
    """Reads the roles of one text into `terms`, in minimal form; returns the offset of its clauses, NO_REST or ODD."""
    state[_PLACE], state[_DEPTH], state[_REST], state[_TERMS], state[_ROLES] = start, 0, NO_REST, 0, 0
    _open(state, open_, 0)
    expected = 1
    while state[_PLACE] < end and state[_REST] == NO_REST:
        c = data[state[_PLACE]]
        if _BYTES[c] == _BLANK:
            state[_PLACE] += 1
        elif not expected:
            expected = _read_operator(data, end, terms, roles, state, open_)
        elif c == 40 and state[_DEPTH] < MAX_DEPTH - 1:  # (
            state[_PLACE] += 1
            state[_DEPTH] += 1
            _open(state, open_, state[_DEPTH])
        elif _BYTES[c] == _LETTER and _read_factor(data, end, terms, roles, state, open_, slots, names, seed):
            expected = 0
        else:
            expected = -1
        if expected < 0 or state[_TERMS] > MAX_TERMS or state[_ROLES] > _MOST_ROLES:
            return ODD
    if expected or state[_DEPTH] or not _close(terms, roles, state, open_, 0):
        return ODD
    _sort(terms, roles, 0, state[_TERMS])
    return int(state[_REST])


# Columns --------------------------------------------------------------------------------------------------------------


@_compiled
def read_texts(data: Bytes, offsets: Ints, seed: np.uint64) -> tuple[Ints, Ints, Ints, Numbers, Ints]:
    """Reads a column of texts. Returns for each text the offset of its clauses, NO_REST or ODD; the minimal forms
    (`label_ends`: for each text how many terms there are up to its end; `term_ends`: for each term how many roles; the
    roles); and offset, size and hash of each name."""
    count = len(offsets) - 1
    rests, label_ends = np.empty(count, np.int64), np.empty(count, np.int64)
    term_ends, found = np.empty(2 * count + MAX_TERMS, np.int64), np.empty(4 * count + _MOST_ROLES, np.int32)
    terms = np.empty((MAX_TERMS + 2 * MOST_PRODUCTS, 3), np.int64)
    roles = np.empty(2 * _MOST_ROLES, np.int32)
    state, open_ = np.zeros(6, np.int64), np.zeros((MAX_DEPTH + 1, 3), np.int64)
    slots, names = _with_room(np.empty((0, 3), np.int64), 0, 512)
    term_count = role_count = 0
    for n in range(count):
        start, end = offsets[n], offsets[n + 1]
        rests[n] = ODD
        if end - start <= MAX_TEXT:
            needed = state[_NAMES] + (end - start) // 2 + 1
            if needed > len(names):
                slots, names = _with_room(names, state[_NAMES], 2 * needed)
            rests[n] = _read_text(data, start, end, terms, roles, state, open_, slots, names, seed)
        if rests[n] != ODD:
            if term_count + MAX_TERMS > len(term_ends):
                term_ends = np.concatenate((term_ends, np.empty(len(term_ends), np.int64)))
            if role_count + _MOST_ROLES > len(found):
                found = np.concatenate((found, np.empty(len(found), np.int32)))
            for term in range(state[_TERMS]):
                for place in range(terms[term, _START], terms[term, _START] + terms[term, _SIZE]):
                    found[role_count] = roles[place]
                    role_count += 1
                term_ends[term_count] = role_count
                term_count += 1
        label_ends[n] = term_count
    return rests, label_ends, term_ends[:term_count].copy(), found[:role_count].copy(), names[: state[_NAMES]].copy()


@_compiled
def _hash_label(kind: int, begin: int, end: int, term_ends: Ints, roles: Numbers, seed: np.uint64) -> np.uint64:
    found = seed ^ np.uint64(kind)
    place = term_ends[begin - 1] if begin > 0 else 0
    for term in range(begin, end):
        found = (found ^ np.uint64(term_ends[term] - place)) * _ONCE
        while place < term_ends[term]:
            found = (found ^ np.uint64(roles[place])) * _TWICE
            found ^= (found >> np.uint64(31)) ^ (seed << np.uint64(9))
            place += 1
    return np.uint64(found ^ (found >> np.uint64(32)))


@_compiled
def _equal(a: int, b: int, kinds: Ints, label_ends: Ints, term_ends: Ints, roles: Numbers) -> bool:
    first_a, first_b = label_ends[a - 1] if a > 0 else 0, label_ends[b - 1] if b > 0 else 0
    count = label_ends[a] - first_a
    if kinds[a] != kinds[b] or count != label_ends[b] - first_b:
        return False
    start_a = term_ends[first_a - 1] if first_a > 0 else 0
    start_b = term_ends[first_b - 1] if first_b > 0 else 0
    for n in range(count):
        if term_ends[first_a + n] - start_a != term_ends[first_b + n] - start_b:
            return False
    for n in range((term_ends[first_a + count - 1] - start_a) if count else 0):
        if roles[start_a + n] != roles[start_b + n]:
            return False
    return True


@_compiled
def distinct(kinds: Ints, label_ends: Ints, term_ends: Ints, roles: Numbers, seed: np.uint64) -> tuple[Ints, Ints]:
    """Numbers the distinct labels: for each label its number, and for each number the first label that has it. Labels
    are equal if their roles and their `kinds` are. A kind below 0 is not a label and has the number -1."""
    count = len(kinds)
    size = 1024
    while size < 2 * count:
        size *= 2
    slots, mask = np.full(size, -1, np.int64), np.uint64(size - 1)
    numbers, firsts = np.full(count, -1, np.int64), np.empty(count, np.int64)
    found = 0
    for n in range(count):
        if kinds[n] < 0:
            continue
        begin = label_ends[n - 1] if n > 0 else 0
        slot = _hash_label(kinds[n], begin, label_ends[n], term_ends, roles, seed) & mask
        while slots[slot] >= 0 and not _equal(firsts[slots[slot]], n, kinds, label_ends, term_ends, roles):
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot], firsts[found] = found, n
            found += 1
        numbers[n] = slots[slot]
    return numbers, firsts[:found].copy()
