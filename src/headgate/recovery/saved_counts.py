"""What operators had counted when the state was saved last: where counts go on when processors are made anew.

What a batch counted before it failed, for whomever, does not count. A restart begins at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.model.query import ContinuousQuery
from headgate.model.view import View
from headgate.operators.profile import Step, continued

Key = tuple[str, str]
"""A subscriber and a query."""


@dataclass(frozen=True)
class SavedCounts:
    """before: what earlier processors counted
    counted: what the processors of that moment counted, by stage
    views: the views of that moment
    running: the queries of that moment
    """

    before: Mapping[Key, Mapping[str, Step]] = field(default_factory=dict)
    counted: Sequence[Callable[[View], dict[str, Step]]] = ()
    views: Mapping[Key, View] = field(default_factory=dict)
    running: Mapping[str, ContinuousQuery] = field(default_factory=dict)

    def for_queries(self, queries: Mapping[str, ContinuousQuery]) -> dict[Key, dict[str, Step]]:
        """The counts that go on with these queries, without those whose meaning differs now."""
        found = dict[Key, dict[str, Step]]()
        for key, view in self.views.items():
            known, query = self.running[key[1]], queries.get(key[1])
            if query is not None and query.meaning == known.meaning:
                found[key] = continued(self.before.get(key, {}), self.counted[known.stage](view))
        return found
