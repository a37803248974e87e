"""What streams are computed from, and whether a reader may read that: without it a subscription gives no result, and is
suspended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.access import objects
from headgate.access import rows as r
from headgate.access.authorizer import Authorizer, Principal, source_name
from headgate.access.permissions import Permission
from headgate.access.state import State
from headgate.labels import Clearance, Semantics

if TYPE_CHECKING:
    from headgate.access.running import Running  # plans are loaded only if queries run


class DerivedStreams:
    def __init__(self, state: State, authorizer: Authorizer, running: Running) -> None:
        self._state, self._authorizer, self._running = state, authorizer, running
        self._seen, self._outputs = -1, dict[int, r.Object]()

    @property
    def outputs(self) -> Mapping[int, r.Object]:
        """Running queries by their output."""
        if self._seen != self._state.changed["objects"]:
            found = {definition.output: query for query, definition in objects.queries(self._state)}
            self._outputs = {x: query for x, query in found.items() if self._running.query(query.id) is not None}
            self._seen = self._state.changed["objects"]
        return self._outputs

    def read_by(self, inputs: Iterable[int]) -> list[r.Object]:
        """Streams, and all streams they derive from."""
        return objects.derived_from(self._state, inputs)

    def clearance(self, who: Principal, stream: r.Object) -> Clearance:
        """What a reader of a stream can present to labels of what it is computed from. A query created `AS role, ...`
        gives its owner only what these roles may see."""
        query = self.outputs.get(stream.id)
        if query is not None and query.owner == who.user and query.query.narrowed:
            who = replace(who, roles=who.roles & frozenset(query.query.roles))
        return self._authorizer.clearance(who, self.read_by(query.query.inputs if query else (stream.id,)))

    def is_suspended(self, who: Principal | None, stream: r.Object) -> bool:
        """Whether the rights of a subscriber permit no result at all. None: nobody could log in like that."""
        needed = (Permission.SUBSCRIBE, Permission.READ_TUPLE)
        if who is None or not all(self._authorizer.allows(who, permission, stream) for permission in needed):
            return True
        query = self.outputs.get(stream.id)
        level = self._authorizer.level(query.level) if query is not None else who.level
        dominates = self._authorizer.order.dominates(who.level, level)
        return not dominates or not self.reads(stream, self.clearance(who, stream))

    def unread(self, who: Principal, stream: r.Object) -> list[r.Object]:
        """Of the streams that a stream is computed from, those that keep results from this reader; empty if some result
        is possible."""
        clearance = self.clearance(who, stream)
        if self.reads(stream, clearance):
            return []
        read = [x for x in self.read_by(stream.stream.made_of or ()) if x.stream.semantics != Semantics.WEAK]
        may = clearance.sources | clearance.aggregate_sources
        if all(source_name(x) in may for x in read):
            may = clearance.sources
        return [x for x in read if source_name(x) not in may]

    def reads(self, stream: r.Object, clearance: Clearance) -> bool:
        """Whether any result is possible: the subscriber may read all streams of a block, and all that these need."""
        query = self.outputs.get(stream.id)
        return self._readable(stream, clearance) if query is None else self._yields(query, clearance)

    def _yields(self, query: r.Object, clearance: Clearance, *, aggregated: bool = False) -> bool:
        planned = self._running.query(query.id)
        inputs = [self._state.objects.get(number) for number in query.query.inputs]
        streams = {source_name(x): x for x in inputs if x is not None}
        return planned is None or any(
            all(
                self._readable(streams[x], clearance, aggregated=aggregated or block.aggregated)
                for x in block.streams & streams.keys()
            )
            for block in planned.meant.blocks
        )

    def _readable(self, stream: r.Object, clearance: Clearance, *, aggregated: bool = False) -> bool:
        """Whether tuples of a stream may be read, or at least aggregates of them. A WEAK stream may be read for another
        source of a result."""
        may = clearance.sources | (clearance.aggregate_sources if aggregated else frozenset())
        if source_name(stream) not in may and stream.stream.semantics != Semantics.WEAK:
            return False
        query = self.outputs.get(stream.id)
        return query is None or self._yields(query, clearance, aggregated=aggregated)
