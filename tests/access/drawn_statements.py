"""Every statement that can be drawn, by its kind."""

from __future__ import annotations

from collections.abc import Callable

from .drawing import ROLES, Statement
from .drawn_administration import Administration
from .drawn_objects import Ownership
from .model import Action


class Author(Administration, Ownership):
    """Writes statements, about what exists for the most part."""

    def write(self, kind: str) -> Statement:
        text, action = AUTHORS[kind](self)
        return Statement(kind, text, action)

    def set_role(self) -> tuple[str, Action]:
        authorised = sorted(self.model.authorised(self.user))
        if self.pick.chance(30):
            return "SET ROLE ALL", lambda m, me: m.set_roles(me, None)
        if self.pick.chance(10):
            return "SET ROLE NONE", lambda m, me: m.set_roles(me, frozenset())
        roles = self.pick.some(lambda: self.pick.name(authorised, ROLES))
        return f"SET ROLE {', '.join(roles)}", lambda m, me: m.set_roles(me, frozenset(roles))


AUTHORS: dict[str, Callable[[Author], tuple[str, Action]]] = {
    "CREATE USER": Author.create_user,
    "ALTER USER": Author.alter_user,
    "DROP USER": Author.drop_user,
    "CREATE ROLE": Author.create_role,
    "ALTER ROLE": Author.alter_role,
    "DROP ROLE": Author.drop_role,
    "GRANT ROLE": Author.grant_role,
    "REVOKE ROLE": Author.revoke_role,
    "CREATE SEPARATION": Author.create_separation,
    "DROP SEPARATION": Author.drop_separation,
    "CREATE LEVEL": Author.create_level,
    "ALTER LEVEL": Author.alter_level,
    "DROP LEVEL": Author.drop_level,
    "CREATE COMPARTMENT": Author.create_compartment,
    "DROP COMPARTMENT": Author.drop_compartment,
    "CREATE SCHEMA": Author.create_schema,
    "ALTER SCHEMA": Author.alter_schema,
    "CREATE STREAM": Author.create_stream,
    "ALTER STREAM": Author.alter_stream,
    "CREATE QUERY": Author.create_query,
    "START QUERY": Author.start_query,
    "STOP QUERY": Author.stop_query,
    "DROP OBJECT": Author.drop_object,
    "GRANT": Author.grant,
    "REVOKE": Author.revoke,
    "GRANT USE": Author.grant_operator,
    "REVOKE USE": Author.revoke_operator,
    "SET ROLE": Author.set_role,
    "SET SYSTEM": Author.set_system,
    "SHOW CATALOG": Author.show_catalog,
}
