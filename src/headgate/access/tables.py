"""The SQL side of the rows: one table per row type, and the conversion of rows to columns and back."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_type_hints

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from headgate.access import rows as r
from headgate.access.definitions import read_definition, read_limits, write_definition, write_limits

metadata = MetaData()


def _reference(column: str) -> ForeignKey:
    """Checked when the transaction commits, so the order of writes inside it does not matter."""
    return ForeignKey(column, deferrable=True, initially="DEFERRED")


Table(
    "users",
    metadata,
    Column("name", Text, primary_key=True),
    Column("password", Text, nullable=False),
    Column("clearance", Text, nullable=False),
    Column("since", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("refused", Integer, nullable=False),
    Column("locked_until", Double, nullable=False),
    Column("locked", Boolean, nullable=False),
    Column("keys", Text, nullable=False),
)
Table(
    "roles",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("max_queries", Integer),
    Column("max_state", Integer),
    Column("max_results", Integer),
)
Table(
    "memberships",
    metadata,
    Column("user", Text, _reference("users.name"), primary_key=True),
    Column("role", Text, _reference("roles.name"), primary_key=True),
)
Table(
    "inheritances",
    metadata,
    Column("senior", Text, _reference("roles.name"), primary_key=True),
    Column("junior", Text, _reference("roles.name"), primary_key=True),
)
Table(
    "separations",
    metadata,
    Column("name", Text, primary_key=True),
    Column("dynamic", Boolean, nullable=False),
    Column("roles", Text, nullable=False),
    Column("at_most", Integer, nullable=False),
)
Table(
    "levels",
    metadata,
    Column("name", Text, primary_key=True),
    Column("above", Text, nullable=False),
    Column("retired", Boolean, nullable=False),
)
Table("source_names", metadata, Column("name", Text, primary_key=True), Column("used", Integer, nullable=False))
Table("compartments", metadata, Column("name", Text, primary_key=True))
Table(
    "objects",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("definition", Text, nullable=False),
    UniqueConstraint("kind", "owner", "level", "name"),
)
Table(
    "grants",
    metadata,
    Column("object", Integer, _reference("objects.id"), primary_key=True),
    Column("permission", Text, primary_key=True),
    Column("role", Text, _reference("roles.name"), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("limits", Text, nullable=False),
    Column("grantor", Text, nullable=False),
    Index("grants_by_role", "role"),
)
Table(
    "sessions",
    metadata,
    Column("token_hash", Text, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("user", Text, _reference("users.name"), nullable=False),
    Column("roles", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("last_used", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("name", Text, nullable=False, server_default=text("''")),
)
Table(
    "subscriptions",
    metadata,
    Column("user", Text, _reference("users.name"), primary_key=True),
    Column("level", Text, primary_key=True),
    Column("stream", Integer, _reference("objects.id"), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("roles", Text, nullable=False),
)
Table(
    "login_sources",
    metadata,
    Column("user", Text, _reference("users.name"), primary_key=True),
    Column("source", Text, primary_key=True),
    Column("last_used", Double, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("locked_until", Double, nullable=False),
)
Table("parameters", metadata, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))
Table(
    "policies",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, _reference("users.name"), nullable=False),
    Column("address", Text, nullable=False, unique=True),
    Column("roles", Text, nullable=False),
    Column("rules", Text, nullable=False),
)
Table(
    "policy_statements",
    metadata,
    Column("policy", Text, _reference("policies.name"), primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("speaker", Text, _reference("users.name"), nullable=False),
    Column("predicate", Text, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("signer", Text, nullable=False),
    Column("proof", Text, nullable=False),
    Column("accepted", Double, nullable=False),
)
Table(
    "policy_numbers",
    metadata,
    Column("policy", Text, _reference("policies.name"), primary_key=True),
    Column("signer", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
)
# Why policies gave rights, and the rules they did it by: found by the SHA-256 of the text, which audit records name.
proofs = Table(
    "proofs",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("text", Text, nullable=False),
)

# One row that every writer locks: the version of the catalog and the head of the audit trail.
head = Table(
    "head",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("next_object", Integer, nullable=False),
    Column("audit_count", Integer, nullable=False),
    Column("audit_mac", Text, nullable=False),
    Column("audit_seal", Text, nullable=False),
)
# Who publishes results at this moment, on a server: see `leases`.
leases = Table(
    "leases",
    metadata,
    Column("holder", Text, primary_key=True),
    Column("expires", Double, nullable=False),
)
# The latest changes, so that other processes catch up without reading everything again.
change_log = Table(
    "change_log",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("item", Integer, primary_key=True, autoincrement=False),
    Column("table", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("row", Text),
)
# Selects actions on objects of other users: the text of an object begins with a kind and `owner.`, see
# `authorizer.shown`. Actions on a user's own objects, which are most, are found by user.
BY_OTHERS = text("""substr(ltrim("object", 'abcdefghijklmnopqrstuvwxyz'), 2, length("user") + 1) <> "user" || '.'""")
audit = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("time", Double, nullable=False),
    Column("user", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("granted", Boolean().with_variant(Integer, "sqlite"), nullable=False),  # read back unchanged
    Column("reason", Text, nullable=False),
    Column("mac", Text, nullable=False),
    Index("audit_by_level", "level"),
    Index("audit_by_user", "user"),
    Index("audit_by_object", "object"),  # where BY_OTHERS: the migration says so; here it would load every dialect
)
# Numbers of labels and sources, from earlier versions: nothing reads or writes them any more.
numbering = Table(
    "numbering",
    metadata,
    Column("space", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("digest", Text, nullable=False),  # of the text, which may be longer than an index allows
    Column("text", Text, nullable=False),
    UniqueConstraint("space", "digest"),
)

_LISTS = {
    row: frozenset(name for name, hint in get_type_hints(row).items() if hint == tuple[str, ...]) for row in r.ROWS
}
_FIELDS = {row: tuple(field.name for field in fields(row)) for row in r.ROWS}
ROW_TYPES = {row.table: row for row in r.ROWS}


def to_columns(row: r.Row) -> dict[str, Any]:
    columns = {name: getattr(row, name) for name in _FIELDS[type(row)]}
    columns |= {name: json.dumps(columns[name]) for name in _LISTS[type(row)]}
    if isinstance(row, r.Object):
        columns["definition"] = write_definition(row.definition)
    elif isinstance(row, r.Grant):
        columns["limits"] = write_limits(row.limits)
    return columns


def from_columns(kind: type[r.Row], columns: dict[str, Any]) -> r.Row:
    values = {name: columns[name] for name in _FIELDS[kind]}
    values |= {name: tuple(json.loads(values[name])) for name in _LISTS[kind]}
    if kind is r.Object:
        values["definition"] = read_definition(values["kind"], values["definition"])
    elif kind is r.Grant:
        values["limits"] = read_limits(values["limits"])
    return kind(**values)
