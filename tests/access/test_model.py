"""The whole of OxRBAC against a second one, written plainly from SPEC.md (model.py).

Random sessions, the unprivileged ones included, run random statements on both. Outcomes must agree, and after each
step so must everything stored, every decision asked for, and what each session is shown.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import argon2
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from headgate.access.passwords import Passwords
from headgate.access.permissions import Kind, Permission
from headgate.access.state import State
from headgate.errors import HeadgateError
from headgate.labels import Level as RealLevel
from headgate.service import Headgate
from headgate.testing import ManualClock

from .model import APPLIES, EVERYONE, OPERATORS, SYSTEM, Action, Change, Label, Level, Limits, Model, Target

T = TypeVar("T")

ROOT = "root"
USERS = (ROOT, "ann", "bob", "cy")
ROLES = ("ADMIN", EVERYONE, "r1", "r2", "r3", "r4")
LEVELS = ("C", "S", "N")
COMPARTMENTS = ("X", "Y")
NAMES = ("a", "b", "c")
COLUMNS = ("k", "v", "w")
SEMANTICS = ("STRONG", "WEAK", "AGGREGATE")
LABELS = (Label("r1"), Label("r1 AT C", Level("C")), Label("r2 AT S{X}", Level("S", frozenset("X"))))
SEPARATIONS = ("sep1", "sep2", "sep3")
PASSWORDS = ("password one", "password two")
UNKNOWN = "nobody"
KINDS = ("SCHEMA", "STREAM", "QUERY")
MOST_SESSIONS = 5
CHECKS_PER_STEP = 60
CHEAP = Passwords(argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


@dataclass
class Tally:
    """How much was really run, and how it ended."""

    sequences: int = 0
    steps: int = 0
    statements: int = 0
    checks: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __str__(self) -> str:
        kinds = sorted({kind for kind, _ in self.outcomes})
        lines = [
            f"{self.sequences} sequences, {self.steps} steps, {self.statements} statements, {self.checks} checks",
            *(
                f"  {kind}: " + ", ".join(f"{o} {n}" for (k, o), n in sorted(self.outcomes.items()) if k == kind)
                for kind in kinds
            ),
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Statement:
    """One statement as text for the system and as an action for the model."""

    kind: str
    text: str
    action: Action


class Pick:
    """Choices, made by hypothesis."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def one(self, values: Sequence[T]) -> T:
        return values[self._data.draw(st.integers(0, len(values) - 1))]

    def chance(self, percent: int) -> bool:
        return self._data.draw(st.integers(0, 99)) >= 100 - percent

    def name(self, existing: Sequence[str], pool: Sequence[str]) -> str:
        """Mostly something that exists."""
        if existing and not self.chance(15):
            return self.one(sorted(existing))
        return self.one((*pool, UNKNOWN))

    def some(self, draw: Callable[[], T]) -> list[T]:
        """One, seldom two."""
        return [draw() for _ in range(2 if self.chance(20) else 1)]

    def fresh(self, existing: Sequence[str], pool: Sequence[str]) -> str:
        free = [name for name in pool if name not in existing]
        return self.one(free) if free and not self.chance(15) else self.one(pool)


class Author:
    """Writes statements, about what exists for the most part."""

    def __init__(self, pick: Pick, model: Model, user: str) -> None:
        self.pick = pick
        self.model = model
        self.user = user  # who will run it

    def write(self, kind: str) -> Statement:
        text, action = _AUTHORS[kind](self)
        return Statement(kind, text, action)

    # Words ----------------------------------------------------------------------------------------------------------

    def a_user(self) -> str:
        return self.pick.name(list(self.model.users), USERS)

    def a_role(self) -> str:
        return self.pick.name(list(self.model.roles), ROLES)

    def a_level(self) -> Level:
        known = [name for name in self.model.compartments if self.pick.chance(30)]
        return Level(self.pick.name(["U", *self.model.levels], LEVELS), frozenset(known))

    def level_names(self) -> list[str]:
        return self.pick.some(lambda: self.pick.name(["U", *self.model.levels], LEVELS))

    def an_object(self, *kinds: str) -> Target:
        things = [thing for thing in self.model.things.values() if thing.kind in kinds]
        if not things or self.pick.chance(10):
            return Target(self.pick.one(kinds), self.pick.one(NAMES))
        own = [thing for thing in things if thing.owner == self.user]
        thing = self.pick.one(own if own and self.pick.chance(70) else things)
        return Target(thing.kind, thing.name, thing.owner if self.pick.chance(60) else None)

    def columns(self) -> tuple[str, ...]:
        return tuple(self.pick.some(lambda: self.pick.one(COLUMNS)))

    def limits(self, operator: str) -> Limits:
        """Limits of a grant, or parameters of a use; sometimes none, seldom nonsense."""
        found: dict[str, int | float | tuple[str, ...]] = {}
        for name, kind in OPERATORS.get(operator, {}).items():
            if self.pick.chance(60):
                number = self.pick.one((1, 2, 2.5, 3))
                found[name] = number if kind == "number" else self.pick.one((("x",), ("y",), ("x", "y")))
        if self.pick.chance(5):
            found[self.pick.one(("streams", "functions", "colour"))] = 1 if self.pick.chance(50) else ("x",)
        return found

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

    # Schemas, streams, queries --------------------------------------------------------------------------------------

    def create_schema(self) -> tuple[str, Action]:
        name, columns = self.pick.one(NAMES), self.columns()
        return f"CREATE SCHEMA {name} ({_typed(columns)})", lambda m, me: m.create_schema(me, name, columns)

    def alter_schema(self) -> tuple[str, Action]:
        target, column = self.an_object("SCHEMA"), self.pick.one(COLUMNS)
        if self.pick.chance(60):
            return f"ALTER SCHEMA {target} ADD COLUMN {column} INT", lambda m, me: m.add_column(me, target, column)
        return f"ALTER SCHEMA {target} DROP COLUMN {column}", lambda m, me: m.drop_column(me, target, column)

    def create_stream(self) -> tuple[str, Action]:
        name, semantics = self.pick.one(NAMES), self.pick.one(SEMANTICS)
        label = self.pick.one(LABELS) if self.pick.chance(30) else None
        columns = self.an_object("SCHEMA") if self.pick.chance(30) else self.columns()
        shape = f"SCHEMA {columns}" if isinstance(columns, Target) else f"({_typed(columns)})"
        shape += f" LABEL '{label.text}'" if label else ""
        text = f"CREATE STREAM {name} {shape} SEMANTICS {semantics}"
        return text, lambda m, me: m.create_stream(me, name, columns, label, semantics)

    def alter_stream(self) -> tuple[str, Action]:
        target, label, semantics = self.an_object("STREAM"), self.pick.one(LABELS), self.pick.one(SEMANTICS)
        if self.pick.chance(50):
            return f"ALTER STREAM {target} LABEL '{label.text}'", lambda m, me: m.label_stream(me, target, label)
        if self.pick.chance(30):
            return f"ALTER STREAM {target} DROP LABEL", lambda m, me: m.label_stream(me, target, Label("TRUE"))
        return f"ALTER STREAM {target} SEMANTICS {semantics}", lambda m, me: m.set_semantics(me, target, semantics)

    def create_query(self) -> tuple[str, Action]:
        name, output = self.pick.one(NAMES), self.pick.one((*NAMES, "out1", "out2"))
        inputs = self.pick.some(lambda: self.an_object("STREAM"))
        used = self.pick.some(lambda: self.pick.name(_LIMITED, list(OPERATORS))) if self.pick.chance(70) else []
        operators = [(operator, self.limits(operator)) for operator in used]
        using = f" USING {', '.join(f'{o} {_limits(limits)}' for o, limits in operators)}" if operators else ""
        text = f"CREATE QUERY {name} READING {', '.join(map(str, inputs))}{using} OUTPUT {output}"
        return text, lambda m, me: m.create_query(me, name, inputs, operators, output)

    def start_query(self) -> tuple[str, Action]:
        target = self.an_object("QUERY")
        return f"START QUERY {target}", lambda m, me: m.set_status(me, target, running=True)

    def stop_query(self) -> tuple[str, Action]:
        target = self.an_object("QUERY")
        return f"STOP QUERY {target}", lambda m, me: m.set_status(me, target, running=False)

    def drop_object(self) -> tuple[str, Action]:
        target = self.an_object(*KINDS)
        read = sorted({i for thing in self.model.things.values() for i in thing.inputs})
        if read and self.pick.chance(40):  # what a query reads
            thing = self.model.things[self.pick.one(read)]
            target = Target(thing.kind, thing.name, thing.owner)
        return f"DROP {target.kind} {target}", lambda m, me: m.drop_object(me, target)

    # Rights ---------------------------------------------------------------------------------------------------------

    def _rights(self) -> tuple[list[str], Target, list[str]]:
        target = Target("SYSTEM", "SYSTEM") if self.pick.chance(20) else self.an_object(*KINDS)
        kind = target.kind if self.pick.chance(95) else self.pick.one(sorted(APPLIES))
        return self.pick.some(lambda: self.pick.one(APPLIES[kind])), target, self.pick.some(self.a_role)

    def grant(self) -> tuple[str, Action]:
        permissions, target, roles = self._rights()
        text = f"GRANT {', '.join(permissions)} ON {_target(target)} TO {', '.join(roles)}"
        return text, lambda m, me: m.grant(me, permissions, target, roles, {})

    def revoke(self) -> tuple[str, Action]:
        permissions, target, roles = self._rights()
        held = sorted(key for key in self.model.grants if self.model.things[key[0]].kind != "OPERATOR")
        if held and self.pick.chance(80):
            i, permission, role = self.pick.one(held)
            thing = self.model.things[i]
            permissions, target, roles = [permission], Target(thing.kind, thing.name, thing.owner or None), [role]
        text = f"REVOKE {', '.join(permissions)} ON {_target(target)} FROM {', '.join(roles)}"
        return text, lambda m, me: m.revoke(me, permissions, target, roles)

    def grant_operator(self) -> tuple[str, Action]:
        target, roles = Target("OPERATOR", self.pick.name(_LIMITED, list(OPERATORS))), self.pick.some(self.a_role)
        limits = self.limits(target.name)
        text = f"GRANT USE ON OPERATOR {target} TO {', '.join(roles)}"
        text += f" WITH {_limits(limits)}" if limits else ""
        return text, lambda m, me: m.grant(me, ["USE"], target, roles, limits)

    def revoke_operator(self) -> tuple[str, Action]:
        held = sorted(
            (self.model.things[i].name, role) for i, right, role in self.model.grants if right == "USE" and i != SYSTEM
        )
        name, role = self.pick.one(held) if held and self.pick.chance(80) else ("join", self.a_role())
        target = Target("OPERATOR", name)
        text = f"REVOKE USE ON OPERATOR {name} FROM {role}"
        return text, lambda m, me: m.revoke(me, ["USE"], target, [role])

    # Session and system ---------------------------------------------------------------------------------------------

    def set_role(self) -> tuple[str, Action]:
        authorised = sorted(self.model.authorised(self.user))
        if self.pick.chance(30):
            return "SET ROLE ALL", lambda m, me: m.set_roles(me, None)
        if self.pick.chance(10):
            return "SET ROLE NONE", lambda m, me: m.set_roles(me, frozenset())
        roles = self.pick.some(lambda: self.pick.name(authorised, ROLES))
        return f"SET ROLE {', '.join(roles)}", lambda m, me: m.set_roles(me, frozenset(roles))

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
                ("colour", "blue"),
            )
        )
        return f"SET SYSTEM {name} = '{value}'", lambda m, me: m.set_system(me, name, value)

    def show_catalog(self) -> tuple[str, Action]:
        return "SHOW CATALOG", lambda m, me: m.show_catalog(me)


_AUTHORS: dict[str, Callable[[Author], tuple[str, Action]]] = {
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
_ALL = tuple(_AUTHORS)
# What a step does, with its weight.
_WEIGHTS = {"GRANT": 6} | dict.fromkeys(_ALL, 2)  # hypothesis likes the first best
_WEIGHTS |= {
    "SHOW CATALOG": 0,  # everyone looks after each step
    "CREATE STREAM": 5,
    "CREATE QUERY": 6,
    "START QUERY": 4,
    "DROP OBJECT": 4,
    "ALTER USER": 5,
    "GRANT": 6,
    "REVOKE": 6,
    "GRANT ROLE": 5,
    "REVOKE ROLE": 3,
    "SET ROLE": 3,
    "CREATE COMPARTMENT": 1,
    "DROP COMPARTMENT": 1,
    "script": 8,
    "login": 8,
    "logout": 1,
    "time": 3,
    "wrong password": 1,
}
_ACTS = tuple(act for act, weight in _WEIGHTS.items() for _ in range(weight))
_LIMITED = [name for name, parameters in OPERATORS.items() if parameters]
_SESSION_KINDS = ("LOGIN", "LOGOUT")


def _change_text(change: Change) -> str:
    what, value = change
    return what if value is None else f"{what} '{value}'" if what == "PASSWORD" else f"{what} {value}"


def _number(number: int | None) -> str:
    return "NONE" if number is None else str(number)


def _typed(columns: Sequence[str]) -> str:
    return ", ".join(f"{column} INT" for column in columns)


def _role(role: Any) -> tuple[Any, ...]:
    return role.owner, role.max_queries, role.max_state, role.max_results


def _limits(limits: Limits) -> str:
    def text(limit: object) -> str:
        return "(" + ", ".join(f"'{word}'" for word in limit) + ")" if isinstance(limit, tuple) else str(limit)

    return f"({', '.join(f'{name} = {text(limit)}' for name, limit in limits.items())})" if limits else ""


def _target(target: Target) -> str:
    return "SYSTEM" if target.kind == "SYSTEM" else f"{target.kind} {target}"


_POPULATION = [
    Statement("CREATE LEVEL", "CREATE LEVEL C", lambda m, me: m.create_level(me, "C", ())),
    Statement("CREATE LEVEL", "CREATE LEVEL S ABOVE C", lambda m, me: m.create_level(me, "S", ["C"])),
    Statement("CREATE LEVEL", "CREATE LEVEL N", lambda m, me: m.create_level(me, "N", ())),
    Statement("CREATE COMPARTMENT", "CREATE COMPARTMENT X", lambda m, me: m.create_compartment(me, "X")),
    Statement("CREATE ROLE", "CREATE ROLE r1", lambda m, me: m.create_role(me, "r1")),
    Statement("CREATE ROLE", "CREATE ROLE r2 MAX QUERIES 1", lambda m, me: m.create_role(me, "r2", max_queries=1)),
    Statement("CREATE ROLE", "CREATE ROLE r3", lambda m, me: m.create_role(me, "r3")),
    Statement(
        "CREATE USER",
        "CREATE USER ann PASSWORD 'password one' CLEARANCE S{X}",
        lambda m, me: m.create_user(me, "ann", "password one", Level("S", frozenset("X"))),
    ),
    Statement(
        "CREATE USER",
        "CREATE USER bob PASSWORD 'password one' CLEARANCE C",
        lambda m, me: m.create_user(me, "bob", "password one", Level("C")),
    ),
    Statement(
        "GRANT ROLE", "GRANT ROLE r1, r3 TO USER ann", lambda m, me: m.grant_roles(me, ["r1", "r3"], ["ann"], ())
    ),
    Statement("GRANT ROLE", "GRANT ROLE r2 TO USER bob", lambda m, me: m.grant_roles(me, ["r2"], ["bob"], ())),
    Statement(
        "GRANT",
        "GRANT ADD ON SYSTEM TO r1, r2, r3",
        lambda m, me: m.grant(me, ["ADD"], Target("SYSTEM", "SYSTEM"), ["r1", "r2", "r3"], {}),
    ),
    Statement(
        "GRANT USE",
        "GRANT USE ON OPERATOR join TO PUBLIC WITH (streams = 2)",
        lambda m, me: m.grant(me, ["USE"], Target("OPERATOR", "join"), [EVERYONE], {"streams": 2}),
    ),
    Statement(
        "GRANT USE",
        "GRANT USE ON OPERATOR aggregate TO PUBLIC WITH (functions = ('x'))",
        lambda m, me: m.grant(me, ["USE"], Target("OPERATOR", "aggregate"), [EVERYONE], {"functions": ("x",)}),
    ),
]
_OBJECTS = [
    Statement("CREATE SCHEMA", "CREATE SCHEMA a (k INT)", lambda m, me: m.create_schema(me, "a", ["k"])),
    Statement(
        "CREATE STREAM",
        "CREATE STREAM a SCHEMA a",
        lambda m, me: m.create_stream(me, "a", Target("SCHEMA", "a"), None, "STRONG"),
    ),
    Statement(
        "GRANT",
        "GRANT VIEW OBJECT, READ TUPLE ON STREAM a TO r2",
        lambda m, me: m.grant(me, ["VIEW OBJECT", "READ TUPLE"], Target("STREAM", "a"), ["r2"], {}),
    ),
    Statement(
        "CREATE QUERY",
        "CREATE QUERY c READING a USING join (streams = 2) OUTPUT out1",
        lambda m, me: m.create_query(me, "c", [Target("STREAM", "a")], [("join", {"streams": 2})], "out1"),
    ),
    Statement("START QUERY", "START QUERY c", lambda m, me: m.set_status(me, Target("QUERY", "c"), running=True)),
]


# What is stored, in one form for both sides --------------------------------------------------------------------------


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

    def defined(kind: str, definition: str) -> object:
        d = json.loads(definition)
        columns = tuple(column["name"] for column in d.get("columns", ()))
        if kind == "QUERY":
            operators = tuple((name, limits(parameters)) for name, parameters in d["operators"])
            inputs = [keys[i] for i in d["inputs"]]
            return inputs, operators, keys[d["output"]], d["running"], d.get("broken", False)
        return {"SCHEMA": (columns,), "STREAM": (columns, d.get("label"), d.get("semantics"))}.get(kind)

    def limits(found: dict[str, object]) -> dict[str, object]:
        return {name: tuple(x) if isinstance(x, list) else x for name, x in found.items()}

    return {
        "users": {u.name: (u.clearance, u.locked, u.failures, u.locked_until) for u in state.users if u.name},
        "roles": {role.name: _role(role) for role in state.roles},
        "memberships": {(x.user, x.role) for x in state.memberships},
        "inheritances": {(x.senior, x.junior) for x in state.inheritances},
        "separations": {x.name: (x.dynamic, frozenset(x.roles), x.at_most) for x in state.separations},
        "levels": {x.name: frozenset(x.above) for x in state.levels if not x.retired},
        "retired": {x.name: frozenset(x.above) for x in state.levels if x.retired},
        "compartments": {x.name for x in state.compartments},
        "objects": {keys[x.id]: defined(x.kind, x.definition) for x in state.objects},
        "grants": {(keys[x.object], x.permission, x.role): limits(json.loads(x.limits)) for x in state.grants},
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


class Catalogs(RuleBasedStateMachine):
    tally = Tally()

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = Model(self.clock.now())
        self.gates: list[Headgate] = []
        self.tokens: list[str] = []  # every session there ever was
        self.resting: set[str] = set()  # sessions that nobody looks through, so that they can grow idle
        self.records = 0
        self.step = 0
        self.favourites: tuple[str, ...] = ()
        self.sound = True  # both sides agreed when they were last looked at
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    # Beginning and end ----------------------------------------------------------------------------------------------

    @initialize(
        place=st.integers(0, 19), populated=st.integers(0, 9), favourites=st.tuples(*[st.sampled_from(_ACTS)] * 2)
    )
    def begin(self, place: int, populated: int, favourites: tuple[str, ...]) -> None:
        """Mostly in memory; in one run of twenty, two systems share a file, as two processes would."""
        url = "sqlite://"
        if place == 19:
            self.folder = tempfile.TemporaryDirectory()
            url = f"sqlite:///{Path(self.folder.name) / 'store.db'}"
        self.favourites = favourites
        count = 2 if self.folder else 1
        self.gates = [Headgate(url, b"k" * 32, clock=self.clock, passwords=CHEAP) for _ in range(count)]
        self.gates[0].initialise(ROOT, PASSWORDS[0])
        self.model.initialise(ROOT, PASSWORDS[0])
        self.records = 1
        self.login(self.gates[0], ROOT, PASSWORDS[0], None, None)
        if populated:
            self.populate(self.gates[0])
        self.look(everything=True)

    def populate(self, gate: Headgate) -> None:
        """A catalog with some life in it; most runs begin here."""
        self.execute(gate, self.tokens[0], _POPULATION)
        self.login(gate, "ann", PASSWORDS[0], None, Level())
        self.execute(gate, self.tokens[1], _OBJECTS)
        self.login(gate, "ann", PASSWORDS[0], frozenset({"r1"}), None)
        self.login(gate, "bob", PASSWORDS[0], None, Level())

    def teardown(self) -> None:
        """Everything once more; the store holds what is in memory; the audit trail is whole."""
        try:
            if self.gates and self.sound:
                self.finish()
        finally:
            for gate in self.gates:
                gate.close()
            if self.folder:
                self.folder.cleanup()

    def finish(self) -> None:
        self.look(everything=True)
        for gate in self.gates:
            assert gate.verify_audit() == []
            assert gate.audit_head().count >= self.records
            fresh = State()
            with gate._store.locked() as connection:
                gate._store._load(connection, fresh)
            gate._store.refresh(gate._state)
            assert rows(fresh) == rows(gate._state)
        self.tally.sequences += 1
        self.tally.steps += self.step - 2  # all but the looks before the first and after the last

    # Acting ---------------------------------------------------------------------------------------------------------

    def gate(self, pick: Pick) -> Headgate:
        return pick.one(self.gates)

    def live(self) -> list[str]:
        return [token for token in self.tokens if token in self.model.sessions]

    def caller(self, pick: Pick) -> str:
        live = self.live()
        return pick.one(live) if live and not pick.chance(3) else pick.one(self.tokens)

    def user_of(self, token: str) -> str:
        return self.model.sessions[token].user if token in self.model.sessions else ROOT

    def login(
        self, gate: Headgate, user: str, password: str, roles: frozenset[str] | None, level: Level | None
    ) -> str | None:
        self.sound = False
        real = RealLevel(*level) if level else None
        token, got = attempt(lambda: gate.login(user, password, roles=roles, level=real))
        expected = self.model.login(token or "refused", user, password, roles, level)
        note(f"login of {user}, roles {roles and sorted(roles)}, level {level}: {got or 'granted'}")
        assert got == expected
        self.records += 1
        self.tally.outcomes["LOGIN", got or "granted"] += 1
        if token:
            self.tokens.append(token)
        return token

    def execute(self, gate: Headgate, token: str, statements: Sequence[Statement]) -> bool:
        self.sound = False
        text = "; ".join(statement.text for statement in statements)
        before = modelled(self.model)
        user, active = self.user_of(token), self.model.sessions.get(token)
        expected = self.model.run(token, [statement.action for statement in statements])
        _, got = attempt(lambda: gate.execute(token, text))
        level = f" at {active.level}, roles {sorted(active.roles)}" if active else ", session over"
        note(f"{user} (session {self.tokens.index(token)}{level}): {text} -> {got or 'granted'}")
        assert got == expected, f"{text}: the model says {expected or 'granted'}, the system {got or 'granted'}"
        assert expected is None or modelled(self.model) == before
        self.records += max(self.model.tried, 1)
        self.tally.statements += len(statements)
        for statement in statements if got is None else statements[-1:]:
            self.tally.outcomes[statement.kind, got or "granted"] += 1
        return got is None

    def request(self, pick: Pick, kind: str) -> None:
        """One statement; for the most part one that the model expects to succeed, if a few tries find one."""
        wanted = pick.chance(80)
        for _ in range(5):
            token = self.caller(pick)
            statement = Author(pick, self.model, self.user_of(token)).write(kind)
            if not wanted or self.model.copy().run(token, [statement.action]) is None:
                break
        granted = self.execute(self.gate(pick), token, [statement])
        self.look(everything=granted and statement.kind.startswith("REVOKE"))

    # Looking --------------------------------------------------------------------------------------------------------

    def look(self, *, everything: bool = False) -> None:
        """Both sides agree on what is stored, who is logged in, what they may do and what they are shown."""
        self.step += 1
        self.sound = False
        for gate in self.gates:
            self.look_at_sessions(gate)
            self.look_at_rights(gate, everything)
            assert stored(gate._state) == modelled(self.model)
            assert dangling(gate._state) == []
        self.look_at_catalogs()
        self.keep_an_administrator()
        self.sound = True

    def look_at_sessions(self, gate: Headgate) -> None:
        for token in self.tokens:
            principal, got = attempt(lambda token=token: gate.principal(token))  # type: ignore[misc]
            session = self.model.sessions.get(token)
            assert got == (None if session else "AuthenticationFailed"), f"session {self.tokens.index(token)}"
            if principal and session:
                found = (principal.user, principal.roles, str(principal.level))
                assert found == (session.user, self.model.active(session), str(session.level))

    def look_at_rights(self, gate: Headgate, everything: bool) -> None:
        things = self.model.things.values()
        targets = [Target(t.kind, t.name, t.owner or None) for t in things]
        targets += [Target(t.kind, t.name) for t in things if t.owner] + [Target("STREAM", UNKNOWN)]
        asked = [(token, p, t) for token in self.live() for t in targets for p in APPLIES[t.kind]]
        if not everything and len(asked) > CHECKS_PER_STEP:
            asked = random.Random(self.step).sample(asked, CHECKS_PER_STEP)
        for token, p, t in asked:
            expected = self.model.check(token, p, t)
            decision, got = attempt(lambda: gate.check(token, Permission(p), Kind(t.kind), t.name, t.owner))  # noqa: B023
            answer = got or bool(decision)
            about = f"{p} on {t.kind} {t} for session {self.tokens.index(token)}: {decision}"
            assert answer == expected, f"{about}: the model says {expected}, the system {answer}"
        self.tally.checks += len(asked)

    def look_at_catalogs(self) -> None:
        for token in self.live():
            if token in self.resting:
                continue
            session = self.model.sessions[token]
            gate = self.gates[self.step % len(self.gates)]
            expected = self.model.run(token, [lambda m, me: m.show_catalog(me)])
            answer, got = attempt(lambda: gate.execute(token, "SHOW CATALOG"))  # noqa: B023
            assert got == expected
            self.records += 1
            self.tally.outcomes["SHOW CATALOG", got or "granted"] += 1
            if answer:
                seen = [self.model.things[i] for i in self.model.visible(session)]
                shown = sorted((t.kind.lower(), t.name, t.owner, str(t.level)) for t in seen)
                assert sorted(answer[0].rows) == shown

    def keep_an_administrator(self) -> None:
        """Somebody can always log in and change the system, and here somebody is always logged in who may."""
        able = self.model.administrators()
        assert able
        if not any(self.model.allowed(session, "CHANGE SYSTEM", SYSTEM) for session in self.model.sessions.values()):
            name, roles = min(able.items(), key=lambda item: self.model.users[item[0]].locked_until)
            if self.model.users[name].locked_until > self.model.now:
                self.advance(self.model.users[name].locked_until - self.model.now)
            token = self.login(self.gates[0], name, self.model.users[name].password, roles, Level())
            assert token
            assert self.gates[0].check(token, Permission.CHANGE_SYSTEM, Kind.SYSTEM, "SYSTEM")

    def advance(self, seconds: float) -> None:
        note(f"{seconds} seconds pass")
        self.clock.advance(seconds)
        self.model.advance(seconds)

    # Rules ----------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """One rule that weighs its choices itself: hypothesis would choose as many separations as streams."""
        pick = Pick(data)
        what = pick.one(self.favourites) if pick.chance(30) else pick.one(_ACTS)
        other = {
            "script": self.script,
            "login": self.log_in,
            "logout": self.log_out,
            "time": self.time_passes,
            "wrong password": self.wrong_passwords,
        }
        if what in other:
            other[what](pick)
        else:
            self.request(pick, what)

    def script(self, pick: Pick) -> None:
        """Several statements by one session; in half of them the last is refused after the others were carried out."""
        token, fail = self.caller(pick), pick.chance(50)
        author, trial = Author(pick, self.model, self.user_of(token)), self.model.copy()
        statements = []
        for _ in range(pick.one((2, 3))):
            statement = author.write(pick.one(_ALL))
            if not fail or trial.run(token, [statement.action]) is None:
                statements.append(statement)
        if fail:
            name = f"{UNKNOWN}_here"
            statements.append(Statement("DROP ROLE", f"DROP ROLE {name}", lambda m, me: m.drop_role(me, name)))
        self.execute(self.gate(pick), token, statements)
        self.look()

    def log_in(self, pick: Pick) -> None:
        if len(self.live()) >= MOST_SESSIONS:
            self.end_one(pick)
        author = Author(pick, self.model, ROOT)
        name = author.a_user()
        known = self.model.users.get(name)
        password = known.password if known and not pick.chance(10) else pick.one((*PASSWORDS, "something else"))
        roles = None
        if pick.chance(50):
            roles = frozenset(pick.some(lambda: pick.name(sorted(self.model.authorised(name)), ROLES)))
        level = author.a_level() if pick.chance(60) else None
        token = self.login(self.gate(pick), name, password, roles, level)
        if token and pick.chance(30):
            self.resting.add(token)
        self.look()

    def log_out(self, pick: Pick) -> None:
        self.end_one(pick)
        self.look()

    def end_one(self, pick: Pick) -> None:
        gate, token = self.gate(pick), self.caller(pick)
        self.sound = False
        note(f"logout of session {self.tokens.index(token)}")
        _, got = attempt(lambda: gate.logout(token))
        assert got == self.model.logout(token)
        self.records += 1
        self.tally.outcomes["LOGOUT", got or "granted"] += 1

    def time_passes(self, pick: Pick) -> None:
        self.advance(60 * pick.one((1, 1, 6, 6, 15, 31, 61, 481)))
        self.look()

    def wrong_passwords(self, pick: Pick) -> None:
        gate, name = self.gate(pick), Author(pick, self.model, ROOT).a_user()
        for _ in range(pick.one((1, 2, 3))):
            self.login(gate, name, "not the password", None, None)
        self.look()


def run(sequences: int, steps: int) -> Tally:
    machine = type("Run", (Catalogs,), {"tally": Tally()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    tally: Tally = machine.tally  # type: ignore[attr-defined]
    print(tally)
    return tally


def test_the_system_does_what_the_plain_model_does() -> None:
    tally = run(sequences=60, steps=30)
    assert tally.sequences >= 60
    assert tally.steps >= 60 * 25


@pytest.mark.long
def test_the_system_does_what_the_plain_model_does_at_length() -> None:
    tally = run(sequences=2000, steps=50)
    assert tally.sequences >= 2000
    assert tally.steps >= 2000 * 45
    for kind in (*_ALL, *_SESSION_KINDS):
        outcomes = {outcome for k, outcome in tally.outcomes if k == kind}
        assert "granted" in outcomes and len(outcomes) > 1, f"{kind}: {outcomes}"
