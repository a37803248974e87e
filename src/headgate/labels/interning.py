"""Labels become small integers that mean the same after a restart, so that tuples carry numbers, not texts.

Number 0 is the unreadable label: what cannot be parsed protects its tuple from everyone, and is counted.
"""

from __future__ import annotations

from headgate.errors import LabelError
from headgate.labels.journal import Journal
from headgate.labels.label import Label, Rules
from headgate.labels.roles import FALSE
from headgate.labels.text import parse_label

UNREADABLE = 0
_MAX_TEXTS = 1_000_000  # spellings remembered; beyond it the memory is emptied, the numbers stay


class LabelTable:
    def __init__(self, rules: Rules, journal: Journal) -> None:
        self._rules = rules
        self._journal = journal
        self._labels: dict[int, Label] = {UNREADABLE: Label(FALSE)}
        self._numbers: dict[Label, int] = {}
        self._texts: dict[str, int] = {}
        self._size = 1
        self.unreadable = 0
        for number, text in journal.read():
            self._keep(number, parse_label(text))

    def __len__(self) -> int:
        """One more than the largest number known here."""
        return self._size

    def number(self, label: Label) -> int:
        known = self._numbers.get(label)
        if known is None:
            label = self._rules.normal(label)
            known = self._numbers.get(label)
        return known if known is not None else self._keep(self._journal.number(str(label)), label)

    def number_of_text(self, text: str) -> int:
        """As `number`, from any spelling; UNREADABLE for what is not a label."""
        known = self._texts.get(text)
        if known is None:
            try:
                known = self.number(parse_label(text, self._rules.order))
            except LabelError:
                known = UNREADABLE
            if len(self._texts) >= _MAX_TEXTS:
                self._texts.clear()
            self._texts[text] = known
        self.unreadable += known == UNREADABLE
        return known

    def label(self, number: int) -> Label:
        return self._labels[number]

    def _keep(self, number: int, label: Label) -> int:
        self._labels[number] = label
        self._numbers[label] = number
        self._size = max(self._size, number + 1)
        return number
