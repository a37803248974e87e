"""The permissions of OxRBAC (paper 000, section 3.1) and what they apply to."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Permission(StrEnum):
    __hash__ = str.__hash__  # every decision looks some of these up, and Enum's own hash is slow

    VIEW_CATALOG = "VIEW CATALOG"
    VIEW_OBJECT = "VIEW OBJECT"
    VIEW_AUDIT = "VIEW AUDIT"
    ADD = "ADD"
    SET_QUERY_STATUS = "SET QUERY STATUS"
    SUBSCRIBE = "SUBSCRIBE"
    READ_TUPLE = "READ TUPLE"
    AGGREGATE_READ = "AGGREGATE READ"
    PUBLISH = "PUBLISH"
    CHANGE_PERM = "CHANGE PERM"
    CHANGE_SYSTEM = "CHANGE SYSTEM"
    USE = "USE"


class Kind(StrEnum):
    SYSTEM = "SYSTEM"
    SCHEMA = "SCHEMA"
    STREAM = "STREAM"
    QUERY = "QUERY"
    OPERATOR = "OPERATOR"


P = Permission
APPLIES: Mapping[Kind, frozenset[Permission]] = {
    Kind.SYSTEM: frozenset({P.VIEW_CATALOG, P.VIEW_AUDIT, P.ADD, P.CHANGE_PERM, P.CHANGE_SYSTEM}),
    Kind.SCHEMA: frozenset({P.VIEW_OBJECT, P.CHANGE_PERM}),
    Kind.STREAM: frozenset({P.VIEW_OBJECT, P.SUBSCRIBE, P.READ_TUPLE, P.AGGREGATE_READ, P.PUBLISH, P.CHANGE_PERM}),
    Kind.QUERY: frozenset({P.VIEW_OBJECT, P.SET_QUERY_STATUS, P.CHANGE_PERM}),
    Kind.OPERATOR: frozenset({P.USE}),
}

# The permissions to change an object: allowed only at exactly the object's level (the restricted star property, paper
# 002).
WRITES = frozenset({P.SET_QUERY_STATUS, P.PUBLISH, P.CHANGE_PERM, P.CHANGE_SYSTEM})

# The permissions that the creator's roles receive when the system's parameter default_rights is ROLE.
ROLE_DEFAULTS: Mapping[Kind, tuple[Permission, ...]] = {
    Kind.SCHEMA: (P.VIEW_OBJECT,),
    Kind.STREAM: (P.VIEW_OBJECT, P.SUBSCRIBE, P.READ_TUPLE),
    Kind.QUERY: (P.VIEW_OBJECT,),
}

# Operators and the parameters that a grant may limit: a number is the maximum, strings are all that is allowed.
OPERATORS: Mapping[str, Mapping[str, type]] = {
    "select": {},
    "project": {},
    "union": {},
    "distinct": {},
    "join": {"streams": int},
    "aggregate": {"functions": str, "groups": int},
    "window": {"rows": int, "seconds": float, "kinds": str},
}
