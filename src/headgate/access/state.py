"""The catalog in memory: tables with indexes, and a log that can undo a script or hand its changes to the store.

Checks must cost microseconds, so they read dictionaries, not SQL; the store is written before a change counts. Every
index returns only what belongs to one caller, so no answer takes longer because of hidden objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, TypeVar

from headgate.access import rows as r
from headgate.access.permissions import Permission

R = TypeVar("R", bound=r.Row)
Index = Callable[[Any], Any]
Change = tuple[str, r.Key, r.Row | None, r.Row | None]  # table, key, row before, row now
_NOTHING: dict[Any, Any] = {}


class RowTable(Generic[R]):
    """Rows by key, and by as many indexes as needed. All changes go through `put` and `remove`."""

    def __init__(self, row: type[R], log: Callable[[str, r.Key, R | None], None], **indexes: Index) -> None:
        self.row = row
        self._log = log
        self._rows: dict[r.Key, R] = {}
        self._indexes = indexes
        self._found: dict[str, dict[Any, dict[r.Key, R]]] = {name: {} for name in indexes}
        self.regrouped = dict.fromkeys(indexes, 0)
        """For each index, how often the set of its values changed."""

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, *key: str | int) -> R | None:
        return self._rows.get(key)

    def find(self, index: str, key: Any) -> Collection[R]:
        """A copy: callers may change the table while they iterate."""
        return list(self._found[index].get(key, {}).values())

    def peek(self, index: str, key: Any) -> Collection[R]:
        """The rows themselves, not copied: for checks, which only read."""
        return self._found[index].get(key, _NOTHING).values()

    def keys(self, index: str) -> Collection[Any]:
        """All values for which an index has rows."""
        return self._found[index].keys()

    def put(self, row: R) -> None:
        self._log(self.row.table, row.key, self._rows.get(row.key))
        self.restore(row.key, row)

    def remove(self, row: R) -> None:
        self._log(self.row.table, row.key, row)
        self.restore(row.key, None)

    def restore(self, key: r.Key, row: R | None) -> None:
        """Sets a key to a row or to nothing, without logging: for loading, catching up and undoing."""
        old = self._rows.pop(key, None)
        for name, index in self._indexes.items():
            found = self._found[name]
            if old is not None:
                bucket = found[index(old)]
                del bucket[key]
                if not bucket:
                    del found[index(old)]
                    self.regrouped[name] += 1
            if row is not None:
                if index(row) not in found:
                    found[index(row)] = {}
                    self.regrouped[name] += 1
                found[index(row)][key] = row
        if row is not None:
            self._rows[key] = row


def grant_table(log: Callable[[str, r.Key, r.Grant | None], None]) -> RowTable[r.Grant]:
    """Grants, with the indexes that decisions and the catalog need: those of the store, and those of policies."""
    return RowTable(
        r.Grant,
        log,
        object=lambda x: x.object,
        right=lambda x: (x.object, x.permission),
        role=lambda x: x.role,
        views=lambda x: (x.role, x.level) if x.permission == Permission.VIEW_OBJECT else None,
        viewed_name=lambda x: (x.role, x.kind, x.name, x.level) if x.permission == Permission.VIEW_OBJECT else None,
    )


class State:
    """All tables, the changes since the last commit, and counters that tell caches when they are stale."""

    def __init__(self) -> None:
        log = self._record
        self.users = RowTable(r.User, log)
        self.roles = RowTable(r.Role, log, owner=lambda x: x.owner)
        self.memberships = RowTable(r.Membership, log, user=lambda x: x.user, role=lambda x: x.role)
        self.inheritances = RowTable(r.Inheritance, log, senior=lambda x: x.senior, junior=lambda x: x.junior)
        self.separations = RowTable(r.Separation, log)
        self.levels = RowTable(r.LevelRow, log)
        self.compartments = RowTable(r.Compartment, log)
        self.objects = RowTable(
            r.Object,
            log,
            kind=lambda x: x.kind,
            level=lambda x: x.level,
            owner=lambda x: x.owner,
            owner_level=lambda x: (x.owner, x.level),
            owned_name=lambda x: (x.owner, x.kind, x.name, x.level),
        )
        self.grants = grant_table(log)
        self.sessions = RowTable(r.Session, log, user=lambda x: x.user)
        self.subscriptions = RowTable(
            r.Subscription,
            log,
            user=lambda x: x.user,
            user_level=lambda x: (x.user, x.level),
            stream=lambda x: x.stream,
        )
        self.login_sources = RowTable(r.LoginSource, log, user=lambda x: x.user)
        self.parameters = RowTable(r.Parameter, log)
        self.source_names = RowTable(r.SourceName, log)
        self.policies = RowTable(r.Policy, log, address=lambda x: x.address, owner=lambda x: x.owner)
        self.policy_statements = RowTable(
            r.PolicyStatement, log, policy=lambda x: x.policy, speaker=lambda x: x.speaker, signer=lambda x: x.signer
        )
        self.policy_numbers = RowTable(r.PolicyNumber, log, policy=lambda x: x.policy)
        self.tables: dict[str, RowTable[Any]] = {
            row.table: next(t for t in vars(self).values() if isinstance(t, RowTable) and t.row is row)
            for row in r.ROWS
        }
        self.changed: dict[str, int] = dict.fromkeys(self.tables, 0)
        self._before: dict[tuple[str, r.Key], r.Row | None] = {}

    def _record(self, table: str, key: r.Key, old: r.Row | None) -> None:
        self._before.setdefault((table, key), old)
        self.changed[table] += 1

    def changes(self) -> list[Change]:
        """What differs from the last commit."""
        found = [(t, k, old, self.tables[t].get(*k)) for (t, k), old in self._before.items()]
        return [change for change in found if change[2] != change[3]]

    def commit(self) -> None:
        self._before.clear()

    def rollback(self) -> None:
        """Returns to the last commit."""
        for (table, key), old in self._before.items():
            self.apply(table, key, old)
        self._before.clear()

    def apply(self, table: str, key: r.Key, row: r.Row | None) -> None:
        """Sets a row as the store has it, without logging."""
        self.tables[table].restore(key, row)
        self.changed[table] += 1

    def clear(self) -> None:
        for table in self.tables.values():
            for row in table:
                table.restore(row.key, None)
        self.changed = {name: count + 1 for name, count in self.changed.items()}
        self._before.clear()
