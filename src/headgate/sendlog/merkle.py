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


def levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """The tree from its leaves (at least one) to its root; an odd one out moves up unchanged."""
    found = [list(leaves)]
    while len(found[-1]) > 1:
        below = found[-1]
        paired = [_inner(below[i], below[i + 1]) for i in range(0, len(below) - 1, 2)]
        found.append(paired + ([below[-1]] if len(below) % 2 else []))
    return found


def root(tree: list[list[bytes]]) -> bytes:
    return tree[-1][0]


def path(tree: list[list[bytes]], place: int) -> Path:
    """What proves that the leaf at `place` is under the root."""
    found: list[tuple[bool, bytes]] = []
    for level in tree[:-1]:
        other = place ^ 1
        if other < len(level):
            found.append((other < place, level[other]))
        place //= 2
    return tuple(found)


def climbed(start: bytes, steps: Path) -> bytes:
    """The root that a leaf and its path lead to."""
    for on_left, other in steps:
        start = _inner(other, start) if on_left else _inner(start, other)
    return start
