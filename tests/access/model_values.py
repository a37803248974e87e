"""What the model knows of: levels, users, roles, objects, sessions, how statements name them, and how it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Limit = int | float | tuple[str, ...]
Limits = Mapping[str, Limit]
Refusal = Literal["AccessDenied", "AuthenticationFailed", "Conflict", "LabelError", "NotFound"]

EVERYONE, ADMIN, LEAST = "PUBLIC", "ADMIN", "U"
SYSTEM = 0
APPLIES: Mapping[str, tuple[str, ...]] = {
    "SYSTEM": ("VIEW CATALOG", "VIEW AUDIT", "ADD", "CHANGE PERM", "CHANGE SYSTEM"),
    "SCHEMA": ("VIEW OBJECT", "CHANGE PERM"),
    "STREAM": ("VIEW OBJECT", "SUBSCRIBE", "READ TUPLE", "AGGREGATE READ", "PUBLISH", "CHANGE PERM"),
    "QUERY": ("VIEW OBJECT", "SET QUERY STATUS", "CHANGE PERM"),
    "OPERATOR": ("USE",),
}
WRITES = ("SET QUERY STATUS", "PUBLISH", "CHANGE PERM", "CHANGE SYSTEM")
# Operators with their parameters, and whether those are numbers or strings.
OPERATORS: Mapping[str, Mapping[str, str]] = {
    "select": {},
    "project": {},
    "union": {},
    "distinct": {},
    "join": {"streams": "number"},
    "aggregate": {"functions": "strings", "groups": "number"},
    "window": {"rows": "number", "seconds": "number", "kinds": "strings"},
}
PARAMETERS = {
    "session_minutes": "480",
    "idle_minutes": "30",
    "lockout_failures": "5",
    "lockout_minutes": "15",
    "max_sessions": "20",
    "default_rights": "OWNER",
}


class Refused(Exception):
    def __init__(self, kind: Refusal) -> None:
        super().__init__(kind)
        self.kind = kind


def refuse_if(wrong: bool, kind: Refusal) -> None:
    if wrong:
        raise Refused(kind)


class Level(NamedTuple):
    name: str = LEAST
    compartments: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name + (f"{{{', '.join(sorted(self.compartments))}}}" if self.compartments else "")


BOTTOM = Level()


class Label(NamedTuple):
    """A label in canonical form, and the one level it names."""

    text: str
    level: Level = BOTTOM


@dataclass(frozen=True)
class User:
    password: str
    clearance: Level = BOTTOM
    locked: bool = False
    failures: int = 0
    locked_until: float = 0.0


@dataclass(frozen=True)
class Role:
    owner: str
    max_queries: int | None = None
    max_state: int | None = None
    max_results: int | None = None


@dataclass(frozen=True)
class Separation:
    dynamic: bool
    roles: frozenset[str]
    at_most: int


@dataclass(frozen=True)
class Thing:
    """Any object; each kind uses some of the fields."""

    kind: str
    owner: str
    level: Level
    name: str
    columns: tuple[str, ...] = ()
    label: str = "TRUE"
    semantics: str = "STRONG"
    inputs: tuple[int, ...] = ()
    operators: tuple[tuple[str, Limits], ...] = ()
    roles: frozenset[str] = frozenset()  # those it was created with
    output: int = -1
    running: bool = False
    broken: bool = False

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.kind, self.owner, str(self.level), self.name


@dataclass(frozen=True)
class Session:
    user: str
    roles: frozenset[str]
    level: Level
    last_used: float
    expires: float


class Target(NamedTuple):
    """How a statement names an object."""

    kind: str
    name: str
    owner: str | None = None

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


@dataclass
class Caller:
    """Who runs a script: the session as the script sees it, which may end before the script does."""

    token: str
    session: Session

    @property
    def user(self) -> str:
        return self.session.user


Change = tuple[str, str | Level | None]


def once(names: Sequence[str]) -> Sequence[str]:
    return list(dict.fromkeys(names))


def within(limits: Limits, parameters: Limits) -> bool:
    """Every limited parameter is given, and is no more, or nothing else, than the limit."""
    for name, limit in limits.items():
        given = parameters.get(name)
        if isinstance(limit, tuple):
            if not isinstance(given, tuple) or not {*given} <= {*limit}:
                return False
        elif given is None or isinstance(given, tuple) or given > limit:
            return False
    return True
