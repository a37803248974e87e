"""What stored texts become: a query reads what it read when it was created, or it is broken."""

from __future__ import annotations

from conftest import System

from headgate.errors import Conflict

from .wards import definition, planned, refused, roots


def test_a_stored_query_never_reads_what_takes_the_place_of_its_stream(system: System) -> None:
    """Dropped and made anew, by the same owner or after the owner's name passed to somebody else."""
    system.run("CREATE STREAM s (a INT); CREATE QUERY q AS SELECT a FROM s; START QUERY q")
    before = planned(system)
    assert len(before) == 1
    system.run("DROP STREAM s; CREATE STREAM s (a INT)")
    for headgate in (system.headgate, system.another()):
        assert not roots(headgate)
    assert isinstance(refused(system, "START QUERY q"), Conflict)
    assert isinstance(refused(system, "EXPLAIN QUERY q"), Conflict)
    assert [row[-1] for row in system.rows("SHOW QUERIES")] == ["broken"]


def test_a_lost_output_stops_what_reads_it(system: System) -> None:
    system.run("CREATE STREAM s (a INT); CREATE QUERY q AS SELECT a FROM s; START QUERY q")
    bob = system.new_user("bob", "reader")
    system.run("GRANT ADD ON SYSTEM TO reader; GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM q TO reader")
    system.run("CREATE QUERY r AS SELECT a FROM root.q [ROWS 3]; START QUERY r; SUBSCRIBE TO r; SUBSCRIBE TO q", bob)
    assert len(planned(system)) == 2
    system.run("DROP QUERY q")
    assert planned(system) == set()
    assert isinstance(refused(system, "START QUERY r", bob), Conflict)
    assert system.sql("SELECT count(*) FROM subscriptions") == [(1,)]
    system.reopen()
    assert planned(system) == set()


def test_an_output_is_not_dropped_or_replaced_under_its_query(ward: System, ann: str) -> None:
    ward.run("CREATE QUERY q AS SELECT bp FROM vitals; START QUERY q", ann)
    assert isinstance(refused(ward, "DROP STREAM q", ann), Conflict)
    assert isinstance(refused(ward, "CREATE QUERY p OUTPUT q AS SELECT bp FROM vitals", ann), Conflict)
    assert isinstance(refused(ward, "CREATE QUERY q OUTPUT p AS SELECT bp FROM vitals", ann), Conflict)
    assert "p" not in {row[0] for row in ward.rows("SHOW STREAMS", ann)}


def test_comments_and_quotes_around_a_query_do_not_change_what_is_stored(ward: System, ann: str) -> None:
    script = (
        "CREATE QUERY q /* AS SELECT 1 */ AS /* x */ doctor -- y\n SELECT bp, ';' AS `a;b` /* z */ FROM vitals"
        " -- WHERE\n ; CREATE QUERY p AS SELECT sid FROM vitals"
    )
    ward.run(script + "; START QUERY q; START QUERY p", ann)
    assert definition(ward, "QUERY", "q")["text"] == "SELECT bp, ';' AS `a;b` /* z */ FROM vitals"
    assert len(planned(ward)) == 2
