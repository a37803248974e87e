"""The handlers of statements: one module per part of the catalog, one table of handlers."""

from __future__ import annotations

from headgate.access.request import Handler
from headgate.access.statements import explain, grants, levels, objects, policies, queries, roles, show, users
from headgate.cql.statements import Statement

HANDLERS: dict[type[Statement], Handler] = {
    **users.HANDLERS,
    **roles.HANDLERS,
    **levels.HANDLERS,
    **objects.HANDLERS,
    **queries.HANDLERS,
    **explain.HANDLERS,
    **grants.HANDLERS,
    **policies.HANDLERS,
    **show.HANDLERS,
}
