"""The hash against a plain one, and that one against Python's own."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops.siphash import hash_bytes, hash_pair, new_seed

_MASK = 2**64 - 1
_TEXTS = [b"a", b"headgate", b"seven b", b"sixteen bytes...", bytes(range(100))]


def _round(v: list[int]) -> None:
    def rotated(word: int, by: int) -> int:
        return (word << by | word >> (64 - by)) & _MASK

    for a, b, c, d, first, second in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
        v[a], v[c] = (v[a] + v[b]) & _MASK, (v[c] + v[d]) & _MASK
        v[b], v[d] = rotated(v[b], first) ^ v[a], rotated(v[d], second) ^ v[c]
        v[a] = rotated(v[a], 32)


def _siphash(words: list[int], first: int, second: int) -> int:
    begun = b"somepseudorandomlygeneratedbytes"
    keys = (first, second, first, second)
    v = [int.from_bytes(begun[8 * n : 8 * n + 8], "big") ^ keys[n] for n in range(4)]
    for word in words:
        v[3] ^= word
        _round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        _round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _words(data: bytes) -> list[int]:
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) % 256])
    return [int.from_bytes(padded[n : n + 8], "little") for n in range(0, len(padded), 8)]


def test_the_plain_hash_is_that_of_python_with_the_seed_zero() -> None:
    program = f"print(*(hash(text) for text in {_TEXTS!r}))"
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout
    assert [int(number) % 2**64 for number in found.split()] == [_siphash(_words(text), 0, 0) for text in _TEXTS]


@settings(deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=3), st.integers(0, _MASK))
def test_bytes_are_hashed_as_by_the_plain_hash(text: bytes, before: bytes, seed: int) -> None:
    data = np.frombuffer(before + text + b"after", np.uint8)
    found = hash_bytes(data, len(before), len(before) + len(text), np.uint64(seed))
    assert int(found) == _siphash(_words(text), seed, seed ^ 0x9E3779B97F4A7C15)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, _MASK))
def test_pairs_are_hashed_as_by_the_plain_hash(a: int, b: int, seed: int) -> None:
    found = hash_pair(a, b, np.uint64(seed))
    assert int(found) == _siphash([a % 2**64, b % 2**64], seed, seed ^ 0x9E3779B97F4A7C15)


def test_seeds_differ() -> None:
    assert len({int(new_seed()) for _ in range(100)}) == 100
