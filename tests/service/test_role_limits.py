"""What roles allow the queries of their holders (MAX STATE, MAX RESULTS) reaches the engine as it is at each moment."""

from __future__ import annotations

from access.stores import AT_SESSIONS
from conftest import System


def allowed(system: System) -> tuple[int | None, int | None]:
    (running,) = system.headgate.snapshot().queries
    return running.most_state, running.most_results


def test_the_largest_limit_of_the_owners_roles_counts_from_the_next_batch_on(sqlite_system: System) -> None:
    system = sqlite_system
    system.run("CREATE ROLE small MAX STATE 10 MAX RESULTS 5; CREATE ROLE large MAX STATE 100; CREATE ROLE reader")
    system.new_user("al", "small")
    system.new_user("eve", "reader")
    system.run("GRANT ADD ON SYSTEM TO small; CREATE STREAM s (a INT)")
    system.run("GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM s TO small, reader")
    al, eve = system.login("al"), system.login("eve")
    system.run("CREATE QUERY q AS SELECT COUNT(*) AS n FROM root.s [UNBOUNDED]; START QUERY q", al)
    system.run("GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM q TO reader", al)
    system.run("SUBSCRIBE TO al.q", eve)
    assert allowed(system) == (10, 5)
    for change, expected in {
        "ALTER ROLE small MAX STATE 20": (20, 5),
        "GRANT ROLE large TO USER al": (100, 5),
        "ALTER ROLE small MAX RESULTS NONE": (100, None),
        "CREATE ROLE huge MAX STATE 1000; GRANT ROLE huge TO ROLE large": (1000, None),
        "REVOKE ROLE large FROM USER al": (20, None),
        "CREATE ROLE mine MAX STATE 1 MAX RESULTS 1; GRANT ROLE mine TO USER eve": (20, None),
    }.items():
        system.run(change)
        assert allowed(system) == expected, change
    system.run("SET ROLE NONE", al)
    assert allowed(system) == (20, None)


def test_limits_are_shown_with_roles(sqlite_system: System) -> None:
    sqlite_system.run("CREATE ROLE small MAX QUERIES 1 MAX STATE 10 MAX RESULTS 5; ALTER ROLE small MAX QUERIES NONE")
    assert ("small", "", "", "10", "5", "") in sqlite_system.rows("SHOW ROLES")


def test_a_store_without_these_limits_is_brought_up_to_date_with_its_roles(store_url: str) -> None:
    system = System(store_url)
    system.initialise()
    system.run("CREATE ROLE small MAX QUERIES 3; CREATE ROLE other")
    before = system.rows("SHOW ROLES")
    system.sql("ALTER TABLE roles DROP COLUMN max_state", "ALTER TABLE roles DROP COLUMN max_results")
    system.sql(*AT_SESSIONS, "DROP TABLE leases", "UPDATE alembic_version SET version_num = '0002'")
    system.close()
    try:
        system.another()
        assert system.rows("SHOW ROLES") == before
        system.run("ALTER ROLE small MAX STATE 10 MAX RESULTS 5")
        assert ("small", "", "3", "10", "5", "") in system.rows("SHOW ROLES")
    finally:
        system.close()
