"""The life of objects: created with an owner, a level and default rights; dropped with everything that names them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headgate.access import parameters
from headgate.access import rows as r
from headgate.access.authorizer import Principal, shown
from headgate.access.definitions import Definition, QueryDefinition, StreamDefinition
from headgate.access.permissions import ROLE_DEFAULTS, Kind
from headgate.access.state import State
from headgate.errors import Conflict
from headgate.labels import LEAST
from headgate.lexing import quote


def create(state: State, new_id: int, kind: Kind, name: str, owner: Principal, definition: Definition) -> r.Object:
    """A new object of exactly its creator's level; by default only its owner has rights on it."""
    thing = r.Object(new_id, kind, owner.user, str(owner.level), name, definition)
    _check_free(state, thing)
    if isinstance(definition, StreamDefinition):
        thing = replace(thing, definition=replace(definition, source=_new_source_name(state, thing)))
    state.objects.put(thing)
    if parameters.read(state, "default_rights") == "ROLE":
        for permission in ROLE_DEFAULTS[kind]:
            for role in sorted(owner.roles):
                state.grants.put(r.Grant(new_id, permission, role, kind, name, thing.level, (), owner.user))
    return thing


def _check_free(state: State, thing: r.Object) -> None:
    if state.objects.peek("owned_name", (thing.owner, thing.kind, thing.name, thing.level)):
        raise Conflict(f"user {quote(thing.owner)} already has {shown(thing)}")


def _new_source_name(state: State, stream: r.Object) -> str:
    """`joe.in1`, for a level above U `joe.in1@S`, and `joe.in1~2` if some stream was called `joe.in1` before."""
    level = "" if stream.level == str(LEAST) else f"@{stream.level}"
    base = f"{quote(stream.owner)}.{quote(stream.name)}{level}"
    known = state.source_names.get(base)
    used = known.used + 1 if known else 1
    state.source_names.put(r.SourceName(base, used))
    return base if used == 1 else f"{base}~{used}"


def rename_owner(state: State, thing: r.Object, owner: str) -> None:
    """Gives an object to another owner. Does not say which names collide: they may be of levels that the caller does
    not see."""
    changed = replace(thing, owner=owner)
    if state.objects.peek("owned_name", (owner, thing.kind, thing.name, thing.level)):
        raise Conflict("both users own objects of the same name, so one cannot inherit the other's", hint="use CASCADE")
    state.objects.put(changed)


def redefine(state: State, thing: r.Object, definition: Definition) -> None:
    state.objects.put(replace(thing, definition=definition))


def drop(state: State, thing: r.Object) -> None:
    """Drops an object and the grants and subscriptions on it. A query's output is dropped too; queries that read a
    dropped stream stop and no longer name it."""
    for grant in state.grants.find("object", thing.id):
        state.grants.remove(grant)
    for subscription in state.subscriptions.find("stream", thing.id):
        state.subscriptions.remove(subscription)
    state.objects.remove(thing)
    if isinstance(thing.definition, QueryDefinition):
        output = state.objects.get(thing.definition.output)
        if output is not None:
            drop(state, output)
    if thing.kind == Kind.STREAM:
        for query, definition in queries(state):
            if thing.id in definition.inputs:
                rest = tuple(i for i in definition.inputs if i != thing.id)
                redefine(state, query, replace(definition, inputs=rest, running=False, broken=True))


def keep_columns(state: State, stream: r.Object) -> None:
    """Notes in all queries that read a stream the columns that it has, before it gets more."""
    for query, definition in queries(state):
        if stream.id in definition.inputs and not definition.widths:
            found = (state.objects.get(number) for number in definition.sources)
            widths = tuple(len(thing.stream.columns) if thing is not None else 0 for thing in found)
            redefine(state, query, replace(definition, widths=widths))


def queries(state: State, owner: str | None = None) -> Iterable[tuple[r.Object, QueryDefinition]]:
    """Queries with their definitions: all of them, or one user's; without those whose definition is damaged."""
    found = state.objects.find("kind", Kind.QUERY.value) if owner is None else state.objects.find("owner", owner)
    return [(thing, thing.definition) for thing in found if isinstance(thing.definition, QueryDefinition)]


def derived_from(state: State, inputs: Iterable[int]) -> list[r.Object]:
    """Streams, and all streams that they are computed from."""
    found: dict[int, r.Object] = {}
    waiting = list(inputs)
    while waiting:
        stream = state.objects.get(waiting.pop())
        if stream is not None and stream.id not in found:
            found[stream.id] = stream
            waiting += stream.stream.made_of or ()
    return list(found.values())
