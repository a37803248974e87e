"""The life of objects: created with an owner, a level and default rights; dropped with everything that names them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from headgate.access import parameters
from headgate.access import rows as r
from headgate.access.authorizer import Principal, shown
from headgate.access.permissions import ROLE_DEFAULTS, Kind
from headgate.access.state import State
from headgate.errors import Conflict
from headgate.lexing import quote


def create(state: State, new_id: int, kind: Kind, name: str, owner: Principal, definition: dict[str, Any]) -> r.Object:
    """A new object of exactly its creator's level; by default only its owner has rights on it."""
    thing = r.Object(new_id, kind, owner.user, str(owner.level), name, json.dumps(definition, sort_keys=True))
    _check_free(state, thing)
    state.objects.put(thing)
    if parameters.read(state, "default_rights") == "ROLE":
        for permission in ROLE_DEFAULTS[kind]:
            for role in sorted(owner.roles):
                state.grants.put(r.Grant(new_id, permission, role, kind, name, "{}", owner.user))
    return thing


def _check_free(state: State, thing: r.Object) -> None:
    same = state.objects.find("owned_name", (thing.owner, thing.kind, thing.name))
    if any(other.level == thing.level and other.id != thing.id for other in same):
        raise Conflict(f"user {quote(thing.owner)} already has {shown(thing)}")


def rename_owner(state: State, thing: r.Object, owner: str) -> None:
    changed = replace(thing, owner=owner)
    _check_free(state, changed)
    state.objects.put(changed)


def redefine(state: State, thing: r.Object, **changes: object) -> None:
    definition = json.loads(thing.definition) | changes
    state.objects.put(replace(thing, definition=json.dumps(definition, sort_keys=True)))


def drop(state: State, thing: r.Object) -> None:
    """Grants on it go too; a query takes its output along; queries that read it stop and no longer name it."""
    for grant in state.grants.find("object", thing.id):
        state.grants.remove(grant)
    state.objects.remove(thing)
    if thing.kind == Kind.QUERY:
        output = state.objects.get(json.loads(thing.definition)["output"])
        if output is not None:
            drop(state, output)
    if thing.kind == Kind.STREAM:
        for query, definition in queries(state):
            if thing.id in definition["inputs"]:
                rest = [i for i in definition["inputs"] if i != thing.id]
                redefine(state, query, inputs=rest, running=False, broken=True)


def queries(state: State, owner: str | None = None) -> Iterable[tuple[r.Object, dict[str, Any]]]:
    """Queries with their definitions: all of them, or one user's."""
    found = state.objects.find("kind", Kind.QUERY.value) if owner is None else state.objects.find("owner", owner)
    return [(thing, json.loads(thing.definition)) for thing in found if thing.kind == Kind.QUERY]
