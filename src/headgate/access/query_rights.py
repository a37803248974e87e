"""May a query run: with the rights of its owner, of the owners of its streams, and within the limits of roles."""

from __future__ import annotations

from dataclasses import replace

from headgate.access import objects
from headgate.access import rows as r
from headgate.access.authorizer import Principal, shown
from headgate.access.definitions import QueryDefinition
from headgate.access.permissions import Kind, Permission
from headgate.access.request import Request
from headgate.errors import AccessDenied, HeadgateError
from headgate.lexing import quote


def check_rights(q: Request, query: r.Object, definition: QueryDefinition) -> None:
    """A query runs with its owner's rights: with the remaining roles of those it was created with."""
    roles = frozenset(definition.roles) & q.authorizer.authorised(query.owner)
    owner = Principal(query.owner, roles, q.authorizer.level(query.level))
    streams = [q.state.objects.get(i) for i in definition.inputs]
    readable = (Permission.READ_TUPLE, Permission.AGGREGATE_READ)
    allows = q.authorizer.allows
    if not all(
        s and allows(owner, Permission.VIEW_OBJECT, s) and any(allows(owner, p, s) for p in readable) for s in streams
    ):
        raise AccessDenied(f"cannot start {shown(query)}: its owner may no longer read all its inputs")
    if definition.cumulative and not all(consented(q, s) for s in streams):
        raise AccessDenied(f"cannot start {shown(query)}: an owner of its streams no longer allows cumulative queries")
    for name, parameters in definition.operators:
        operator = q.catalog.find(owner, Kind.OPERATOR, name)
        if not q.authorizer.allows_use(owner, operator, dict(parameters)):
            raise AccessDenied(
                f"cannot start {shown(query)}: its owner may no longer use operator {quote(name)} in this way"
            )


def consented(q: Request, stream: r.Object | None) -> bool:
    """Whether its owner and the owners of all streams it derives from allow cumulative queries: the owner of a query's
    output cannot consent for the owners of its inputs."""
    waiting, seen = [stream], set()
    while waiting:
        thing = waiting.pop()
        if thing is None or not thing.stream.cumulative:
            return False
        seen.add(thing.id)
        waiting += [q.state.objects.get(number) for number in thing.stream.made_of or () if number not in seen]
    return True


def check_running(q: Request, owner: str, counting: Principal) -> None:
    """Counts only queries at levels that the counting principal may see, so that no query at a high level takes a place
    at a low one."""
    most = q.authorizer.limits(owner).queries
    if most is None:
        return
    levels = set(q.authorizer.visible_levels(counting))
    running = sum(d.running for thing, d in objects.queries(q.state, owner) if thing.level in levels)
    if running >= most:
        raise AccessDenied(f"the owner's roles allow at most {most} running queries", hint="stop one first")


def pass_on(q: Request, heir: r.User, inherited: list[int]) -> None:
    """A running query continues only if its new owner could start it now, at its level; otherwise it stops. No message
    says so: the administrator who drops a user may not see everything that the user owned."""
    found = [q.state.objects.get(number) for number in sorted(inherited)]
    running = [x for x in found if x and isinstance(x.definition, QueryDefinition) and x.definition.running]
    for thing in running:
        objects.redefine(q.state, thing, replace(thing.query, running=False))
    for thing in running:
        level = q.authorizer.level(thing.level)
        if not q.authorizer.cleared(heir, level):
            continue
        try:
            check_rights(q, thing, thing.query)
            check_running(q, heir.name, Principal(heir.name, frozenset(), level))
        except HeadgateError:  # whatever prevents it
            continue
        objects.redefine(q.state, thing, thing.query)
