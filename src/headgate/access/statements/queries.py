"""Queries: CREATE (as boxes or in CQL), START, STOP, SUBSCRIBE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headgate.access import objects
from headgate.access import rows as r
from headgate.access.authorizer import Principal, is_table, shown
from headgate.access.definitions import ColumnDefinition, Parameters, QueryDefinition, StreamDefinition
from headgate.access.derived import DerivedStreams
from headgate.access.permissions import Kind, Permission
from headgate.access.queries import as_stream, check_depth, stored_query, whole_stream
from headgate.access.query_rights import check_rights, check_running, consented
from headgate.access.query_warnings import query_warnings
from headgate.access.request import Handler, Request, Result
from headgate.cql import continuous as c
from headgate.cql.deadlines import FULL, MOST_VERSIONS, SHORTEST, Deadline, time_text
from headgate.cql.names import Limit, Name, Target
from headgate.cql.queries import QuerySyntax
from headgate.cql.statements import Statement
from headgate.errors import AccessDenied, Conflict, HeadgateError, StoreError
from headgate.lexing import quote
from headgate.plan.lowering import lower
from headgate.plan.qos import version_of
from headgate.plan.queries import Query, Stream, bind_query
from headgate.plan.uses import uses

_NO_OUTPUT = -1
"""The output of a query that has none yet: `_add` creates it."""


def _create_query(q: Request, x: c.CreateQuery) -> Result:
    """Checked recursively: the right to add, every input, every operator with its parameters (paper 000, 3.1, 5.4)."""
    q.need_system(Permission.ADD)
    inputs = [_readable(q, q.principal, target) for target in x.inputs]
    for use in x.operators:
        position = use.name.position
        q.need(Permission.USE, q.find(Target("OPERATOR", use.name.text, None, position)), use.parameters)
    definition = QueryDefinition(
        tuple(thing.id for thing in inputs),
        _NO_OUTPUT,
        tuple((use.name.text, _sorted(use.parameters)) for use in x.operators),
        tuple(sorted(q.principal.roles)),
    )
    return _add(q, x.name.text, x.output.text, StreamDefinition(()), definition)


def _create_query_as(q: Request, x: c.CreateQueryAs) -> Result:
    q.need_system(Permission.ADD)
    known = _own(q, x.name) if x.replaces else None
    bound = bind_for(q, x.query)
    if known is not None:
        _check_not_own(q, known, bound)
    lower(bound.query)  # refuses what cannot be planned now, not when it is to run
    check_depth([thing.id for thing in bound.inputs], q.state.objects.get)
    _check_no_deadline(q, bound.inputs)
    if x.deadline is not None:
        _check_deadline(q, x, x.deadline, known, bound)
    if x.cumulative:
        for thing in bound.inputs:
            if not consented(q, thing):
                raise AccessDenied(
                    f"the owner of {shown(thing)} has not allowed cumulative queries", hint="use EXACT, the default"
                )
    columns = tuple(ColumnDefinition(name, type_.value) for name, type_ in bound.query.columns)
    definition = QueryDefinition(
        tuple(dict.fromkeys(thing.id for thing in bound.inputs)),
        _NO_OUTPUT,
        tuple(bound.operators),
        tuple(sorted(bound.reader.roles)),
        cumulative=x.cumulative,
        narrowed=bool(x.query.roles),
        text=x.text,
        sources=tuple(thing.id for thing in bound.inputs),
        deadline=x.deadline,
    )
    if known is not None:
        result = _replace(q, known, x.output, columns, definition)
    else:
        result = _add(q, x.name.text, (x.output or x.name).text, StreamDefinition(columns), definition)
    return replace(result, text="; ".join([result.text, *query_warnings(q.authorizer, x.query, bound.query)]))


def _own(q: Request, name: Name) -> r.Object | None:
    """The caller's own query of this name, at its level."""
    key = (q.user, Kind.QUERY.value, name.text, str(q.principal.level))
    return next(iter(q.state.objects.peek("owned_name", key)), None)


def _check_no_deadline(q: Request, inputs: list[r.Object]) -> None:
    """What a query with a deadline left out is told to its readers; a query over it could tell nobody."""
    due = {definition.output for _, definition in objects.queries(q.state) if definition.deadline is not None}
    for thing in inputs:
        if thing.id in due:
            raise Conflict(
                f"cannot read {shown(thing)}: it has a deadline, so results may be left out",
                hint="read what it is computed from",
            )


def _check_deadline(
    q: Request, x: c.CreateQueryAs, deadline: Deadline, known: r.Object | None, bound: BoundFor
) -> None:
    """Refuses what could not say what it left out, and versions that the query cannot have."""
    if x.cumulative:
        raise Conflict("cannot set a deadline: the query is cumulative", hint="its readers share what it computes")
    if deadline.milliseconds < SHORTEST:
        raise Conflict(
            f"cannot set a deadline of {time_text(deadline.milliseconds)}: the least is {time_text(SHORTEST)}"
        )
    if len(deadline.lower) > MOST_VERSIONS:
        raise Conflict(f"cannot have {len(deadline.lower)} versions below the full one: the most is {MOST_VERSIONS}")
    if q.principal.level.compartments:
        raise Conflict("cannot set a deadline at a level with compartments: only plain levels have a share of time")
    for thing in bound.inputs:
        if thing.stream.made_of is not None:
            raise Conflict(f"cannot set a deadline: {shown(thing)} is the output of a query", hint="read its inputs")
    if known is not None and known.query.deadline is None:  # whether others read it is not for everybody to know
        raise Conflict(f"cannot set a deadline: {shown(known)} has none", hint="drop it and create it anew")
    for version in deadline.lower:
        if not 0 < version.sample <= 1 or version == FULL:
            raise Conflict(f"cannot take {version}: a sample is more than 0 and less than 100 percent")
        lower(version_of(bound.query, version))


def _check_not_own(q: Request, query: r.Object, bound: BoundFor) -> None:
    """A query cannot read what is computed from it."""
    waiting, seen = [thing.id for thing in bound.inputs], set[int]()
    while waiting:
        number = waiting.pop()
        thing = q.state.objects.get(number)
        if number == query.query.output:
            raise Conflict(f"cannot replace {shown(query)}: it would read its own results")
        if thing is not None and number not in seen:
            seen.add(number)
            waiting += thing.stream.made_of or ()


def _replace(
    q: Request, query: r.Object, name: Name | None, columns: tuple[ColumnDefinition, ...], new: QueryDefinition
) -> Result:
    """Its output keeps its columns, so that queries over it go on; more may come after them. Whoever may start it may
    replace it while it runs, so what START checks is checked by creating it."""
    q.about(shown(query))
    before, output = query.query, q.state.objects.get(query.query.output)
    if output is None:
        raise Conflict(f"cannot replace {shown(query)}: its output is missing", hint="drop it and create it anew")
    if name is not None and name.text != output.name:
        raise Conflict(
            f"cannot replace {shown(query)}: its output is called {quote(output.name)}", position=name.position
        )
    if new.cumulative != before.cumulative:  # readers of the one share windows, readers of the other do not
        raise Conflict(
            f"cannot replace {shown(query)}: it is {_mode(before)}, and the new one is {_mode(new)}",
            hint="drop it and create it anew",
        )
    kept = output.stream.columns
    if [(x.name, x.type) for x in columns[: len(kept)]] != [(x.name, x.type) for x in kept]:
        words = ", ".join(f"{quote(x.name)} {x.type}" for x in kept)
        raise Conflict(
            f"cannot replace {shown(query)}: its results must begin with the columns {words}",
            hint="further columns come after these; or drop it and create it anew",
        )
    objects.keep_columns(q.state, output)
    objects.redefine(q.state, output, replace(output.stream, columns=columns, made_of=new.inputs))
    running = before.running and not before.broken
    definition = replace(new, output=output.id, running=running, revision=before.revision + 1)
    objects.redefine(q.state, query, definition)
    _stop_without_consent(q, output)
    return Result(f"{shown(query)} replaced, with output {shown(output)}")


def _mode(definition: QueryDefinition) -> str:
    return "cumulative" if definition.cumulative else "exact"


def _stop_without_consent(q: Request, output: r.Object) -> None:
    """Cumulative queries of whatever owner that read what a replaced query makes: they stop if an owner of what it
    reads now has not allowed them. No message says so: the caller may not see them."""
    made = {output.id}
    while more := {d.output for _, d in objects.queries(q.state) if not made.isdisjoint(d.inputs)} - made:
        made |= more
    reading = [x for x in objects.queries(q.state) if x[1].cumulative and not made.isdisjoint(x[1].inputs)]
    for query, d in reading:
        if d.running and not all(consented(q, q.state.objects.get(number)) for number in d.inputs):
            objects.redefine(q.state, query, replace(d, running=False))


def _add(q: Request, name: str, output_name: str, made: StreamDefinition, definition: QueryDefinition) -> Result:
    output = q.add(Kind.STREAM, output_name, replace(made, made_of=definition.inputs))
    query = q.add(Kind.QUERY, name, replace(definition, output=output.id))
    return Result(f"{shown(query)} created, with output {shown(output)}")


class BoundFor:
    """A query bound for a principal: every source visible and readable to it, every operator allowed."""

    def __init__(self, reader: Principal) -> None:
        self.reader = reader
        self.inputs: list[r.Object] = []
        self.operators: list[tuple[str, Parameters]] = []
        self.query: Query


def bind_for(q: Request, syntax: QuerySyntax) -> BoundFor:
    """`AS role, ...` narrows the caller's rights to these of its active roles."""
    principal = q.principal
    for role in syntax.roles:
        if role.text not in principal.roles:
            raise AccessDenied(f"role {quote(role.text)} is not active", position=role.position)
    narrowed = frozenset(role.text for role in syntax.roles)
    bound = BoundFor(Principal(principal.user, narrowed, principal.level) if narrowed else principal)

    known: dict[tuple[str | None, str], tuple[r.Object, Stream]] = {}

    def find(target: Target) -> Stream:
        """Looks up each stream once, however often it is read."""
        name = target.owner, target.name
        if name not in known:
            thing = _readable(q, bound.reader, target)
            known[name] = thing, as_stream(thing)
        bound.inputs.append(known[name][0])
        return known[name][1]

    bound.query = bind_query(syntax, find)
    for use in uses(syntax, bound.query):
        if (entry := (use.operator, _sorted(use.parameters))) in bound.operators:
            continue
        operator = q.catalog.find(bound.reader, Kind.OPERATOR, use.operator)
        try:
            q.need(Permission.USE, operator, use.parameters, bound.reader)
        except AccessDenied as denied:
            raise denied.at(use.position) from None
        bound.operators.append(entry)
    return bound


def _sorted(parameters: Mapping[str, Limit]) -> Parameters:
    return tuple(sorted(parameters.items()))


def _readable(q: Request, reader: Principal, target: Target) -> r.Object:
    """An input must be visible, and readable as tuples or at least as aggregates."""
    thing = q.find(target)
    if reader != q.principal:
        q.need(Permission.VIEW_OBJECT, thing, principal=reader)
    try:
        q.need(Permission.READ_TUPLE, thing, principal=reader)
    except AccessDenied:
        if not q.authorizer.allows(reader, Permission.AGGREGATE_READ, thing):
            raise
        q.need(Permission.AGGREGATE_READ, thing, principal=reader)
    return thing


def _set_status(q: Request, x: c.SetQueryStatus) -> Result:
    thing = q.find(x.target)
    q.need(Permission.SET_QUERY_STATUS, thing)
    definition = thing.query
    if x.running and definition.broken:
        raise Conflict(f"cannot start {shown(thing)}: an input was dropped", hint="drop it and create it anew")
    if x.running and not definition.running:
        check_rights(q, thing, definition)
        check_running(q, thing.owner, q.principal)
        _check_plan(q, thing, definition)
    objects.redefine(q.state, thing, replace(definition, running=x.running))
    return Result(f"{shown(thing)} {'started' if x.running else 'stopped'}")


def _check_plan(q: Request, query: r.Object, definition: QueryDefinition) -> None:
    """Refuses at START what cannot run: the limits may differ from those at its creation."""
    try:
        meant = stored_query(query, q.state.objects.get)
        if meant is not None:
            lower(meant)
        check_depth(definition.inputs, q.state.objects.get)
    except HeadgateError as error:
        raise Conflict(f"cannot start {shown(query)}: {error.message}", hint=error.hint) from None


def _subscribe(q: Request, x: c.Subscribe) -> Result:
    """A subscription lasts until it is ended, whether or not its user is logged in; delivery is decided result by
    result. Subscribing again changes only the roles: a user who subscribes at each login continues where it was."""
    thing = q.find(x.target)
    known = q.subscriptions.find(q.principal, thing)
    if x.ends:
        if known is None:
            raise Conflict(f"you are not subscribed to {shown(thing)} at level {q.principal.level}")
        q.subscriptions.remove(known)
        return Result(f"unsubscribed from {shown(thing)}")
    q.need(Permission.SUBSCRIBE, thing)
    if is_table(thing):
        raise Conflict(
            f"cannot subscribe to {shown(thing)}: a table has no changes",
            hint="query it beside a stream, and subscribe to the query",
        )
    if thing.stream.made_of is None:
        lower(whole_stream(thing))
    if known is not None and frozenset(known.roles) == q.principal.roles:
        return Result(f"already subscribed to {shown(thing)}{_but(q, thing)}")
    q.subscriptions.put(q.principal, thing, q.work.new_object_id() if known is None else known.number)
    if known is None:
        return Result(f"subscribed to {shown(thing)}{_but(q, thing)}")
    roles = ", ".join(map(quote, sorted(q.principal.roles))) or "none"
    return Result(f"already subscribed to {shown(thing)}; from now on with the roles {roles}{_but(q, thing)}")


def _but(q: Request, stream: r.Object) -> str:
    """Why nothing will come, if that is known: a reader must not take it for a quiet stream."""
    try:
        return _reason(q, stream)
    except StoreError:  # a definition is damaged
        return "; it cannot be run"


def _reason(q: Request, stream: r.Object) -> str:
    derived = DerivedStreams(q.state, q.authorizer, q.plans())
    if q.may(Permission.READ_TUPLE, stream) and derived.unread(q.principal, stream):
        return "; it is suspended: your rights do not cover what it is computed from"
    if derived.is_suspended(q.principal, stream):
        return "; it is suspended: you lack READ TUPLE on it"
    if stream.stream.made_of is None or stream.id in derived.outputs:
        return ""
    query = next((x for x, d in objects.queries(q.state, stream.owner) if d.output == stream.id), None)
    if query is None or query.query.broken or query.query.running or not q.may(Permission.VIEW_OBJECT, query):
        return "; its query does not run"
    if not q.may(Permission.SET_QUERY_STATUS, query):
        return "; its query is stopped: its owner can start it"
    return f"; its query is stopped: START {shown(query).replace('query', 'QUERY', 1)}"


HANDLERS: dict[type[Statement], Handler] = {
    c.CreateQuery: _create_query,
    c.CreateQueryAs: _create_query_as,
    c.SetQueryStatus: _set_status,
    c.Subscribe: _subscribe,
}
