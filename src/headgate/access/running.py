"""The running queries as plans, kept in step with the catalog: the request that changes the catalog bears the cost, not
the next reader.

A query that can no longer be planned is left out and named in `faults`: only understood queries run.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.access import rows as r
from headgate.access.permissions import Kind
from headgate.access.queries import stored_query
from headgate.access.state import State
from headgate.errors import HeadgateError
from headgate.plan.lowering import lower
from headgate.plan.nodes import Node
from headgate.plan.queries import Query
from headgate.plan.secure import Mode


@dataclass(frozen=True)
class Planned:
    """A running query, as the catalog has it and as a plan."""

    query: r.Object
    meant: Query
    root: Node
    mode: Mode
    inputs: tuple[int, ...]


class Running:
    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[int, r.Object] = {}
        self._planned: dict[int, Planned] = {}
        self._faults: dict[int, str] = {}
        self._seen = -1

    def query(self, number: int) -> Planned | None:
        """One running query, by its number in the catalog."""
        self.catch_up()
        return self._planned.get(number)

    def faults(self) -> dict[int, str]:
        """The queries that cannot be planned, and why."""
        self.catch_up()
        return dict(self._faults)

    def catch_up(self) -> None:
        version = self._state.changed["objects"]
        if version == self._seen:
            return
        current = {query.id: query for query in self._state.objects.peek("kind", Kind.QUERY.value)}
        for number in [number for number, row in self._known.items() if current.get(number) is not row]:
            self._forget(number)
        for number in [number for number in current if number not in self._known]:
            self._take(current[number])
        self._seen = version

    def _forget(self, number: int) -> None:
        del self._known[number]
        self._faults.pop(number, None)
        self._planned.pop(number, None)

    def _take(self, query: r.Object) -> None:
        self._known[query.id] = query
        try:
            planned = self._planned_as(query)
        except HeadgateError as error:
            self._faults[query.id] = error.message
        except Exception as error:  # whatever it is, it concerns this query alone
            self._faults[query.id] = f"it cannot be planned ({type(error).__name__})"
        else:
            if planned is not None:
                self._planned[query.id] = planned

    def _planned_as(self, query: r.Object) -> Planned | None:
        definition = query.query
        found = stored_query(query, self._state.objects.get) if definition.running else None
        if found is None:  # boxes without a text have nothing to run
            return None
        mode = Mode.CUMULATIVE if definition.cumulative else Mode.EXACT
        return Planned(query, found, lower(found), mode, definition.inputs)
