"""A relation in memory: a set of rows, and an index for each set of columns that some strand looks up."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from headgate.sendlog.values import Row

Index = dict[Any, set[Row]]


class Table:
    __slots__ = ("_indexes", "rows")

    def __init__(self) -> None:
        self.rows: set[Row] = set()
        self._indexes: dict[tuple[int, ...], tuple[Callable[[Row], Any], Index]] = {}

    def add(self, row: Row) -> bool:
        """Whether it is new."""
        if row in self.rows:
            return False
        self.rows.add(row)
        for key, index in self._indexes.values():
            found = index.get(k := key(row))
            if found is None:
                index[k] = {row}
            else:
                found.add(row)
        return True

    def add_all(self, rows: set[Row]) -> None:
        """Rows that are all new."""
        self.rows |= rows
        for key, index in self._indexes.values():
            for row in rows:
                found = index.get(k := key(row))
                if found is None:
                    index[k] = {row}
                else:
                    found.add(row)

    def remove(self, row: Row) -> bool:
        """Whether it was there."""
        if row not in self.rows:
            return False
        self.rows.discard(row)
        for key, index in self._indexes.values():
            found = index[k := key(row)]
            found.discard(row)
            if not found:
                del index[k]
        return True

    def clear(self) -> None:
        self.rows.clear()
        for _, index in self._indexes.values():
            index.clear()

    def index(self, columns: tuple[int, ...]) -> Index:
        """From the values of these columns (one value bare, several as a tuple) to the rows; kept up to date."""
        if columns not in self._indexes:
            key = itemgetter(*columns)
            index: Index = {}
            for row in self.rows:
                index.setdefault(key(row), set()).add(row)
            self._indexes[columns] = (key, index)
        return self._indexes[columns][1]
