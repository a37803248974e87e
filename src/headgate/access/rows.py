"""The content of the catalog: one frozen row type per table. Names are keys; the numbers of objects are internal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from headgate.access.definitions import (
    Definition,
    Parameters,
    QueryDefinition,
    SchemaDefinition,
    StreamDefinition,
)
from headgate.errors import StoreError
from headgate.lexing import quote

D = TypeVar("D", SchemaDefinition, StreamDefinition, QueryDefinition)
Key = tuple[str | int, ...]


@dataclass(frozen=True)
class Row:
    table: ClassVar[str]
    key_fields: ClassVar[tuple[str, ...]]

    @property
    def key(self) -> Key:
        return tuple(getattr(self, field) for field in self.key_fields)


@dataclass(frozen=True)
class User(Row):
    table = "users"
    key_fields = ("name",)

    name: str
    password: str  # an argon2 hash; empty: no login by password
    clearance: str  # a level's text
    since: int = 0  # number of audit records at its creation: earlier ones are another user's
    failures: int = 0  # wrong passwords in a row, from places where it has not logged in before
    refused: int = 0  # logins refused, ever
    locked_until: float = 0.0  # for logins from such places
    locked: bool = False  # by an administrator, until unlocked
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Role(Row):
    table = "roles"
    key_fields = ("name",)

    name: str
    owner: str  # empty: the system
    max_queries: int | None = None  # how many queries of a user may run
    max_state: int | None = None  # how many tuples a query may keep for a view
    max_results: int | None = None  # how many results a query may emit to a view in a second


@dataclass(frozen=True)
class Membership(Row):
    """A user may activate a role."""

    table = "memberships"
    key_fields = ("user", "role")

    user: str
    role: str


@dataclass(frozen=True)
class Inheritance(Row):
    """The senior role has all permissions of the junior one."""

    table = "inheritances"
    key_fields = ("senior", "junior")

    senior: str
    junior: str


@dataclass(frozen=True)
class Separation(Row):
    """At most this many of these roles for one user (static) or in one session (dynamic)."""

    table = "separations"
    key_fields = ("name",)

    name: str
    dynamic: bool
    roles: tuple[str, ...]
    at_most: int


@dataclass(frozen=True)
class LevelRow(Row):
    table = "levels"
    key_fields = ("name",)

    name: str
    above: tuple[str, ...]
    retired: bool = False  # dropped; `above` then holds all levels that it was above


@dataclass(frozen=True)
class Compartment(Row):
    table = "compartments"
    key_fields = ("name",)

    name: str


@dataclass(frozen=True)
class Object(Row):
    """SYSTEM, operators, schemas, streams, queries. An empty owner is the system itself."""

    table = "objects"
    key_fields = ("id",)

    id: int
    kind: str
    owner: str
    level: str
    name: str
    definition: Definition

    @property
    def schema(self) -> SchemaDefinition:
        return self._defined_as(SchemaDefinition)

    @property
    def stream(self) -> StreamDefinition:
        return self._defined_as(StreamDefinition)

    @property
    def query(self) -> QueryDefinition:
        return self._defined_as(QueryDefinition)

    def _defined_as(self, kind: type[D]) -> D:
        if isinstance(self.definition, kind):
            return self.definition
        name = f"{self.kind.lower()} {quote(self.owner)}.{quote(self.name)}"
        raise StoreError(
            f"cannot use {name}: its definition in the store is damaged", hint="drop it, or restore a backup"
        )


@dataclass(frozen=True)
class Grant(Row):
    table = "grants"
    key_fields = ("object", "permission", "role")

    object: int
    permission: str
    role: str
    kind: str  # kind, name and level of an object never change; copied here so that a role's views are found by them
    name: str
    level: str
    limits: Parameters  # of USE: the most that parameters of the operator may be; none: any
    grantor: str


@dataclass(frozen=True)
class Session(Row):
    """The token itself is not stored: only its hash. A session with a `name` is an API key: nobody logs in
    for it, and it does not become idle."""

    table = "sessions"
    key_fields = ("token_hash",)

    token_hash: str
    id: str  # its name for people and in the audit trail
    user: str
    roles: tuple[str, ...]
    level: str
    created: float
    last_used: float
    expires: float
    name: str = ""


@dataclass(frozen=True)
class Subscription(Row):
    """A user subscribes to the results of a stream, at a level and with some roles, until UNSUBSCRIBE."""

    table = "subscriptions"
    key_fields = ("user", "level", "stream")

    user: str
    level: str  # of the session that subscribed
    stream: int
    number: int  # unique: a user who subscribes again later starts anew
    roles: tuple[str, ...]  # active when it subscribed; those that the user still has count


@dataclass(frozen=True)
class LoginSource(Row):
    """A place from which a user has logged in before: wrong passwords from there are counted apart from all others."""

    table = "login_sources"
    key_fields = ("user", "source")

    user: str
    source: str
    last_used: float
    failures: int = 0
    locked_until: float = 0.0


@dataclass(frozen=True)
class Parameter(Row):
    table = "parameters"
    key_fields = ("name",)

    name: str
    value: str


@dataclass(frozen=True)
class SourceName(Row):
    """A name that some stream had as a source in labels. It is never assigned again: old tuples still carry it."""

    table = "source_names"
    key_fields = ("name",)

    name: str
    used: int  # how many streams had it; later ones have a number appended


@dataclass(frozen=True)
class Policy(Row):
    """Rules whose derived rights count as far as its owner could grant them."""

    table = "policies"
    key_fields = ("name",)

    name: str
    owner: str
    address: str  # random, new for each policy: what is signed for one can be used for no other
    roles: tuple[str, ...]  # the owner's, active when it was created; those that the owner still has count
    rules: str


@dataclass(frozen=True)
class PolicyStatement(Row):
    """What somebody said to a policy and has not taken back."""

    table = "policy_statements"
    key_fields = ("policy", "digest")

    policy: str
    digest: str  # of speaker, predicate and arguments
    speaker: str
    predicate: str
    arguments: str  # JSON
    signer: str  # the public key that signed it, one of the speaker's
    proof: str  # JSON: the signature, with what was signed
    accepted: float


@dataclass(frozen=True)
class PolicyNumber(Row):
    """The last number that a key has signed for a policy: lower ones were used, or came too late."""

    table = "policy_numbers"
    key_fields = ("policy", "signer")

    policy: str
    signer: str
    epoch: int
    number: int


ROWS: tuple[type[Row], ...] = (
    User,
    Role,
    Membership,
    Inheritance,
    Separation,
    LevelRow,
    Compartment,
    Object,
    Grant,
    Session,
    Subscription,
    LoginSource,
    Parameter,
    SourceName,
    Policy,
    PolicyStatement,
    PolicyNumber,
)
