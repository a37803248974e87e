"""SipHash-1-3 (Aumasson and Bernstein), the keyed hash of Python's and Rust's dictionaries.

Senders choose keys. With a hash that they know, they choose keys that all collide, and every lookup takes as long as
the table is; without the seed they cannot. Words are whole here, so the block with the length is left out for numbers.
"""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from headgate.loops.compiled import inlined

Bytes = npt.NDArray[np.uint8]
Words = tuple[np.uint64, np.uint64, np.uint64, np.uint64]

_V0, _V1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_V2, _V3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_SECOND = np.uint64(0x9E3779B97F4A7C15)
_LAST = np.uint64(0xFF)


def new_seed() -> np.uint64:
    """A seed that nobody can guess."""
    return np.uint64(secrets.randbits(64))


@inlined
def _rotated(word: np.uint64, by: int) -> np.uint64:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@inlined
def _round(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> Words:
    v0 += v1
    v2 += v3
    v1 = _rotated(v1, 13) ^ v0
    v3 = _rotated(v3, 16) ^ v2
    v0 = _rotated(v0, 32)
    v2 += v1
    v0 += v3
    v1 = _rotated(v1, 17) ^ v2
    v3 = _rotated(v3, 21) ^ v0
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


@inlined
def _begun(seed: np.uint64) -> Words:
    """The key has 128 bits; its second half is made from the first."""
    second = seed ^ _SECOND
    return seed ^ _V0, second ^ _V1, seed ^ _V2, second ^ _V3


@inlined
def _ended(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> np.uint64:
    v2 ^= _LAST
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@inlined
def hash_pair(a: int, b: int, seed: np.uint64) -> np.uint64:
    """The hash of two numbers of 64 bits."""
    first, second = np.uint64(a), np.uint64(b)
    v0, v1, v2, v3 = _begun(seed)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ first)
    v0, v1, v2, v3 = _round(v0 ^ first, v1, v2, v3 ^ second)
    return _ended(v0 ^ second, v1, v2, v3)


@inlined
def hash_bytes(data: Bytes, start: int, end: int, seed: np.uint64) -> np.uint64:
    """The hash of the bytes from `start` to before `end`."""
    v0, v1, v2, v3 = _begun(seed)
    place = start
    while place + 8 <= end:
        word = np.uint64(0)
        for n in range(8):
            word |= np.uint64(data[place + n]) << np.uint64(8 * n)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
        v0 ^= word
        place += 8
    word = np.uint64(end - start) << np.uint64(56)
    for n in range(end - place):
        word |= np.uint64(data[place + n]) << np.uint64(8 * n)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    return _ended(v0 ^ word, v1, v2, v3)
