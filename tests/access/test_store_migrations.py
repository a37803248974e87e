"""The migrations make the tables that the code expects, once, whoever comes first."""

from __future__ import annotations

import hashlib
import subprocess
import sys

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from conftest import KEY, System, cheap_passwords
from sqlalchemy import NullPool, create_engine, inspect

from access.stores import AT_SESSIONS, BEFORE_KEYS, BEFORE_POLICIES, EVERYTHING, in_store, opened, refused
from headgate.access import tables
from headgate.service import Headgate


def test_the_migrations_make_exactly_the_tables(system: System) -> None:
    engine = create_engine(system.url, poolclass=NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, tables.metadata) == []
        assert set(inspect(connection).get_table_names()) == {*tables.metadata.tables, "alembic_version"}


def test_the_migrations_make_the_same_keys_and_references(system: System) -> None:
    """What `compare_metadata` does not look at."""
    engine = create_engine(system.url, poolclass=NullPool)
    with engine.connect() as connection:
        found = inspect(connection)
        for name, table in tables.metadata.tables.items():
            assert found.get_pk_constraint(name)["constrained_columns"] == [c.name for c in table.primary_key]
            references = {
                (key["constrained_columns"][0], key["referred_table"], key["referred_columns"][0])
                for key in found.get_foreign_keys(name)
            }
            assert references == {
                (key.parent.name, key.column.table.name, key.column.name) for key in table.foreign_keys
            }
            assert all(key["options"].get("initially") == "DEFERRED" for key in found.get_foreign_keys(name))


def test_migrating_again_changes_nothing(system: System) -> None:
    system.run(EVERYTHING)
    before = in_store(system), system.headgate.audit_head()
    for _ in range(3):
        system.another()
    assert (in_store(system), system.headgate.audit_head()) == before


def test_a_new_store_can_be_opened_by_several_processes_at_once(store_url: str) -> None:
    code = "import sys; from headgate.service import Headgate; Headgate(sys.argv[1], bytes(32))"
    command = [sys.executable, "-c", code]
    opening = [subprocess.Popen([*command, store_url], stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=240)[1].strip().splitlines()[-1:] for process in opening]
    assert [process.returncode for process in opening] == [0] * 3, said


def test_a_missing_store_is_made_only_on_request(store_url: str) -> None:
    said = refused(lambda: Headgate(store_url, KEY, create=False))
    assert said.startswith("there is no Headgate in this store")
    opened(store_url)
    Headgate(store_url, KEY, passwords=cheap_passwords(), create=False).close()


def test_what_sessions_had_subscribed_to_their_users_have_after_the_migration(system: System) -> None:
    """Several sessions of one user at one level: one subscription, with the roles of the one used last."""
    system.run("CREATE LEVEL S; CREATE STREAM a (n INT); CREATE STREAM b (n INT)")
    system.new_user("ann", "nurse", "doctor", clearance="S")
    tokens = [
        system.login("ann", level="U"),
        system.login("ann", level="S"),
        system.login("ann", level="U", roles=frozenset({"nurse"})),
    ]
    system.clock.advance(60)
    system.run("SHOW SESSION", tokens[0])
    low, high, narrow = (hashlib.sha256(token.encode()).hexdigest() for token in tokens)
    streams = dict(system.sql("SELECT name, id FROM objects WHERE kind = 'STREAM'"))
    system.sql(*AT_SESSIONS)
    for session, name in ((low, "a"), (narrow, "a"), (narrow, "b"), (high, "a")):
        system.sql("INSERT INTO subscriptions VALUES (:session, :stream)", session=session, stream=streams[name])
    (first,) = system.sql("SELECT next_object FROM head")[0]
    head = system.headgate.audit_head()
    system.reopen()
    found = system.sql('SELECT "user", level, stream, roles, number FROM subscriptions ORDER BY number')
    both, one = '["doctor", "nurse"]', '["nurse"]'
    assert found == [
        ("ann", "S", streams["a"], both, first),
        ("ann", "U", streams["a"], both, first + 1),
        ("ann", "U", streams["b"], one, first + 2),
    ]
    assert system.sql("SELECT next_object FROM head") == [(first + 3,)]
    assert system.headgate.verify_audit(f"{head.count}:{head.mac}") == []
    system.run("GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM a TO nurse")
    ann = system.login("ann", level="U")
    assert system.rows("SHOW SUBSCRIPTIONS", ann) == (("a", "root", "U", "doctor, nurse", ""),)
    assert len({x.name for x in system.headgate.snapshot().subscribers}) == 3
    test_the_migrations_make_exactly_the_tables(system)
    test_the_migrations_make_the_same_keys_and_references(system)


def test_a_store_from_before_api_keys_keeps_its_sessions_and_takes_keys_after_the_migration(system: System) -> None:
    system.run(EVERYTHING)
    before, head = in_store(system), system.headgate.audit_head()
    system.sql(*BEFORE_KEYS)
    system.reopen()
    assert in_store(system) == before
    assert system.headgate.verify_audit(f"{head.count}:{head.mac}") == []
    test_the_migrations_make_exactly_the_tables(system)
    test_the_migrations_make_the_same_keys_and_references(system)
    assert system.rows("SHOW SESSION")[0][-1] == ""
    secret = system.rows("CREATE API KEY ci VALID 1 DAY")[0][-1]
    system.reopen()
    assert system.rows("SHOW SESSION", secret)[0][-1] == "ci"


def test_a_store_from_before_policies_takes_policies_after_the_migration(system: System) -> None:
    system.run(EVERYTHING + "; DROP POLICY staff")
    before, head = in_store(system), system.headgate.audit_head()
    system.sql(*BEFORE_POLICIES)
    system.reopen()
    assert in_store(system) == before
    assert system.headgate.verify_audit(f"{head.count}:{head.mac}") == []
    test_the_migrations_make_exactly_the_tables(system)
    test_the_migrations_make_the_same_keys_and_references(system)
    system.root = system.login("root")
    system.run("CREATE POLICY p AS $$ plays(a, nurse). $$")
    assert len(system.rows("SHOW POLICIES")) == 1
