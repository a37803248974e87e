"""A catalog with some life in it, as text for the system and as actions for the model: most runs begin here."""

from __future__ import annotations

from .drawing import Statement
from .model_values import EVERYONE, Level, Target

POPULATION = [
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
OBJECTS = [
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
