"""A plan holds what is certain and nothing else: after what was undone, beside other processes, from an older store."""

from __future__ import annotations

from access.stores import BEFORE_POLICIES
from conftest import System

from headgate.access.store import NEWEST

from .wards import STREAMS, explained, planned, refused, roots


def test_a_plan_does_not_hold_what_was_undone(ward: System) -> None:
    ward.run("CREATE QUERY q AS SELECT bp FROM vitals; CREATE QUERY p AS SELECT sid FROM vitals; START QUERY p")
    before = planned(ward)
    refused(ward, "START QUERY q; STOP QUERY p; EXPLAIN QUERIES; DROP STREAM nosuch")
    assert planned(ward) == before
    assert explained(ward, "QUERIES").text.startswith("1 running query,")


def test_two_processes_have_the_same_plan(system: System) -> None:
    other = system.another()
    system.run(STREAMS + "CREATE QUERY q AS SELECT bp FROM vitals WHERE bp > 3; START QUERY q")
    assert roots(system.headgate) == roots(other) != {}
    other.execute(system.root, "STOP QUERY q")
    assert not planned(system)


def test_a_store_of_the_first_version_is_brought_up_to_date_with_all_it_has(store_url: str) -> None:
    system = System(store_url)
    system.initialise()
    system.run(
        "CREATE ROLE r; CREATE STREAM s (a INT) LABEL 'r'; CREATE QUERY boxes READING s USING select OUTPUT o;"
        "START QUERY boxes; GRANT VIEW OBJECT ON STREAM s TO r"
    )
    before = system.rows("SHOW CATALOG"), system.rows("SHOW GRANTS"), system.rows("SHOW SESSIONS")
    system.sql("ALTER TABLE roles DROP COLUMN max_state", "ALTER TABLE roles DROP COLUMN max_results")
    system.sql(*BEFORE_POLICIES, "DROP TABLE leases", "DROP TABLE subscriptions", "DROP TABLE login_sources")
    system.sql("UPDATE alembic_version SET version_num = '0001'")
    head = system.headgate.audit_head()
    system.close()
    try:
        system.another()
        assert system.sql("SELECT version_num FROM alembic_version") == [(NEWEST,)]
        assert system.headgate.verify_audit(f"{head.count}:{head.mac}") == []
        assert (system.rows("SHOW CATALOG"), system.rows("SHOW GRANTS"), system.rows("SHOW SESSIONS")) == before
        system.run(
            "CREATE QUERY q AS SELECT a FROM s; START QUERY q; SUBSCRIBE TO q; EXPLAIN QUERIES; STOP QUERY boxes"
        )
        assert system.rows("SHOW SUBSCRIPTIONS") == (("q", "root", "U", "ADMIN", ""),)
    finally:
        system.close()
