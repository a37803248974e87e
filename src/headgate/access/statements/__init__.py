"""The handlers of statements: one module per part of the catalog, one table of handlers."""

from __future__ import annotations

from importlib import import_module

from headgate.access.request import Handler, Request, Result
from headgate.access.statements import describe, grants, keys, levels, objects, policies, roles, show, users
from headgate.cql import continuous as c
from headgate.cql.statements import Statement


def _imported(module: str) -> Handler:
    """Handlers that need plans: a script that names no query runs without the modules of plans."""

    def handle(q: Request, x: Statement) -> Result:
        found: Handler = import_module(f"{__name__}.{module}").HANDLERS[type(x)]
        return found(q, x)

    return handle


HANDLERS: dict[type[Statement], Handler] = {
    **users.HANDLERS,
    **keys.HANDLERS,
    **roles.HANDLERS,
    **levels.HANDLERS,
    **objects.HANDLERS,
    **dict.fromkeys((c.CreateQuery, c.CreateQueryAs, c.SetQueryStatus, c.Subscribe), _imported("queries")),
    c.ExplainQuery: _imported("explain"),
    **grants.HANDLERS,
    **policies.HANDLERS,
    **show.HANDLERS,
    **describe.HANDLERS,
}
