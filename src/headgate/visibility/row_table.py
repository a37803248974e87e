"""The visibility rows of a processor, by number: what each view sees of tuples of one label.

A row has a column for each block of each view: HIDDEN, or the mask of the columns that are hidden. A change of rights
replaces rows by others. Each row also has an identity, which it keeps when rows are numbered anew, so what was written
with identities can be read later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headgate.columns.sorting import Ints, distinct
from headgate.model.visibility import VisibilityRows
from headgate.visibility.numbering import Numbering

Row = np.ndarray[tuple[int], np.dtype[np.int32]]


class VisibilityTable:
    """columns: how many columns each row has
    INVARIANT: rows that `number_of` gives do not change; rows of tables do, and no other tuples have them.
    """

    def __init__(self) -> None:
        self.columns = 0
        self._rows: list[Row] = []
        self._label_of: list[int] = []
        self._numbers: dict[tuple[int, bytes], int] = {}
        self._of_tables = set[int]()
        self._whole: VisibilityRows | None = None
        self._identities: list[int] = []
        self._next_identity = 0
        self._replaced: dict[int, int] = {}
        """The identities that have taken the place of others."""
        self._alive = set[int]()
        """The rows that tuples of streams may have. A change of rights replaced the others, which no longer change."""

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> Row:
        """A copy of a row."""
        return self._rows[number].copy()

    def label_of(self, number: int) -> int:
        return self._label_of[number]

    @property
    def labels(self) -> set[int]:
        """The labels that rows have."""
        return set(self._label_of)

    @property
    def labels_alive(self) -> list[int]:
        """The labels that tuples of streams may have."""
        return list(dict.fromkeys(self._label_of[number] for number in sorted(self._alive)))

    @property
    def whole(self) -> VisibilityRows:
        """All rows as one table."""
        if self._whole is None:
            self._whole = np.zeros((0, self.columns), np.int32)
        if len(self._whole) < len(self._rows):
            self._whole = np.concatenate([self._whole, self._rows[len(self._whole) :]])
        return self._whole

    # Columns ----------------------------------------------------------------------------------------------------------

    def add_columns(self, count: int) -> tuple[int, ...]:
        """Add columns, HIDDEN in all rows; returns their numbers."""
        columns = tuple(range(self.columns, self.columns + count))
        self.columns += count
        self._rows = [np.append(row, np.zeros(count, np.int32)) for row in self._rows]
        self._find_anew()
        return columns

    def copy_columns(self, source: Sequence[int], target: Sequence[int]) -> None:
        for row in self._rows:
            row[list(target)] = row[list(source)]
        self._find_anew()

    def _find_anew(self) -> None:
        self._whole = None
        known = enumerate(zip(self._label_of, self._rows, strict=True))
        self._numbers = {
            (label, row.tobytes()): number for number, (label, row) in known if number not in self._of_tables
        }

    # Rows -------------------------------------------------------------------------------------------------------------

    def number_of(self, label: int, row: Row) -> int:
        """The number of the row with this label and content, which tuples of streams may have from now on."""
        key = label, row.tobytes()
        if key not in self._numbers:
            self._numbers[key] = self._add(label, row)
        self._alive.add(self._numbers[key])
        return self._numbers[key]

    def add_of_table(self, label: int, row: Row) -> int:
        """A new row for tuples of a table."""
        number = self._add(label, row)
        self._of_tables.add(number)
        return number

    def set_of_table(self, number: int, columns: Sequence[int], masks: Sequence[int]) -> None:
        """Change the row of tuples of a table."""
        self._rows[number][list(columns)] = masks
        self._whole = None

    def _add(self, label: int, row: Row) -> int:
        self._rows.append(row)
        self._label_of.append(label)
        self._identities.append(self._new_identity())
        return len(self._rows) - 1

    def _new_identity(self) -> int:
        self._next_identity += 1
        return self._next_identity - 1

    def replace(self, changed: Callable[[int, Row], None]) -> Ints:
        """Let each row that tuples may have be replaced by another; `changed` changes a copy of it, of a label. Returns
        for each row the one that tuples have now."""
        after = np.arange(len(self._rows))
        alive, self._alive = sorted(self._alive), set()
        for number in alive:
            label, row = self._label_of[number], self._rows[number].copy()
            changed(label, row)
            after[number] = self.number_of(label, row)
        self._note_replaced([(number, int(after[number])) for number in alive if after[number] != number])
        return after

    def _note_replaced(self, rows: Sequence[tuple[int, int]]) -> None:
        """Tuples that had a row have another one now. If a row is given to tuples again, it is not the one that they
        had: it gets another identity."""
        now = {self._identities[old]: self._identities[new] for old, new in rows}
        self._replaced = {old: now.get(new, new) for old, new in self._replaced.items()} | now
        for old, _ in rows:
            self._identities[old] = self._new_identity()

    def retain(self, used: Ints) -> dict[int, int]:
        """Remove all rows but the used ones and those of tables; returns the new number of each that stays."""
        kept = distinct(np.concatenate([used, np.array(sorted(self._of_tables), np.int64)])).tolist()
        after = {number: place for place, number in enumerate(kept)}
        self._rows = [self._rows[number] for number in kept]
        self._label_of = [self._label_of[number] for number in kept]
        self._identities = [self._identities[number] for number in kept]
        known = set(self._identities)
        self._replaced = {old: new for old, new in self._replaced.items() if new in known}
        self._of_tables = {after[number] for number in self._of_tables}
        self._alive = set(range(len(kept))) - self._of_tables
        self._find_anew()
        return after

    # Identities -------------------------------------------------------------------------------------------------------

    @property
    def identities(self) -> Ints:
        """The identity of each row, by its number."""
        return np.array(self._identities, np.int64)

    def numbering(self) -> Numbering:
        """The numbers of rows by their identities, as they are now."""
        return Numbering(self.identities, dict(self._replaced))

    # Checkpoint and restore -------------------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """The state as plain values. Equal rows are written once: most differ in their label only."""
        kinds: dict[bytes, int] = {}
        row_of = [kinds.setdefault(row.tobytes(), len(kinds)) for row in self._rows]
        return {
            "columns": self.columns,
            "rows": [np.frombuffer(row, np.int32).tolist() for row in kinds],
            "row_of": row_of,
            "label_of": list(self._label_of),
            "identities": list(self._identities),
            "next_identity": self._next_identity,
            "replaced": [[old, new] for old, new in self._replaced.items()],
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> VisibilityTable:
        """From plain values. Tables are read anew after a restart, so no row is one of a table any more."""
        found = cls()
        found.columns = plain["columns"]
        found._rows = [np.array(plain["rows"][place], np.int32) for place in plain["row_of"]]
        found._label_of = list(plain["label_of"])
        found._identities, found._next_identity = list(plain["identities"]), plain["next_identity"]
        found._replaced = dict(plain["replaced"])
        found._alive = set(range(len(found._rows)))
        found._find_anew()
        return found
