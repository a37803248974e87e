"""Numbers for sets of sources: both strategies of paper 000, section 3.2.

The first 62 sources get one bit each, and a set of them is the OR of its bits, so combining sets is one instruction. A
set with a later source gets a negative number when it first occurs, so the number of sources has no limit.
"""

from __future__ import annotations

import re

from headgate.labels.journal import Journal
from headgate.lexing import Cursor, quote

_AGAIN = re.compile(r"~[0-9]+\Z")  # no name ends so: a name is plain or in quotes
BITS = 62  # fits into a signed 64-bit column with room to spare


def source_shown(name: str) -> str:
    """The name of a source as users know it. A source that was dropped and created again is `joe.in1~2` in labels,
    since tuples of the earlier one may still exist, and `joe.in1` for its readers."""
    return _AGAIN.sub("", name)


class SourceNumbers:
    def __init__(self, sources: Journal, sets: Journal) -> None:
        self._sources = sources
        self._sets = sets
        self._serial: dict[str, int] = {}
        self._by_bit: dict[int, str] = {}
        self._number: dict[frozenset[str], int] = {}
        self._members: dict[int, frozenset[str]] = {}
        self._catch_up()

    def _catch_up(self) -> None:
        """Reads the numbers that other processes have given."""
        for serial, name in self._sources.read():
            self._keep_source(serial, name)
        for serial, text in self._sets.read():
            self._keep_set(-serial, _read_set(text))

    def number(self, members: frozenset[str]) -> int:
        """The number of a set of sources; 0 is the empty set."""
        if (known := self._number.get(members)) is not None:
            return known
        serials = [self._source(name) for name in sorted(members)]
        if all(serial <= BITS for serial in serials):
            return self._keep_set(sum(1 << (serial - 1) for serial in serials), members)
        return self._keep_set(-self._sets.number(_write_set(members)), members)

    def combine(self, a: int, b: int) -> int:
        """The number of the union of two sets."""
        if a >= 0 and b >= 0:
            return a | b
        return self.number(self.members(a) | self.members(b))

    def members(self, number: int) -> frozenset[str]:
        try:
            return self._known_members(number)
        except KeyError:
            self._catch_up()
            return self._known_members(number)

    def _known_members(self, number: int) -> frozenset[str]:
        if number >= 0:
            return frozenset(self._by_bit[i] for i in range(number.bit_length()) if number >> i & 1)
        return self._members[number]

    def _source(self, name: str) -> int:
        if name not in self._serial:
            self._keep_source(self._sources.number(name), name)
        return self._serial[name]

    def _keep_source(self, serial: int, name: str) -> None:
        self._serial[name] = serial
        if serial <= BITS:
            self._by_bit[serial - 1] = name

    def _keep_set(self, number: int, members: frozenset[str]) -> int:
        self._number[members] = number
        if number < 0:
            self._members[number] = members
        return number


def _write_set(members: frozenset[str]) -> str:
    return ", ".join(quote(name) for name in sorted(members))


def _read_set(text: str) -> frozenset[str]:
    cursor = Cursor(text)
    members = [cursor.expect_name("a source")]
    while cursor.take_symbol(","):
        members.append(cursor.expect_name("a source"))
    return frozenset(members)
