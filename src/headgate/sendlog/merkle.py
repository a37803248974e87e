"""Many tuples under one signature: a Merkle tree over the leaves, and for each leaf the way to the root."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

Path = tuple[tuple[bool, bytes], ...]
"""From a leaf to the root: the other hash at each step, and whether it stands on the left."""


def leaf(data: bytes) -> bytes:
    return hashlib.sha256(b"\0" + data).digest()


def _inner(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """The root of at least one leaf; an odd one out moves up unchanged."""
    level = list(leaves)
    while len(level) > 1:
        paired = [_inner(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + ([level[-1]] if len(level) % 2 else [])
    return level[0]


def path(leaves: Sequence[bytes], place: int) -> Path:
    """What proves that the leaf at `place` is under the root."""
    found: list[tuple[bool, bytes]] = []
    level = list(leaves)
    while len(level) > 1:
        other = place ^ 1
        if other < len(level):
            found.append((other < place, level[other]))
        paired = [_inner(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + ([level[-1]] if len(level) % 2 else [])
        place //= 2
    return tuple(found)


def climbed(start: bytes, steps: Path) -> bytes:
    """The root that a leaf and its path lead to."""
    for on_left, other in steps:
        start = _inner(other, start) if on_left else _inner(start, other)
    return start
