"""From the catalog to the engine: which queries run, for whom, with which rights of this moment.

A session that subscribes to the output of a running query looks at that query with its own rights; one that subscribes
to a stream that is no query's looks at its tuples as they are. Whoever lost SUBSCRIBE or READ TUPLE on what it
subscribed to receives nothing more of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from headgate.access import rows as r
from headgate.access.authorizer import Authorizer, Principal, is_table, shown, source_name
from headgate.access.permissions import Kind, Permission
from headgate.access.queries import check_depth, whole_stream
from headgate.access.running import Running as RunningQueries
from headgate.access.sessions import Sessions
from headgate.access.state import State
from headgate.engine.demand import Demand, Outgoing, Subscriber
from headgate.engine.ingress import Entrance
from headgate.engine.sights import Running
from headgate.errors import Conflict
from headgate.labels import Clearance, parse_label
from headgate.plan.expressions import Type
from headgate.plan.secure import Mode

_DECIDES = ("users", "roles", "memberships", "inheritances", "levels", "grants", "objects", "subscriptions")
# The tables on which what is wanted depends; sessions, whose times of use change all the time, are looked at apart.

USUAL_SKEW = 10_000
"""How far ahead of the clock event times may be, in milliseconds, if the stream's owner has said nothing: one tuple
from the far future would make all that follow late for those who see it."""


@dataclass(frozen=True)
class _Plan:
    """What runs for those who subscribed to one stream: queries by name, the streams that they read, and where those
    come from, as their definitions have it."""

    queries: Mapping[str, Running]
    entrances: Mapping[str, Entrance]
    inputs: Mapping[str, Mapping[str, Any]]


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
        """What is wrong with one subscription, whatever it is, is a matter of that alone."""
        plans: dict[str, _Plan | Exception] = {}
        subscribers: list[Subscriber] = []
        unfit: dict[tuple[str, str], str] = {}
        outputs = self._outputs()
        known = {source_name(x): x for x in self._state.objects.peek("kind", Kind.STREAM.value)}
        for subscription in sorted(self._state.subscriptions, key=lambda x: (x.session, x.stream)):
            stream, session = self._state.objects.get(subscription.stream), sessions.get(subscription.session)
            if stream is None or session is None:
                continue
            query = outputs.get(stream.id)
            if query is None and "made_of" in json.loads(stream.definition):
                continue  # the output of a query that does not run
            name = str(query.id) if query else f"{stream.id}@{session.level}"
            if name not in plans:
                plans[name] = self._planned(name, query, stream, session, outputs, known)
            clearance: Clearance | None = None
            columns: tuple[str, ...] = ()
            try:
                if isinstance(plan := plans[name], Exception):
                    raise plan
                clearance = self._clearance(session, stream, query, plan.queries[name])
                columns = tuple(column for column, _ in plan.queries[name].query.columns)
            except Exception as error:
                unfit[session.id, name] = _unfit(error)
            self._owners[source_name(stream)] = stream.owner
            outgoing = Outgoing(session.user, session.id, source_name(stream), columns)
            self._outgoing[session.id, name] = outgoing
            subscribers.append(Subscriber(session.id, name, clearance, outgoing))
        sound = [plan for plan in plans.values() if isinstance(plan, _Plan)]
        queries = {name: query for plan in sound for name, query in plan.queries.items()}
        entrances = {name: entrance for plan in sound for name, entrance in plan.entrances.items()}
        self._inputs = {name: found for plan in sound for name, found in plan.inputs.items()}
        self._owners |= {name: known[name].owner for name in entrances}
        return Demand(
            self._authorizer.rules([known[name] for name in sorted(entrances)]),
            entrances,
            tuple(queries[name] for name in sorted(queries)),
            tuple(subscribers),
            unfit,
        )

    def _planned(
        self,
        name: str,
        query: r.Object | None,
        stream: r.Object,
        session: r.Session,
        outputs: Mapping[int, r.Object],
        known: Mapping[str, r.Object],
    ) -> _Plan | Exception:
        """All that is needed to run what somebody subscribed to, or why it cannot be."""
        try:
            first = self._running_query(query) if query else self._whole_stream(stream, session)
            queries = {name: first}
            self._add_makers(queries, outputs)
            read = sorted({x for running in queries.values() for x in running.streams} & known.keys())
            self._authorizer.rules([known[x] for x in read])
            inputs = {x: found for x in read if (found := json.loads(known[x].definition).get("input")) is not None}
            for found in inputs.values():
                _ = found["format"], found["options"]
            return _Plan(queries, {x: _entrance(known[x]) for x in read}, inputs)
        except Exception as error:
            return error

    def _add_makers(self, queries: dict[str, Running], outputs: Mapping[int, r.Object]) -> None:
        """Queries whose results the others read run as well."""
        made = {source_name(x): query for number, query in outputs.items() if (x := self._state.objects.get(number))}
        waiting = list(queries.values())
        while waiting:
            for stream in waiting.pop().streams:
                query = made.get(stream)
                if query is not None and str(query.id) not in queries:
                    found = self._running_query(query)
                    queries[found.name] = found
                    waiting.append(found)

    def _outputs(self) -> dict[int, r.Object]:
        """Running queries by their output."""
        found = self._state.objects.peek("kind", Kind.QUERY.value)
        planned = (query for query in found if self._running.query(query.id) is not None)
        return {int(json.loads(query.definition)["output"]): query for query in planned}

    def _running_query(self, query: r.Object) -> Running:
        planned = self._running.query(query.id)
        if planned is None:
            raise Conflict(f"{shown(query)} does not run")
        output = self._state.objects.get(int(json.loads(query.definition)["output"]))
        stage = check_depth(planned.inputs, self._state.objects.get)
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
        level, lateness = self._authorizer.level(session.level), self._lateness((stream.id,))
        return Running(f"{stream.id}@{session.level}", whole_stream(stream), level, lateness, Mode.EXACT)

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


def _unfit(fault: Exception) -> str:
    """The kind of the fault, and not its text, which may name what its readers may not see."""
    return f"it cannot be run ({type(fault).__name__})"


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
