"""Statements as plain values without positions, so that golden cases can be written down in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from headgate.cql.continuous import CreateQueryAs
from headgate.cql.names import Name, Target
from headgate.cql.overload import Overload
from headgate.cql.statements import Statement
from headgate.errors import Position
from headgate.labels import Label, Level


def plain(value: object) -> object:
    """Dataclasses by their fields; names, targets, levels and labels as people write them."""
    match value:
        case Name():
            return value.text
        case Target():
            return [value.kind, value.name] if value.owner is None else [value.kind, value.name, value.owner]
        case Label() | Level() | Overload():
            return str(value)
        case Enum():
            return value.value
        case tuple():
            return [plain(member) for member in value]
        case Mapping():
            return {key: plain(member) for key, member in value.items()}
    if is_dataclass(value):
        left_out = ("text",) if isinstance(value, CreateQueryAs) else ()  # white space and all, as it was written
        shown = [f.name for f in fields(value) if f.type != "Position" and f.name not in left_out]
        return {name: plain(getattr(value, name)) for name in shown}
    return value


def plain_statement(statement: Statement) -> dict[str, object]:
    return {type(statement).__name__: plain(statement)}


def positions(value: object) -> list[Position]:
    """Every position inside a statement, in the order of its fields."""
    if isinstance(value, Position):
        return [value]
    if isinstance(value, tuple):
        return [place for member in value for place in positions(member)]
    if is_dataclass(value):
        return [place for f in fields(value) for place in positions(getattr(value, f.name))]
    return []
