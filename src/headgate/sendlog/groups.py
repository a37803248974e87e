"""The groups of aggregates: one head for each group, made anew when a solution of the group comes or goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headgate.sendlog.compiled import Component, Grouping
from headgate.sendlog.core import Rel
from headgate.sendlog.derivations import Derivations, Fact
from headgate.sendlog.functions import FAILURES
from headgate.sendlog.tables import Table
from headgate.sendlog.values import Row, Value, canonical

Rows = Mapping[Rel, set[Row]]


class Groups:
    """The heads that hold now. `failed` counts values that cannot be aggregated, such as the sum of texts."""

    def __init__(self, tables: Mapping[Rel, Table], failed: Callable[[], None]) -> None:
        self._tables, self._failed = tables, failed
        self._heads: dict[Rel, dict[Row, Row]] = {}

    def clear(self) -> None:
        self._heads.clear()

    def heads(self, grouping: Grouping) -> set[Row]:
        return set(self._heads.get(grouping.body, {}).values())

    def regroup(
        self, component: Component, plus: Rows, minus: Rows, derivations: Derivations | None
    ) -> tuple[list[Fact], list[Fact]]:
        """The heads of groups whose solutions changed: new ones, and old ones that no longer hold."""
        new: list[Fact] = []
        gone: list[Fact] = []
        for grouping in component.groupings:
            changed = {grouping.key(row) for rows in (plus, minus) for row in rows.get(grouping.body, ())}
            heads, rel = self._heads.setdefault(grouping.body, {}), grouping.rule.rel
            for key in changed:
                old = heads.pop(key, None)
                made = self._group(grouping, key, derivations)
                if made is not None:
                    heads[key] = made
                if made != old:
                    gone += [(rel, old)] if old is not None else []
                    new += [(rel, made)] if made is not None else []
        return new, gone

    def _group(self, grouping: Grouping, key: Row, derivations: Derivations | None) -> Row | None:
        table = self._tables[grouping.body]
        solutions = table.rows
        if grouping.group:
            solutions = table.index(grouping.group).get(key[0] if len(key) == 1 else key, set())
        value, chosen = self.value(grouping, solutions)
        if value is None:
            return None
        made = grouping.head(key, value)
        if derivations is not None:
            behind = tuple([(grouping.body, row) for row in chosen])
            derivations.replace((grouping.rule.rel, made), grouping.rule.label, behind)
        return made

    def value(self, grouping: Grouping, solutions: set[Row]) -> tuple[Row | None, list[Row]]:
        """The aggregate over these solutions, and those it comes from; None where there are none, or it cannot be."""
        name = grouping.aggregate.name
        if not solutions:
            return None, []
        if name == "count":
            return (len(solutions),), sorted(solutions, key=repr)
        values = {row: tuple([row[i] for i in grouping.over]) for row in solutions}
        try:
            if name == "sum":
                return (_total([value[0] for value in values.values()]),), sorted(solutions, key=repr)
            best = min(values.values()) if name == "min" else max(values.values())
        except FAILURES:
            self._failed()
            return None, []
        return best, sorted([row for row, value in values.items() if value == best], key=repr)


def _total(values: list[Value]) -> Value:
    total: int | float = 0
    for value in values:
        if isinstance(value, str | tuple):
            raise TypeError("this is no number")
        total += value
    return canonical(total)
