"""The statements of the security language, as values. Every statement and every name knows where it stood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.cql.names import Limit, Name, Target
from headgate.cql.overload import REFUSE, Overload
from headgate.errors import Position
from headgate.labels.label import Label, Semantics
from headgate.labels.levels import Level


@dataclass(frozen=True)
class Statement:
    position: Position


@dataclass(frozen=True)
class Named(Statement):
    """A statement about one name and nothing else."""

    name: Name


# Users ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreateUser(Statement):
    name: Name
    password: str | None = field(repr=False)
    clearance: Level | None


@dataclass(frozen=True)
class AlterUser(Statement):
    """Changes come in the order they were written: ("PASSWORD", text), ("CLEARANCE", level), ("ADD KEY", text), ..."""

    name: Name
    changes: tuple[tuple[str, str | Level | None], ...] = field(repr=False)


@dataclass(frozen=True)
class CreateApiKey(Statement):
    """`user`: for whom, None for oneself; `roles`: all of them if None; `valid` in milliseconds."""

    name: Name
    user: Name | None
    roles: tuple[Name, ...] | None
    level: Level | None
    valid: int


@dataclass(frozen=True)
class DropApiKey(Statement):
    name: Name
    user: Name | None
    level: Level | None


@dataclass(frozen=True)
class DropUser(Statement):
    name: Name
    reassign_to: Name | None
    cascade: bool


# Roles and separation of duty ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreateRole(Statement):
    """`limits` are (`MAX QUERIES`, number) and so on; without a number there is none."""

    name: Name
    limits: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class AlterRole(Statement):
    """Limits that are not among these stay as they are."""

    name: Name
    limits: tuple[tuple[str, int | None], ...]
    owner: Name | None


@dataclass(frozen=True)
class DropRole(Named):
    pass


@dataclass(frozen=True)
class CreateSeparation(Statement):
    name: Name
    dynamic: bool
    roles: tuple[Name, ...]
    at_most: int


@dataclass(frozen=True)
class DropSeparation(Named):
    pass


# Levels -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreateLevel(Statement):
    name: Name
    above: tuple[Name, ...]


@dataclass(frozen=True)
class AlterLevel(Statement):
    """A level can only be raised: labels keep their maximal levels, and what was left out must stay covered."""

    name: Name
    above: tuple[Name, ...]


@dataclass(frozen=True)
class DropLevel(Named):
    pass


@dataclass(frozen=True)
class CreateCompartment(Named):
    pass


@dataclass(frozen=True)
class DropCompartment(Named):
    pass


# Schemas, streams, queries -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnDeclaration:
    name: Name
    type: str
    label: Label | None


@dataclass(frozen=True)
class CreateSchema(Statement):
    name: Name
    columns: tuple[ColumnDeclaration, ...]


@dataclass(frozen=True)
class AlterSchema(Statement):
    target: Target
    add: ColumnDeclaration | None
    drop: Name | None


@dataclass(frozen=True)
class Input:
    """Where a stream's tuples come from: a format of Spark's, with its options."""

    format: Name
    options: tuple[tuple[str, str], ...] = field(repr=False)


@dataclass(frozen=True)
class StreamStatement(Statement):
    """`label` is the stream's own policy, combined with the labels that tuples bring in `label_columns` (by what the
    column holds: LABEL, ROLES or LEVEL). Times in milliseconds."""

    name: Name
    columns: tuple[ColumnDeclaration, ...]
    schema: Target | None
    label: Label | None = None
    semantics: Semantics = Semantics.STRONG
    event_time: Name | None = None
    lateness: int = 0
    skew: int | None = None
    delay: int | None = None
    overload: Overload = REFUSE
    label_columns: tuple[tuple[str, Name], ...] = ()
    cumulative: bool = False
    source: Input | None = None


@dataclass(frozen=True)
class CreateStream(StreamStatement):
    """Tuples come one after the other, each with its time."""


@dataclass(frozen=True)
class CreateTable(StreamStatement):
    """A stream all of whose tuples are there from the beginning: it always has a source, and never times."""


@dataclass(frozen=True)
class AlterStream(Statement):
    target: Target
    add: ColumnDeclaration | None = None
    label: Label | None = None
    semantics: Semantics | None = None
    cumulative: bool | None = None


@dataclass(frozen=True)
class DropObject(Statement):
    target: Target


# Policies -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreatePolicy(Statement):
    """`rules` are SeNDlog's, and stand after the `$$` at `rules_at`."""

    name: Name
    rules: str = field(repr=False)
    rules_at: Position


@dataclass(frozen=True)
class DropPolicy(Named):
    pass


@dataclass(frozen=True)
class AcceptStatement(Statement):
    """What somebody signed for a policy."""

    message: str = field(repr=False)


# Rights -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GrantRoles(Statement):
    roles: tuple[Name, ...]
    to_users: tuple[Name, ...]
    to_roles: tuple[Name, ...]
    revoke: bool


@dataclass(frozen=True)
class GrantPermissions(Statement):
    permissions: tuple[str, ...]
    targets: tuple[Target, ...]
    roles: tuple[Name, ...]
    limits: Mapping[str, Limit] = field(repr=False)
    revoke: bool


# Session and system -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SetRoles(Statement):
    """`roles` is None for ALL."""

    roles: tuple[Name, ...] | None


@dataclass(frozen=True)
class SetSystem(Statement):
    name: Name
    value: str = field(repr=False)


@dataclass(frozen=True)
class Describe(Statement):
    """What one object is; `kinds` are the kinds of objects that are meant by the name."""

    kinds: tuple[str, ...]
    name: str
    owner: str | None


@dataclass(frozen=True)
class Show(Statement):
    what: str
    target: Target | None
    limit: int | None
    user: Name | None = None
