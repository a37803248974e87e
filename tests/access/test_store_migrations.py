"""The migrations make the tables that the code expects, once, whoever comes first."""

from __future__ import annotations

import subprocess
import sys

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from conftest import KEY, System, cheap_passwords
from sqlalchemy import NullPool, create_engine, inspect

from access.stores import EVERYTHING, in_store, opened, refused
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


def test_a_store_that_is_not_there_is_made_only_if_that_is_wanted(store_url: str) -> None:
    said = refused(lambda: Headgate(store_url, KEY, create=False))
    assert said.startswith("there is no Headgate in this store")
    opened(store_url)
    Headgate(store_url, KEY, passwords=cheap_passwords(), create=False).close()
