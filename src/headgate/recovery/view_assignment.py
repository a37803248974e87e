"""View assignment: which view serves each subscriber of each query.

Subscribers who come together with the same rights share a view. When the rights of some of them change, these move to a
view of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.execution.stages import consumer_of
from headgate.labels import Clearance
from headgate.model.times import NO_TIME
from headgate.model.view import View
from headgate.plan.analysis import ViewCounts
from headgate.plan.secure import Mode
from headgate.recovery.operator_counts import OperatorCounts
from headgate.recovery.stage_processors import StageProcessors

Key = tuple[str, str]
"""A subscriber and a query."""


class ViewAssignment:
    def __init__(self, processors: StageProcessors, counts: OperatorCounts) -> None:
        self._processors = processors
        self._counts = counts
        self.views: dict[Key, View] = {
            (name, view.running.name): view for view in processors.views for name in view.clearances
        }

    def update(self) -> None:
        """Follows the subscribers of the stages."""
        current = {(x.name, x.query): x.clearance for x in self._processors.stages.subscribers}
        for key in [key for key in self.views if key not in current]:
            self._processors.of(key[1]).leave(self.views.pop(key), key[0])
        coming: dict[tuple[str, Clearance | None], list[str]] = {}
        changed: dict[tuple[int, Clearance | None], list[Key]] = {}
        for (name, query), clearance in current.items():
            known = self.views.get((name, query))
            if known is None:
                coming.setdefault((query, clearance), []).append(name)
            elif known.clearances.get(name) != clearance:
                changed.setdefault((id(known), clearance), []).append((name, query))
        for (query, clearance), names in coming.items():
            self._subscribe(query, dict.fromkeys(names, clearance))
        for (_, clearance), keys in changed.items():
            self._change(keys, clearance)

    def _subscribe(self, query: str, clearances: Mapping[str, Clearance | None]) -> None:
        """Subscribers who come together with the same rights share one view. All subscribers of a cumulative query
        do, and of a query that remembers nothing those with the same rights, whenever they come."""
        processor = self._processors.of(query)
        running = (x for x in processor.views if x.running.name == query and not x.ended)
        if self._processors.stages.running[query].mode == Mode.CUMULATIVE:
            view = next(running, None)
            if view is not None:
                processor.change(view, clearances)
        else:
            view = next((x for x in running if self._remembers_nothing(x) and _is_alike(x, clearances)), None)
            if view is not None:  # they are not told what it counted before
                self._counts.start_at([(name, query) for name in clearances], processor.profile(view))
                view.clearances |= clearances
        if view is None:
            view = processor.subscribe(query, clearances)
        self.views |= {(name, query): view for name in clearances}

    def _remembers_nothing(self, view: View) -> bool:
        """Whether what a view gives depends only on the tuples that come: no windows; no results of other queries, of
        which each subscriber has a view of its own; no other query that follows its time; no count of results for a
        limit."""
        own = all(consumer_of(name) is None for name in view.clearances)
        reads = view.running.stage > 0 or not view.running.streams.isdisjoint(self._processors.stages.producers)
        return own and not reads and not view.windowed and view.second == NO_TIME

    def _change(self, keys: Sequence[Key], clearance: Clearance | None) -> None:
        """Changes the rights of some subscribers of one view; if they are not all of its subscribers, they move to a
        view of their own."""
        names, view = [name for name, _ in keys], self.views[keys[0]]
        processor = self._processors.of(view.running.name)
        if view.running.mode == Mode.EXACT and len(names) < len(view.clearances):
            view = processor.split_view(view, names)
            self.views |= dict.fromkeys(keys, view)
        processor.change(view, dict.fromkeys(names, clearance))

    def profile(self, query: str, subscriber: str | None = None) -> list[ViewCounts]:
        """What was done for the views of a query: all, or the one that serves this subscriber."""
        views: dict[int, list[Key]] = {}
        for key, view in self.views.items():
            if query in (key[1], self._processors.stages.running[key[1]].base) and subscriber in (None, key[0]):
                views.setdefault(id(view), []).append(key)
        if not views:
            return []
        counted = self._processors.of(next(iter(views.values()))[0][1]).counted()
        return [self._counts.view_counts(keys, counted(self.views[keys[0]])) for keys in views.values()]


def _is_alike(view: View, clearances: Mapping[str, Clearance | None]) -> bool:
    """Whether subscribers have the rights of a view."""
    own = all(consumer_of(name) is None for name in clearances)
    return own and {*view.clearances.values()} == {*clearances.values()}
