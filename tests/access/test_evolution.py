"""Definitions that change while others use them: new columns, replaced queries, grants on several objects, DESCRIBE."""

from __future__ import annotations

import pytest
from conftest import System

from headgate.access.permissions import Kind, Permission
from headgate.errors import AccessDenied, Conflict, NotFound

WARD = """
CREATE ROLE nurse; CREATE ROLE doctor;
CREATE USER ann PASSWORD 'correct horse'; GRANT ROLE nurse TO USER ann;
CREATE STREAM s (a INT, policy STRING) ROLES FROM policy SOURCE publish;
CREATE STREAM t (b INT);
CREATE STREAM hidden (c INT);
CREATE QUERY q AS SELECT * FROM s;
CREATE QUERY both AS SELECT a, b FROM s [ROWS 1], t [ROWS 1];
START QUERY q; START QUERY both;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM q TO nurse;
GRANT VIEW OBJECT ON QUERY q TO nurse
"""


def described(system: System, text: str, token: str = "") -> list[tuple[str, str]]:
    (found,) = system.run(f"DESCRIBE {text}", token) if token else system.run(f"DESCRIBE {text}")
    return [(row[1], row[2]) for row in found.rows]


def columns(system: System, name: str) -> list[str]:
    return [value for what, value in described(system, f"STREAM {name}") if what == "column"]


def test_a_query_keeps_the_columns_that_it_was_written_over(sqlite_system: System) -> None:
    system = sqlite_system
    system.run(WARD)
    said = system.run("ALTER STREAM s ADD COLUMN b INT; ALTER STREAM t ADD COLUMN a INT")  # now both names have two
    but = "the column is not in what was written before; replace"
    assert [x.text for x in said] == [
        f"stream root.s altered; {but} query root.both, query root.q to use it",
        f"stream root.t altered; {but} query root.both to use it",
    ]
    assert columns(system, "s") == ["a INT", "policy STRING", "b INT"]
    assert columns(system, "q") == ["a INT", "policy STRING"]
    system.run("STOP QUERY q; START QUERY q; STOP QUERY both; START QUERY both")
    assert {row[0]: row[-1] for row in system.rows("SHOW QUERIES")} == {"q": "running", "both": "running"}
    assert set(system.headgate.snapshot().unfit) == set()
    system.run("CREATE QUERY later AS SELECT * FROM s")
    assert columns(system, "later") == ["a INT", "policy STRING", "b INT"]


def test_queries_that_the_owner_of_a_stream_may_not_see_are_not_named(sqlite_system: System) -> None:
    system = sqlite_system
    system.run(f"{WARD}; GRANT ADD ON SYSTEM TO nurse")
    ann = system.login("ann")
    system.run("CREATE STREAM own (a INT)", ann)
    system.run("CREATE QUERY mine AS SELECT * FROM own; GRANT VIEW OBJECT, READ TUPLE ON STREAM own TO ADMIN", ann)
    system.run("CREATE QUERY hers AS SELECT * FROM ann.own; START QUERY hers")
    (said,) = system.run("ALTER STREAM own ADD COLUMN b INT", ann)
    assert said.text == (
        "stream ann.own altered; the column is not in what was written before; replace query ann.mine to use it"
    )


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ("q", "its query makes its columns"),
        ("lines", "must have all columns"),
        ("wards", "must have all columns"),
        ("s", "already a column"),
    ],
)
def test_a_column_is_added_where_rows_may_be_without_it(sqlite_system: System, stream: str, says: str) -> None:
    sqlite_system.run(WARD)
    sqlite_system.run(
        "CREATE STREAM lines (a INT) SOURCE csv (path = '/nowhere');"
        "CREATE TABLE wards (a INT) SOURCE json (path = '/nowhere')"
    )
    with pytest.raises(Conflict, match=says):
        sqlite_system.run(f"ALTER STREAM {stream} ADD COLUMN A INT")


def test_a_label_of_a_new_column_protects_it(sqlite_system: System) -> None:
    sqlite_system.run(WARD)
    sqlite_system.run("ALTER STREAM s ADD COLUMN name STRING LABEL 'doctor'")
    assert columns(sqlite_system, "s")[-1] == "name STRING LABEL 'doctor'"


def test_a_replaced_query_keeps_its_output_its_grants_and_its_status(sqlite_system: System) -> None:
    system = sqlite_system
    system.run(WARD)
    ann = system.login("ann")
    system.run("SUBSCRIBE TO root.q", ann)
    grants = system.rows("SHOW GRANTS ON STREAM q")
    system.run("CREATE OR REPLACE QUERY q AS SELECT a, policy, a + 1 AS more FROM s WHERE a > 0")
    assert columns(system, "q") == ["a INT", "policy STRING", "more BIGINT"]
    assert dict(described(system, "QUERY q"))["text"] == "SELECT a, policy, a + 1 AS more FROM s WHERE a > 0"
    assert dict(described(system, "QUERY q"))["status"] == "running"
    assert system.rows("SHOW GRANTS ON STREAM q") == grants
    assert [row[:2] for row in system.rows("SHOW SUBSCRIPTIONS", ann)] == [("q", "root")]
    assert [row[5] for row in system.rows("SHOW AUDIT") if row[4] == "REPLACE QUERY"] == ["query root.q"]


def test_or_replace_creates_a_query_that_there_is_not(sqlite_system: System) -> None:
    sqlite_system.run(WARD)
    (said,) = sqlite_system.run("CREATE OR REPLACE QUERY new AS SELECT a FROM s")
    assert said.text == "query root.new created, with output stream root.new"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT a FROM s", "must begin with the columns a INT, policy STRING"),
        ("SELECT policy, a FROM s", "must begin with"),
        ("SELECT CAST(a AS DOUBLE) AS a, policy FROM s", "must begin with"),
        ("SELECT a, policy FROM q", "would read its own results"),
        ("SELECT a, policy FROM next", "would read its own results"),
    ],
)
def test_a_replacement_that_readers_cannot_follow_is_refused(sqlite_system: System, text: str, says: str) -> None:
    sqlite_system.run(WARD)
    sqlite_system.run("CREATE QUERY next AS SELECT a, policy FROM q")
    with pytest.raises(Conflict, match=says):
        sqlite_system.run(f"CREATE OR REPLACE QUERY q AS {text}")
    assert dict(described(sqlite_system, "QUERY q"))["text"] == "SELECT * FROM s"


def test_a_replacement_keeps_the_mode(sqlite_system: System) -> None:
    """Readers of a cumulative query are served by level: their subscriptions would be others."""
    sqlite_system.run(WARD)
    sqlite_system.run("ALTER STREAM s ALLOW CUMULATIVE; CREATE QUERY shared CUMULATIVE AS SELECT a FROM s")
    says = "cannot replace query root.q: it is exact, and the new one is cumulative "
    with pytest.raises(Conflict, match=says):
        sqlite_system.run("CREATE OR REPLACE QUERY q CUMULATIVE AS SELECT * FROM s")
    says = "cannot replace query root.shared: it is cumulative, and the new one is exact "
    with pytest.raises(Conflict, match=says):
        sqlite_system.run("CREATE OR REPLACE QUERY shared AS SELECT a FROM s")


def test_a_replacement_needs_the_rights_of_a_new_query(sqlite_system: System) -> None:
    system = sqlite_system
    system.run(WARD)
    system.run("GRANT ADD ON SYSTEM TO nurse; GRANT READ TUPLE ON STREAM q TO nurse")
    ann = system.login("ann")
    system.run("CREATE QUERY mine AS SELECT a FROM root.q", ann)
    with pytest.raises(NotFound, match=r"there is no stream root\.hidden"):
        system.run("CREATE OR REPLACE QUERY mine AS SELECT c AS a FROM root.hidden", ann)
    system.run("REVOKE ADD ON SYSTEM FROM nurse")
    with pytest.raises(AccessDenied, match="ADD on system"):
        system.run("CREATE OR REPLACE QUERY mine AS SELECT a FROM root.q", ann)


def test_nobody_replaces_the_query_of_another(sqlite_system: System) -> None:
    """Names belong to owners: the same words create a query of one's own."""
    system = sqlite_system
    system.run(WARD)
    system.run("GRANT ADD ON SYSTEM TO nurse")
    ann = system.login("ann")
    (said,) = system.run("CREATE OR REPLACE QUERY q AS SELECT a FROM root.q", ann)
    assert said.text.startswith("query ann.q created")
    assert dict(described(system, "QUERY root.q"))["text"] == "SELECT * FROM s"


def test_a_replacement_gives_no_cumulative_query_what_its_owner_has_not_allowed(sqlite_system: System) -> None:
    """The attack: a cumulative query over an output is checked when it is created; then the output is replaced."""
    system = sqlite_system
    system.run(
        """CREATE STREAM open (a INT) ALLOW CUMULATIVE; CREATE STREAM closed (a INT);
        CREATE QUERY o AS SELECT a FROM open; ALTER STREAM o ALLOW CUMULATIVE;
        CREATE QUERY sum CUMULATIVE AS SELECT SUM(a) AS n FROM o [UNBOUNDED];
        START QUERY o; START QUERY sum"""
    )
    system.run("CREATE OR REPLACE QUERY o AS SELECT a FROM open WHERE a > 0")
    assert dict(described(system, "QUERY sum"))["status"] == "running"
    system.run("CREATE OR REPLACE QUERY o AS SELECT a FROM closed")
    assert dict(described(system, "QUERY sum"))["status"] == "stopped"


def test_a_grant_on_several_streams_is_whole_or_not_at_all(sqlite_system: System) -> None:
    system = sqlite_system
    system.run(WARD)
    (said,) = system.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM s, t, s TO nurse")
    assert said.text == "VIEW OBJECT, READ TUPLE on stream root.s, stream root.t granted to nurse"
    ann = system.login("ann")
    assert {row[0] for row in system.rows("SHOW STREAMS", ann)} == {"s", "t", "q"}
    with pytest.raises(NotFound, match="there is no stream nosuch"):
        system.run("REVOKE VIEW OBJECT ON STREAM s, nosuch FROM nurse")
    with pytest.raises(Conflict, match="does not hold"):
        system.run("REVOKE VIEW OBJECT ON STREAM s, hidden FROM nurse")
    assert system.headgate.check(ann, Permission.VIEW_OBJECT, Kind.STREAM, "s", "root")
    system.run("REVOKE VIEW OBJECT ON STREAM s, t FROM nurse")
    assert {row[0] for row in system.rows("SHOW STREAMS", ann)} == {"q"}


def test_describe_tells_each_caller_what_it_may_see(sqlite_system: System) -> None:
    system = sqlite_system
    system.run(WARD)
    system.run(
        """CREATE STREAM full (at TIMESTAMP, pat INT, label STRING, lev STRING, name STRING LABEL 'doctor')
        EVENT TIME at LATENESS 90 SECONDS SKEW 1 MINUTE DELAY 1500 MILLISECONDS OVERLOAD SAMPLE 2.5 PERCENT
        LABEL FROM label LEVEL FROM lev
        LABEL 'nurse' SEMANTICS WEAK ALLOW CUMULATIVE
        SOURCE kafka (subscribe = 'beats', "kafka.sasl.password" = 'it is a secret', path = 's3a://me:pw@bucket');
        GRANT VIEW OBJECT ON STREAM full TO nurse"""
    )
    assert described(system, "full") == [
        ("level", "U"),
        ("name in labels", "root.full"),
        ("column", "at TIMESTAMP"),
        ("column", "pat INT"),
        ("column", "label STRING"),
        ("column", "lev STRING"),
        ("column", "name STRING LABEL 'doctor'"),
        ("event time", "at"),
        ("label from", "label"),
        ("level from", "lev"),
        ("lateness", "90 SECONDS"),
        ("skew", "1 MINUTE"),
        ("delay", "1500 MILLISECONDS"),
        ("overload", "SAMPLE 2.5 PERCENT"),
        ("label", "nurse"),
        ("semantics", "WEAK"),
        ("cumulative queries", "allowed"),
        ("source", "kafka (\"kafka.sasl.password\" = …, path = …, subscribe = 'beats')"),
    ]
    ann = system.login("ann")
    assert described(system, "root.full", ann)[-1] == ("source", "kafka")
    assert dict(described(system, "QUERY root.q", ann))["text"] == "it reads streams that you may not see"
    assert not {"input", "as"} & {what for what, _ in described(system, "QUERY root.q", ann)}
    assert "root.s" not in str(described(system, "root.q", ann))
    system.run("GRANT VIEW OBJECT ON STREAM s TO nurse")
    assert dict(described(system, "QUERY root.q", ann))["text"] == "SELECT * FROM s"
    assert [row[-2:] for row in system.rows("SHOW QUERIES", ann)] == [("SELECT * FROM s", "running")]


@pytest.mark.parametrize("percent", ["0", "100", "250"])
def test_a_sample_of_all_or_none_is_refused(sqlite_system: System, percent: str) -> None:
    with pytest.raises(Conflict) as refused:
        sqlite_system.run(f"CREATE STREAM s (a INT) OVERLOAD SAMPLE {percent} PERCENT")
    why = "a sample is more than 0 and less than 100 percent"
    assert refused.value.message == f"cannot take OVERLOAD SAMPLE {percent} PERCENT: {why}"


def test_the_text_of_a_query_that_lost_a_stream_is_for_nobody(sqlite_system: System) -> None:
    """The attack: the dropped stream is no input any more, and the text names it. The owner may be an heir."""
    system = sqlite_system
    system.run(WARD)
    ann = system.login("ann")
    system.run("DROP STREAM s")
    assert dict(described(system, "QUERY root.q", ann))["text"] == "a stream that it reads was dropped"
    assert dict(described(system, "QUERY q"))["text"] == "a stream that it reads was dropped"


def test_a_query_and_its_output_of_one_name_are_both_described(sqlite_system: System) -> None:
    sqlite_system.run(WARD)
    (found,) = sqlite_system.run("DESCRIBE q")
    assert {row[0] for row in found.rows} == {"stream root.q", "query root.q"}
    with pytest.raises(NotFound, match="there is no object nosuch"):
        sqlite_system.run("DESCRIBE nosuch")
