"""From the catalog to the engine: which queries run, for whom, with which rights at this moment.

A subscriber of a running query's output reads that query with its own rights; a subscriber of any other stream reads
its tuples as they are. A subscriber who lost SUBSCRIBE or READ TUPLE on a stream receives nothing of it until it has
them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from headgate.access import objects
from headgate.access import rows as r
from headgate.access.authorizer import Authorizer, Principal, shown, shown_source, source_name
from headgate.access.definitions import SourceDefinition, StreamDefinition
from headgate.access.derived import DerivedStreams
from headgate.access.permissions import Kind, Permission
from headgate.access.queries import check_depth, whole_stream
from headgate.access.running import Running as RunningQueries
from headgate.access.state import State
from headgate.access.subscriptions import Subscriptions, subscriber_name
from headgate.errors import Conflict
from headgate.labels import Clearance, Level, parse_label
from headgate.model.query import ContinuousQuery, name_at
from headgate.model.results import Recipient
from headgate.model.snapshot import CatalogSnapshot, Subscriber, SubscriptionStatus
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.secure import Mode

_DECIDES = (
    "users",
    "roles",
    "memberships",
    "inheritances",
    "separations",
    "levels",
    "grants",
    "objects",
    "subscriptions",
)
# The tables on which a snapshot depends.

STOPPED = "its query was stopped; it begins anew when that is started"
BROKEN = "its query lost a stream that it read"
UNPLANNED = "its query cannot be run any more"
SUSPENDED = "your rights do not cover it now; it continues when they do"
UNFED = "a query whose results it reads does not run; it continues when that query does"

USUAL_SKEW = 10_000
"""How far ahead of the clock event times may be, in milliseconds, if the stream's owner has not set it: one tuple from
the far future would make all later tuples late for those who see it."""


@dataclass(frozen=True)
class _Plan:
    """What runs for the subscribers of one stream: queries by name, the streams they read, and the inputs of those
    streams as defined."""

    queries: Mapping[str, ContinuousQuery]
    descriptors: Mapping[str, StreamDescriptor]
    inputs: Mapping[str, SourceDefinition]


class SnapshotBuilder:
    def __init__(
        self, state: State, authorizer: Authorizer, running: RunningQueries, subscriptions: Subscriptions
    ) -> None:
        self._state = state
        self._authorizer = authorizer
        self._running = running
        self._subscriptions = subscriptions
        self._seen: tuple[int, ...] = ()
        self._snapshot = CatalogSnapshot()
        # Results are delivered under the snapshot they were computed for, or a later one: their recipients are known as
        # long as anything holds that snapshot, and no longer.
        self._outgoing: WeakValueDictionary[tuple[str, str], Recipient] = WeakValueDictionary()
        self._inputs: dict[str, SourceDefinition] = {}
        self._owners: dict[str, str] = {}
        self._stream_levels: dict[str, Level] = {}
        self._derived = DerivedStreams(state, authorizer, running)

    def now(self) -> CatalogSnapshot:
        """The snapshot; the same object as before unless something has changed."""
        policies = self._authorizer.policies
        seen = (*(self._state.changed[table] for table in _DECIDES), policies.version if policies is not None else 0)
        if seen != self._seen:
            self._snapshot = self._found()
            self._seen = seen
        return self._snapshot

    def outgoing(self, subscriber: str, query: str) -> Recipient:
        return self._outgoing[subscriber, query]

    def owner(self, stream: str) -> str:
        """The current owner of a stream that is or was read or subscribed to, by its name as a source; a name as a
        source keeps the name of the stream's creator."""
        return self._owners[stream]

    def stream_levels(self) -> dict[str, Level]:
        """The levels of all streams, by their names as sources."""
        return self._stream_levels

    def inputs(self) -> Mapping[str, SourceDefinition]:
        """The inputs of the streams that are read, as defined."""
        return self._inputs

    def _found(self) -> CatalogSnapshot:
        """Builds a snapshot. Any fault of one subscription affects that subscription alone."""
        plans: dict[str, _Plan | Exception] = {}
        subscribers: list[Subscriber] = []
        standings: list[SubscriptionStatus] = []
        unfit: dict[tuple[str, str], str] = {}
        producers = self._producers()
        outputs = self._derived.outputs
        streams = self._state.objects.peek("kind", Kind.STREAM.value)
        known = {source_name(x): x for x in streams if isinstance(x.definition, StreamDefinition)}
        self._stream_levels = {name: self._authorizer.level(x.level) for name, x in known.items()}
        for subscription in sorted(self._state.subscriptions, key=lambda x: x.key):
            stream = self._state.objects.get(subscription.stream)
            if stream is None or not isinstance(stream.definition, StreamDefinition):
                continue
            producer = producers.get(stream.id)
            standing = self._standing(subscription, stream, producer)
            name, who = standing.query, self._who(subscription, stream, producer)
            if (producer is not None or stream.stream.made_of is not None) and stream.id not in outputs:
                word = replace(standing, word="ended", why=self._why(producer)) if who else _suspended(standing)
                standings.append(word)
                continue
            if name not in plans:
                plans[name] = self._planned(name, producer, stream, subscription, known)
            clearance: Clearance | None = None
            outgoing = standing.outgoing
            try:
                if isinstance(plan := plans[name], Exception):
                    raise plan
                clearance = self._clearance(who, stream, plan.queries[name]) if who else None
                outgoing = self._named(standing, who, producer) if who else outgoing
                standing = self._stands(standing, stream, producer, clearance)
            except Exception as error:
                unfit[standing.name, name] = _unfit(error)
            subscribers.append(Subscriber(standing.name, name, clearance, outgoing, subscription.level))
            standings.append(standing)
        sound = [plan for plan in plans.values() if isinstance(plan, _Plan)]
        queries = {name: query for plan in sound for name, query in plan.queries.items()}
        descriptors = {name: descriptor for plan in sound for name, descriptor in plan.descriptors.items()}
        self._inputs = {name: found for plan in sound for name, found in plan.inputs.items()}
        self._owners |= {name: known[name].owner for name in descriptors}
        return CatalogSnapshot(
            self._authorizer.rules([known[name] for name in sorted(descriptors)]),
            descriptors,
            tuple(queries[name] for name in sorted(queries)),
            tuple(subscribers),
            unfit,
            tuple(standings),
            frozenset(stream.id for stream in streams),
            frozenset(role.name for role in self._state.roles),
        )

    def _planned(
        self,
        name: str,
        query: r.Object | None,
        stream: r.Object,
        subscription: r.Subscription,
        known: Mapping[str, r.Object],
    ) -> _Plan | Exception:
        """Everything needed to run what a user subscribed to, or the reason why it cannot run."""
        try:
            first = self._whole_stream(stream, subscription) if query is None else self._running_query(query)
            if query is not None and query.query.cumulative:
                first = first.at(subscription.level)
            queries = {name: first}
            self._add_producers(queries)
            read = sorted({x for running in queries.values() for x in running.streams} & known.keys())
            self._authorizer.rules([known[x] for x in read])
            inputs = {x: found for x in read if (found := known[x].stream.input) is not None}
            return _Plan(queries, {x: descriptor_of(known[x]) for x in read}, inputs)
        except Exception as error:
            return error

    def _standing(
        self, subscription: r.Subscription, stream: r.Object, producer: r.Object | None
    ) -> SubscriptionStatus:
        """The status of a subscription that delivers results. The owner of the stream is notified only at the level of
        the stream."""
        name = subscriber_name(subscription)
        query = str(producer.id if producer else stream.id)
        if producer is None or producer.query.cumulative:
            query = name_at(query, subscription.level)
        columns = tuple(column.name for column in stream.stream.columns)
        roles = frozenset(subscription.roles) & self._authorizer.authorised(subscription.user)
        outgoing = Recipient(subscription.user, subscription.level, shown_source(stream), columns, roles)
        self._outgoing[name, query] = outgoing
        self._owners[outgoing.stream] = stream.owner
        owner = stream.owner if stream.level == subscription.level and stream.owner != subscription.user else ""
        revision = producer.query.revision if producer else len(columns)
        return SubscriptionStatus(name, query, stream.id, outgoing, owner, revision=revision)

    def _named(self, standing: SubscriptionStatus, who: Principal, producer: r.Object | None) -> Recipient:
        """The same recipient, with the sources that its labels may name."""
        inputs = producer.query.inputs if producer else ()
        read = self._derived.read_by([standing.stream, *inputs])
        seen = (x for x in read if self._authorizer.allows(who, Permission.VIEW_OBJECT, x))
        outgoing = replace(standing.outgoing, named=frozenset(map(source_name, seen)))
        self._outgoing[standing.name, standing.query] = outgoing
        return outgoing

    def _stands(
        self, standing: SubscriptionStatus, stream: r.Object, producer: r.Object | None, clearance: Clearance | None
    ) -> SubscriptionStatus:
        """The status of a subscription whose query runs."""
        if clearance is None or not self._derived.reads(stream, clearance):
            return _suspended(standing)
        if producer is not None and self._unfed(producer, clearance):
            return replace(standing, word="waits", why=UNFED)
        return standing

    def _producers(self) -> dict[int, r.Object]:
        """All queries by their output, running or not."""
        return {definition.output: query for query, definition in objects.queries(self._state)}

    def _why(self, query: r.Object | None) -> str:
        """Why a query does not run; None: its definition is damaged."""
        if query is None:
            return UNPLANNED
        if query.query.broken:
            return BROKEN
        return UNPLANNED if query.query.running else STOPPED

    def _unfed(self, query: r.Object, clearance: Clearance) -> bool:
        """Whether a query reads, directly or not, results of a query that does not run. A subscriber who may not read
        those is not told: it receives the same as if that query ran."""
        readable = clearance.sources | clearance.aggregate_sources
        return any(
            x.stream.made_of is not None and x.id not in self._derived.outputs and source_name(x) in readable
            for x in self._derived.read_by(query.query.inputs)
        )

    def _who(self, subscription: r.Subscription, stream: r.Object, query: r.Object | None) -> Principal | None:
        """The principal whose rights count, if they suffice to receive anything."""
        found = self._subscriptions.principal(subscription)
        needed = (Permission.SUBSCRIBE, Permission.READ_TUPLE) if query else (Permission.SUBSCRIBE,)
        if found and all(self._authorizer.allows(found, permission, stream) for permission in needed):
            return found
        return None

    def _add_producers(self, queries: dict[str, ContinuousQuery]) -> None:
        """Adds the producer queries whose results the others read."""
        made = {
            source_name(x): query
            for number, query in self._derived.outputs.items()
            if (x := self._state.objects.get(number))
        }
        waiting = list(queries.values())
        while waiting:
            for stream in waiting.pop().streams:
                query = made.get(stream)
                if query is not None and str(query.id) not in queries:
                    found = self._running_query(query)
                    queries[found.name] = found
                    waiting.append(found)

    def _running_query(self, query: r.Object) -> ContinuousQuery:
        planned = self._running.query(query.id)
        if planned is None:
            raise Conflict(f"{shown(query)} does not run")
        output = self._state.objects.get(query.query.output)
        stage = check_depth(planned.inputs, self._state.objects.get)
        limits = self._authorizer.limits(query.owner)
        return ContinuousQuery(
            str(query.id),
            planned.meant,
            self._authorizer.level(query.level),
            self._lateness(planned.inputs),
            planned.mode if self._alike(planned.inputs) else Mode.EXACT,
            source_name(output) if output else "",
            stage,
            most_state=limits.state,
            most_results=limits.results,
            deadline=query.query.deadline,
        )

    def _alike(self, inputs: Iterable[int]) -> bool:
        """Whether all who may see the inputs see the same: results of exact windows differ from reader to reader, and
        nothing cumulative can be computed from them."""
        outputs = self._derived.outputs
        producers = [outputs[x.id] for x in self._derived.read_by(inputs) if x.id in outputs]
        planned = [self._running.query(query.id) for query in producers]
        return all(
            x is None or x.mode == Mode.CUMULATIVE or all(block.stateless for block in x.meant.blocks) for x in planned
        )

    def _whole_stream(self, stream: r.Object, subscription: r.Subscription) -> ContinuousQuery:
        """A query of the stream's tuples as they are, at the level of the subscription."""
        level, lateness = self._authorizer.level(subscription.level), self._lateness((stream.id,))
        name = name_at(str(stream.id), subscription.level)
        return ContinuousQuery(name, whole_stream(stream), level, lateness, Mode.EXACT)

    def _lateness(self, inputs: tuple[int, ...]) -> dict[str, int]:
        """Of outputs none: their watermarks are those of the views that make them."""
        found = (self._state.objects.get(number) for number in inputs)
        return {source_name(x): x.stream.lateness for x in found if x is not None and x.stream.made_of is None}

    def _clearance(self, who: Principal, stream: r.Object, running: ContinuousQuery) -> Clearance | None:
        clearance = self._derived.clearance(who, stream)
        return clearance if self._authorizer.order.dominates(who.level, running.level) else None


def _unfit(fault: Exception) -> str:
    """The type of the fault, not its text, which may name what its readers may not see."""
    return f"it cannot be run ({type(fault).__name__})"


def _suspended(standing: SubscriptionStatus) -> SubscriptionStatus:
    return replace(standing, word="suspended", why=SUSPENDED)


def descriptor_of(stream: r.Object) -> StreamDescriptor:
    definition = stream.stream
    skew = USUAL_SKEW if definition.skew is None else definition.skew
    return StreamDescriptor(
        definition.source,
        tuple((column.name, Type(column.type)) for column in definition.columns),
        definition.event_time or None,
        dict(definition.labels),
        parse_label(definition.label),
        skew if definition.event_time else None,
        definition.table,
        definition.delay,
        definition.overload,
    )
