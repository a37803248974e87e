"""From the catalog to the engine: which queries run, for whom, with which rights of this moment.

A session that subscribes to the output of a running query looks at that query with its own rights; one that subscribes
to a stream that is no query's looks at its tuples as they are. Whoever lost SUBSCRIBE or READ TUPLE on what it
subscribed to receives nothing more of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from headgate.access import rows as r
from headgate.access.authorizer import Authorizer, Principal, is_table, source_name
from headgate.access.permissions import Kind, Permission
from headgate.access.queries import as_stream
from headgate.access.running import Running as RunningQueries
from headgate.access.sessions import Sessions
from headgate.access.state import State
from headgate.cql.queries import parse_query
from headgate.engine.demand import Demand, Outgoing, Subscriber
from headgate.engine.ingress import Entrance
from headgate.engine.sights import Running
from headgate.labels import Clearance, parse_label
from headgate.plan.expressions import Type
from headgate.plan.queries import bind_query
from headgate.plan.secure import Mode

_DECIDES = ("users", "roles", "memberships", "inheritances", "levels", "grants", "objects", "subscriptions")
# The tables on which what is wanted depends; sessions, whose times of use change all the time, are looked at apart.

USUAL_SKEW = 3_600_000
"""How far ahead of the clock event times may be, in milliseconds, if the stream's owner has said nothing: one tuple
from the far future would make all that follow late for those who see it."""


class Demands:
    def __init__(self, state: State, authorizer: Authorizer, running: RunningQueries, sessions: Sessions) -> None:
        self._state = state
        self._authorizer = authorizer
        self._running = running
        self._sessions = sessions
        self._seen: tuple[object, ...] = ()
        self._demand = Demand()
        # results go out under the demand they were computed for, or a later one: as long as anybody has that, and no
        # longer, it is known whose they are
        self._outgoing: WeakValueDictionary[tuple[str, str], Outgoing] = WeakValueDictionary()
        self._inputs: dict[str, Mapping[str, Any]] = {}
        self._owners: dict[str, str] = {}

    def now(self) -> Demand:
        """The same object as before unless something has changed."""
        alive = tuple(session for session in self._state.sessions if self._sessions.is_alive(session))
        lasting = tuple((x.token_hash, x.roles) for x in alive)
        seen = (*(self._state.changed[table] for table in _DECIDES), lasting)
        if seen != self._seen:
            self._demand = self._found({x.token_hash: x for x in alive})
            self._seen = seen
        return self._demand

    def outgoing(self, subscriber: str, query: str) -> Outgoing:
        return self._outgoing[subscriber, query]

    def owner(self, stream: str) -> str:
        """Whose a stream that is or was read or subscribed to is now, by its name as a source; names as sources keep
        who made them."""
        return self._owners[stream]

    def inputs(self) -> Mapping[str, Mapping[str, Any]]:
        """Where the streams that are read come from, as their definitions have it."""
        return self._inputs

    def _found(self, sessions: Mapping[str, r.Session]) -> Demand:
        queries: dict[str, Running] = {}
        subscribers: list[Subscriber] = []
        outputs = self._outputs()
        for subscription in sorted(self._state.subscriptions, key=lambda x: (x.session, x.stream)):
            stream, session = self._state.objects.get(subscription.stream), sessions.get(subscription.session)
            if stream is None or session is None:
                continue
            query = outputs.get(stream.id)
            if query is None and "made_of" in json.loads(stream.definition):
                continue  # the output of a query that does not run
            running = self._running_query(query) if query else self._whole_stream(stream, session)
            if running is None:
                continue
            queries[running.name] = running
            clearance = self._clearance(session, stream, query, running)
            names = tuple(name for name, _ in running.query.columns)
            self._owners[source_name(stream)] = stream.owner
            outgoing = Outgoing(session.user, session.id, source_name(stream), names)
            self._outgoing[session.id, running.name] = outgoing
            subscribers.append(Subscriber(session.id, running.name, clearance, outgoing))
        self._add_makers(queries, outputs)
        streams = self._state.objects.peek("kind", Kind.STREAM.value)
        read = {name for query in queries.values() for name in query.streams}
        used = [stream for stream in streams if source_name(stream) in read]
        self._inputs = {
            source_name(x): found for x in used if (found := json.loads(x.definition).get("input")) is not None
        }
        self._owners |= {source_name(x): x.owner for x in used}
        return Demand(
            self._authorizer.rules(used),
            {x.name: x for x in map(_entrance, used)},
            tuple(queries[name] for name in sorted(queries)),
            tuple(subscribers),
        )

    def _add_makers(self, queries: dict[str, Running], outputs: Mapping[int, r.Object]) -> None:
        """Queries whose results the others read run as well."""
        made = {source_name(x): query for number, query in outputs.items() if (x := self._state.objects.get(number))}
        waiting = list(queries.values())
        while waiting:
            for stream in waiting.pop().streams:
                query = made.get(stream)
                found = self._running_query(query) if query and str(query.id) not in queries else None
                if found is not None:
                    queries[found.name] = found
                    waiting.append(found)

    def _outputs(self) -> dict[int, r.Object]:
        """Running queries by their output."""
        found = self._state.objects.peek("kind", Kind.QUERY.value)
        planned = (query for query in found if self._running.query(query.id) is not None)
        return {int(json.loads(query.definition)["output"]): query for query in planned}

    def _running_query(self, query: r.Object) -> Running | None:
        planned = self._running.query(query.id)
        if planned is None:
            return None
        output = self._state.objects.get(int(json.loads(query.definition)["output"]))
        stage = max((self._stage(number) for number in planned.inputs), default=0)
        limits = self._authorizer.limits(query.owner)
        return Running(
            str(query.id),
            planned.meant,
            self._authorizer.level(query.level),
            self._lateness(planned.inputs),
            planned.mode if self._alike(planned.inputs) else Mode.EXACT,
            source_name(output) if output else "",
            stage,
            most_state=limits.state,
            most_results=limits.results,
        )

    def _alike(self, inputs: Iterable[int]) -> bool:
        """Whether what is read is the same for all who may see it: results of exact windows differ from reader to
        reader, and nothing cumulative can be made of them."""
        outputs = self._outputs()
        makers = [outputs[x.id] for x in self._read_by(inputs) if x.id in outputs]
        planned = [self._running.query(query.id) for query in makers]
        return all(
            x is None or x.mode == Mode.CUMULATIVE or all(block.stateless for block in x.meant.blocks) for x in planned
        )

    def _stage(self, stream: int) -> int:
        """How many queries stand at most between a stream and its sources."""
        found = self._state.objects.get(stream)
        definition = json.loads(found.definition) if found else {}
        if "made_of" not in definition:
            return 0
        return 1 + max(map(self._stage, definition["made_of"]), default=0)

    def _read_by(self, inputs: Iterable[int]) -> list[r.Object]:
        """Streams, and all that they are made of."""
        found: dict[int, r.Object] = {}
        waiting = list(inputs)
        while waiting:
            stream = self._state.objects.get(waiting.pop())
            if stream is not None and stream.id not in found:
                found[stream.id] = stream
                waiting += json.loads(stream.definition).get("made_of", ())
        return list(found.values())

    def _whole_stream(self, stream: r.Object, session: r.Session) -> Running:
        """Its tuples as they come, at the level of whoever subscribed to it."""
        seen, level = as_stream(stream), self._authorizer.level(session.level)
        query = bind_query(parse_query("SELECT * FROM s"), lambda _: seen)
        return Running(f"{stream.id}@{session.level}", query, level, self._lateness((stream.id,)), Mode.EXACT)

    def _lateness(self, inputs: tuple[int, ...]) -> dict[str, int]:
        found = (self._state.objects.get(number) for number in inputs)
        return {source_name(x): int(json.loads(x.definition).get("lateness", 0)) for x in found if x is not None}

    def _clearance(
        self, session: r.Session, stream: r.Object, query: r.Object | None, running: Running
    ) -> Clearance | None:
        principal = self._authorizer.principal(session)
        needed = (Permission.SUBSCRIBE, Permission.READ_TUPLE) if query else (Permission.SUBSCRIBE,)
        if not all(self._authorizer.allows(principal, permission, stream) for permission in needed):
            return None
        if query is not None and query.owner == session.user:
            principal = self._narrowed(principal, query)
        inputs = json.loads(query.definition)["inputs"] if query else [stream.id]
        clearance = self._authorizer.clearance(principal, self._read_by(inputs))
        return clearance if self._authorizer.order.dominates(principal.level, running.level) else None

    def _narrowed(self, principal: Principal, query: r.Object) -> Principal:
        """Its own query, made `AS role, ...`, gives its owner what these roles may see."""
        definition = json.loads(query.definition)
        if not definition.get("narrowed"):
            return principal
        return replace(principal, roles=principal.roles & frozenset(definition["roles"]))


def _entrance(stream: r.Object) -> Entrance:
    definition = json.loads(stream.definition)
    return Entrance(
        source_name(stream),
        tuple((column["name"], Type(column["type"])) for column in definition["columns"]),
        definition.get("event_time"),
        definition.get("labels") or {},
        parse_label(definition["label"]),
        int(definition.get("skew", USUAL_SKEW)) if "event_time" in definition else None,
        is_table(stream),
    )
