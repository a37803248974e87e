"""Operators are shared if they are the same, and no names make two that differ look alike."""

from __future__ import annotations

from conftest import System

from .wards import definition, refused, roots


def test_no_column_is_taken_for_the_level_of_its_tuple(ward: System) -> None:
    """`SELECT *` of a column called LEVEL would be the same operator as SELECT LEVEL."""
    for script in (
        "CREATE STREAM s (LEVEL INT)",
        "CREATE SCHEMA s (LEVEL STRING)",
        "CREATE SCHEMA t (a INT); ALTER SCHEMA t ADD COLUMN LEVEL INT",
        "CREATE QUERY q AS SELECT bp AS LEVEL FROM vitals",
        "CREATE QUERY q AS SELECT bp AS `LEVEL` FROM vitals",
        "CREATE STREAM s (level STRING)",
        "CREATE STREAM s (a INT, Level STRING)",
        "CREATE TABLE s (level STRING) SOURCE csv (path = '/x')",
        "CREATE QUERY q AS SELECT bp AS level FROM vitals",
        "CREATE QUERY q AS SELECT LEVEL AS Level FROM vitals",
    ):
        assert "must not be called" in refused(ward, script).message
    ward.run("CREATE QUERY q AS SELECT LEVEL, vitals.* FROM vitals; START QUERY q")
    assert definition(ward, "STREAM", "q")["columns"][0] == {"name": "level", "type": "STRING"}
    ward.run("CREATE QUERY a AS SELECT * FROM q; CREATE QUERY b AS SELECT LEVEL, sid, bp, awake, name FROM q")
    ward.run("START QUERY a; START QUERY b")
    assert len({root.key for root in roots(ward.headgate).values()}) == 3


def test_no_column_has_a_name_that_stands_beside_columns(ward: System) -> None:
    """Such streams could be created, and were not read, or their results not written."""
    for script in (
        "CREATE STREAM s (_metadata STRING)",
        "CREATE STREAM s (Headgate_Time TIMESTAMP)",
        "CREATE TABLE s (headgate_file STRING) SOURCE csv (path = '/x')",
        "CREATE SCHEMA t (a INT); ALTER SCHEMA t ADD COLUMN headgate_label INT",
        "CREATE QUERY q AS SELECT bp AS headgate_block FROM vitals",
    ):
        assert "must not be called" in refused(ward, script).message


ODD_NAMES = ("a", "a@1", "a, b", "a AS b", "`", "``", "'", '"', "a|b", "TRUE", "NULL", "1", "a = b", "all", "é")


def test_odd_names_do_not_make_two_operators_look_alike(ward: System) -> None:
    columns = "name STRING, " + ", ".join('"' + name.replace('"', '""') + '" STRING' for name in ODD_NAMES)
    ward.run(f'CREATE STREAM "o|d,d" ({columns}); CREATE STREAM "o|d" ({columns})')
    items = ["`" + name.replace("`", "``") + "`" for name in ODD_NAMES] + ["'a'", "'`a`'", "'a, b'", "LEVEL", "'''a'"]
    made = 0
    for stream in ('"o|d,d"', '"o|d"'):
        for item in items:
            for rest in (" AS x", " AS `x AS y`", f" AS x, {item} AS y"):
                ward.run(f"CREATE QUERY q{made} AS SELECT {item}{rest} FROM {stream}; START QUERY q{made}")
                made += 1
            ward.run(f"CREATE QUERY q{made} AS SELECT 1 AS x FROM {stream} WHERE name = {item}; START QUERY q{made}")
            made += 1
    found = roots(ward.headgate).values()
    assert len({root.key for root in found}) == len(set(found)) == made
