"""What is stored, in one form for the system and for the model, so that they can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headgate.access.rows import Object
from headgate.access.state import State
from headgate.errors import HeadgateError

from .model import Model

T = TypeVar("T")


def _role(role: Any) -> tuple[Any, ...]:
    return role.owner, role.max_queries, role.max_state, role.max_results


def modelled(model: Model) -> dict[str, Any]:
    keys = {i: thing.key for i, thing in model.things.items()}
    return {
        "users": {n: (str(u.clearance), u.locked, u.failures, u.locked_until) for n, u in model.users.items()},
        "roles": {name: _role(role) for name, role in model.roles.items()},
        "memberships": model.members,
        "inheritances": model.juniors,
        "separations": {n: (x.dynamic, x.roles, x.at_most) for n, x in model.separations.items()},
        "levels": model.levels,
        "retired": model.retired,
        "compartments": model.compartments,
        "objects": {
            t.key: {
                "SCHEMA": (t.columns,),
                "STREAM": (t.columns, t.label, t.semantics),
                "QUERY": ([keys[i] for i in t.inputs], t.operators, keys.get(t.output), t.running, t.broken),
            }.get(t.kind)
            for t in model.things.values()
        },
        "grants": {(keys[i], permission, role): dict(x) for (i, permission, role), x in model.grants.items()},
        "parameters": model.parameters,
    }


def stored(state: State) -> dict[str, Any]:
    keys = {x.id: (x.kind, x.owner, x.level, x.name) for x in state.objects}

    def defined(x: Object) -> object:
        match x.kind:
            case "QUERY":
                d = x.query
                operators = tuple((name, dict(parameters)) for name, parameters in d.operators)
                return [keys[i] for i in d.inputs], operators, keys[d.output], d.running, d.broken
            case "SCHEMA":
                return (tuple(column.name for column in x.schema.columns),)
            case "STREAM":
                return tuple(column.name for column in x.stream.columns), x.stream.label, x.stream.semantics
            case _:
                return None

    return {
        "users": {u.name: (u.clearance, u.locked, u.failures, u.locked_until) for u in state.users if u.name},
        "roles": {role.name: _role(role) for role in state.roles},
        "memberships": {(x.user, x.role) for x in state.memberships},
        "inheritances": {(x.senior, x.junior) for x in state.inheritances},
        "separations": {x.name: (x.dynamic, frozenset(x.roles), x.at_most) for x in state.separations},
        "levels": {x.name: frozenset(x.above) for x in state.levels if not x.retired},
        "retired": {x.name: frozenset(x.above) for x in state.levels if x.retired},
        "compartments": {x.name for x in state.compartments},
        "objects": {keys[x.id]: defined(x) for x in state.objects},
        "grants": {(keys[x.object], x.permission, x.role): dict(x.limits) for x in state.grants},
        "parameters": Model(0).parameters | {x.name: x.value for x in state.parameters},
    }


def rows(state: State) -> dict[str, dict[Any, object]]:
    return {name: {row.key: row for row in table} for name, table in state.tables.items()}


def dangling(state: State) -> list[object]:
    """Rows that name something which is not there."""
    users, roles = {x.name for x in state.users}, {x.name for x in state.roles}
    objects = {x.id for x in state.objects}
    return [
        *(x for x in state.memberships if x.user not in users or x.role not in roles),
        *(x for x in state.inheritances if x.senior not in roles or x.junior not in roles),
        *(x for x in state.separations if not {*x.roles} <= roles),
        *(x for x in state.grants if x.object not in objects or x.role not in roles),
        *(x for x in state.sessions if x.user not in users or not {*x.roles} <= roles),
        *(x for x in state.objects if x.owner and x.owner not in users),
        *(x for x in state.roles if x.owner and x.owner not in users),
    ]


def attempt(act: Callable[[], T]) -> tuple[T | None, str | None]:
    """What came back, or the name of the error."""
    try:
        return act(), None
    except HeadgateError as error:
        return None, type(error).__name__
