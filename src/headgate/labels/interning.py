"""Interning: labels become small integers that keep their meaning after a restart, because a journal stores them.

Number 0 is the unreadable label: a label that cannot be parsed protects its tuple from everyone, and is counted. Engine
runs number labels with `visibility.dictionary`; this table serves `bulk` and the label benchmark.
"""

from __future__ import annotations

from headgate.errors import LabelError
from headgate.labels.journal import Journal
from headgate.labels.label import FOR_NOBODY, Label, Rules
from headgate.labels.text import parse_any_label, parse_label

UNREADABLE = 0
# The cache of spellings: their number and their length. The numbers themselves are never forgotten.
_MAX_SPELLINGS = 100_000
_MAX_SPELLING = 1_000
_NO_LIMIT = 1 << 40


class LabelTable:
    def __init__(self, rules: Rules, journal: Journal) -> None:
        self._rules = rules
        self._journal = journal
        self._labels: dict[int, Label] = {UNREADABLE: FOR_NOBODY}
        self._numbers: dict[Label, int] = {}
        self._spellings: dict[str, int] = {}
        self._size = 1
        self.unreadable = 0
        """How many tuples had an unreadable label."""
        self._catch_up()

    def __len__(self) -> int:
        """One more than the largest number known here."""
        return self._size

    def number(self, label: Label) -> int:
        known = self._numbers.get(label)
        if known is None:
            label = parse_any_label(str(self._rules.normal(label)), limit=_NO_LIMIT)
            known = self._numbers.get(label)
        return known if known is not None else self._keep(self._journal.number(str(label)), label)

    def number_of_text(self, text: str, tuples: int = 1) -> int:
        """As `number`, from any spelling; UNREADABLE if the text is not a label; counts that for `tuples` tuples."""
        known = self._spellings.get(text)
        if known is None:
            try:
                known = self.number(parse_label(text, self._rules.order))
            except LabelError:
                known = UNREADABLE
            if len(self._spellings) >= _MAX_SPELLINGS:
                self._spellings.clear()
            if len(text) <= _MAX_SPELLING:
                self._spellings[text] = known
        if known == UNREADABLE:
            self.unreadable += tuples
        return known

    def label(self, number: int) -> Label:
        """The label of a number, which another process may have given."""
        if number not in self._labels:
            self._catch_up()
        return self._labels[number]

    def _catch_up(self) -> None:
        for number, text in self._journal.read():
            if number not in self._labels:
                self._keep(number, parse_any_label(text, limit=_NO_LIMIT))

    def _keep(self, number: int, label: Label) -> int:
        self._labels[number] = label
        self._numbers[label] = number
        self._size = max(self._size, number + 1)
        return number
