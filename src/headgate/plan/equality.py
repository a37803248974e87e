"""Columns that the conditions of a block make equal: each of them has the same value.

So a column name of several sources is unambiguous where a join makes the columns equal, and one column is read for all
of them, however the query is written and in whatever order its sources stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.plan import normal
from headgate.plan.expressions import Column, Compare, Expr


class Equalities:
    """Sets of equal columns. `order` decides which column of a set is read: the least."""

    def __init__(self, conditions: Iterable[Expr], order: Callable[[Column], tuple[str | int, ...]]) -> None:
        self._groups = _groups(conditions)
        self._first = {column: min(group, key=order) for group in self._groups for column in group}

    def hold(self, columns: Iterable[Column]) -> bool:
        """Whether all of these columns are equal."""
        wanted = set(columns)
        return len(wanted) == 1 or any(wanted <= group for group in self._groups)

    def first(self, column: Column) -> Column:
        return self._first.get(column, column)

    def read_once(self, expr: Expr) -> Expr:
        return normal.moved(expr, self.first) if self._first else expr


def _groups(conditions: Iterable[Expr]) -> list[frozenset[Column]]:
    groups: list[frozenset[Column]] = []
    for condition in conditions:
        match condition:
            case Compare("=", Column() as left, Column() as right) if left.type == right.type:
                touched = [group for group in groups if left in group or right in group]
                groups = [group for group in groups if group not in touched]
                groups.append(frozenset({left, right}).union(*touched))
    return groups
