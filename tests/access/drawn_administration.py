"""Statements of administrators, drawn: about users, roles, separations, levels and the system."""

from __future__ import annotations

from .drawing import COMPARTMENTS, LEVELS, PASSWORDS, ROLES, SEPARATIONS, USERS, Words
from .model import Action
from .model_values import Change


class Administration(Words):
    """Each with what the model does for it."""

    # Users ----------------------------------------------------------------------------------------------------------

    def create_user(self) -> tuple[str, Action]:
        name, password = self.pick.fresh(list(self.model.users), USERS), self.pick.one(PASSWORDS)
        level = self.a_level()
        text = f"CREATE USER {name} PASSWORD '{password}' CLEARANCE {level}"
        return text, lambda m, me: m.create_user(me, name, password, level)

    def alter_user(self) -> tuple[str, Action]:
        name = self.user if self.pick.chance(30) else self.a_user()
        changes = list(dict(self.pick.some(self._change)).items())  # each at most once
        text = " ".join(_change_text(change) for change in changes)
        return f"ALTER USER {name} {text}", lambda m, me: m.alter_user(me, name, changes)

    def _change(self) -> Change:
        what = self.pick.one(("PASSWORD", "CLEARANCE", "LOCK", "UNLOCK", "END SESSIONS"))
        if what == "CLEARANCE":
            return what, self.a_level()
        return what, self.pick.one(PASSWORDS) if what == "PASSWORD" else None

    def drop_user(self) -> tuple[str, Action]:
        name = self.a_user()
        heir = self.a_user() if self.pick.chance(40) else None
        cascade = heir is None and self.pick.chance(50)
        suffix = f" REASSIGN TO {heir}" if heir else " CASCADE" if cascade else ""
        return f"DROP USER {name}{suffix}", lambda m, me: m.drop_user(me, name, heir, cascade)

    # Roles and separations ------------------------------------------------------------------------------------------

    def create_role(self) -> tuple[str, Action]:
        name, (text, limits) = self.pick.fresh(list(self.model.roles), ROLES), self._most()
        return f"CREATE ROLE {name} {text}", lambda m, me: m.create_role(me, name, **limits)

    def _most(self) -> tuple[str, dict[str, int | None]]:
        limits = {"max_queries": self.pick.one((None, 0, 1, 2))}
        for name in ("max_state", "max_results"):
            if self.pick.chance(30):
                limits[name] = self.pick.one((None, 0, 1, 2))
        if len(limits) > 1 and self.pick.chance(50):
            del limits["max_queries"]
        return " ".join(f"{x.upper().replace('_', ' ')} {_number(most)}" for x, most in limits.items()), limits

    def alter_role(self) -> tuple[str, Action]:
        name, (text, limits) = self.a_role(), self._most()
        if self.pick.chance(50):
            owner = self.a_user()
            return f"ALTER ROLE {name} OWNER TO {owner}", lambda m, me: m.give_role(me, name, owner)
        return f"ALTER ROLE {name} {text}", lambda m, me: m.limit_role(me, name, **limits)

    def drop_role(self) -> tuple[str, Action]:
        name = self.a_role()
        return f"DROP ROLE {name}", lambda m, me: m.drop_role(me, name)

    def grant_role(self) -> tuple[str, Action]:
        roles = self.pick.some(self.a_role)
        if self.pick.chance(60):
            users = self.pick.some(self.a_user)
            text = f"GRANT ROLE {', '.join(roles)} TO USER {', '.join(users)}"
            return text, lambda m, me: m.grant_roles(me, roles, users, ())
        seniors = self.pick.some(self.a_role)
        text = f"GRANT ROLE {', '.join(roles)} TO ROLE {', '.join(seniors)}"
        return text, lambda m, me: m.grant_roles(me, roles, (), seniors)

    def revoke_role(self) -> tuple[str, Action]:
        held = sorted(self.model.members if self.pick.chance(60) else self.model.juniors)
        whose, role = self.pick.one(held) if held and self.pick.chance(80) else (self.a_user(), self.a_role())
        if (whose, role) in self.model.juniors:
            return f"REVOKE ROLE {role} FROM ROLE {whose}", lambda m, me: m.revoke_roles(me, [role], (), [whose])
        return f"REVOKE ROLE {role} FROM USER {whose}", lambda m, me: m.revoke_roles(me, [role], [whose], ())

    def create_separation(self) -> tuple[str, Action]:
        name = self.pick.fresh(list(self.model.separations), SEPARATIONS)
        dynamic, at_most = self.pick.chance(60), self.pick.one((1, 1, 1, 2, 0))
        roles = [self.a_role(), self.a_role(), *self.pick.some(self.a_role)]
        text = f"{'DYNAMIC' if dynamic else 'STATIC'} OF {', '.join(roles)} AT MOST {at_most}"
        return f"CREATE SEPARATION {name} {text}", lambda m, me: m.create_separation(me, name, dynamic, roles, at_most)

    def drop_separation(self) -> tuple[str, Action]:
        name = self.pick.name(list(self.model.separations), SEPARATIONS)
        return f"DROP SEPARATION {name}", lambda m, me: m.drop_separation(me, name)

    # Levels ---------------------------------------------------------------------------------------------------------

    def create_level(self) -> tuple[str, Action]:
        name, above = self.pick.fresh(list(self.model.levels), LEVELS), self.level_names()
        return f"CREATE LEVEL {name} ABOVE {', '.join(above)}", lambda m, me: m.create_level(me, name, above)

    def alter_level(self) -> tuple[str, Action]:
        name, above = self.pick.one(self.level_names()), self.level_names()
        return f"ALTER LEVEL {name} ABOVE {', '.join(above)}", lambda m, me: m.raise_level(me, name, above)

    def drop_level(self) -> tuple[str, Action]:
        name = self.pick.one(self.level_names())
        return f"DROP LEVEL {name}", lambda m, me: m.drop_level(me, name)

    def create_compartment(self) -> tuple[str, Action]:
        name = self.pick.fresh(list(self.model.compartments), COMPARTMENTS)
        return f"CREATE COMPARTMENT {name}", lambda m, me: m.create_compartment(me, name)

    def drop_compartment(self) -> tuple[str, Action]:
        name = self.pick.name(list(self.model.compartments), COMPARTMENTS)
        return f"DROP COMPARTMENT {name}", lambda m, me: m.drop_compartment(me, name)

    # System ---------------------------------------------------------------------------------------------------------

    def set_system(self) -> tuple[str, Action]:
        name, value = self.pick.one(
            (
                ("default_rights", "ROLE"),
                ("default_rights", "OWNER"),
                ("default_rights", "ALL"),
                ("idle_minutes", "5"),
                ("idle_minutes", "30"),
                ("session_minutes", "60"),
                ("session_minutes", "480"),
                ("lockout_failures", "2"),
                ("lockout_minutes", "1"),
                ("lockout_minutes", "0"),
                ("max_sessions", "3"),
                ("colour", "blue"),
            )
        )
        return f"SET SYSTEM {name} = '{value}'", lambda m, me: m.set_system(me, name, value)

    def show_catalog(self) -> tuple[str, Action]:
        return "SHOW CATALOG", lambda m, me: m.show_catalog(me)


def _change_text(change: Change) -> str:
    what, value = change
    return what if value is None else f"{what} '{value}'" if what == "PASSWORD" else f"{what} {value}"


def _number(number: int | None) -> str:
    return "NONE" if number is None else str(number)
