"""The store keeps its promises on SQLite and on PostgreSQL: nothing is lost, nothing is half done, nobody is behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from conftest import ADMIN, KEY, PASSWORD, System, cheap_passwords
from sqlalchemy import NullPool, create_engine, inspect, make_url

from headgate.access import tables
from headgate.access.audit import Seal
from headgate.access.permissions import Kind, Permission
from headgate.access.state import State
from headgate.access.store import Store
from headgate.errors import AuthenticationFailed, Conflict, HeadgateError, StoreError
from headgate.labels import LabelTable, Rules, SourceNumbers, parse_label
from headgate.service import Headgate
from headgate.testing import ManualClock
from headgate.testing.postgres import fresh_database

WRITER = Path(__file__).with_name("crash_writer.py")
EVERYTHING = """
    CREATE LEVEL C; CREATE LEVEL S ABOVE C; CREATE LEVEL gone ABOVE C; DROP LEVEL gone; CREATE COMPARTMENT NATO;
    CREATE ROLE nurse MAX QUERIES 3 MAX STATE 70 MAX RESULTS 9;
    CREATE ROLE doctor; CREATE ROLE clerk; GRANT ROLE nurse TO ROLE doctor;
    CREATE SEPARATION pay STATIC OF clerk, doctor; CREATE SEPARATION "shift 1" DYNAMIC OF clerk, nurse;
    CREATE USER "head nurse" PASSWORD 'correct horse' CLEARANCE S{NATO}; GRANT ROLE doctor TO USER "head nurse";
    ALTER USER "head nurse" LOCK;
    CREATE SCHEMA vitals (patient STRING LABEL 'doctor AT C', pulse INT);
    CREATE STREAM in1 SCHEMA vitals LABEL 'nurse | (clerk & doctor)' SEMANTICS WEAK;
    CREATE QUERY q READING in1 USING window (rows = 10, seconds = 2.5, kinds = ('SLIDING')) OUTPUT "out 1";
    START QUERY q;
    GRANT VIEW OBJECT, READ TUPLE ON STREAM in1 TO nurse, "doctor";
    GRANT USE ON OPERATOR window TO clerk WITH (rows = 100, kinds = ('SLIDING', 'TUMBLING'));
    REVOKE VIEW CATALOG ON SYSTEM FROM PUBLIC; SET SYSTEM idle_minutes = 60; SET ROLE ADMIN
"""
SHOWN = ["CATALOG", "SCHEMAS", "STREAMS", "QUERIES", "OPERATORS", "USERS", "ROLES", "SEPARATIONS", "LEVELS"]
SHOWN += ["COMPARTMENTS", "GRANTS", "PERMISSIONS", "SESSION", "SESSIONS", "SYSTEM"]

Rows = dict[str, dict[Any, Any]]


def in_memory(headgate: Headgate) -> Rows:
    return {name: dict(table._rows) for name, table in headgate._state.tables.items()}


def in_store(system: System) -> Rows:
    """What a process that starts now would know."""
    state, store = State(), Store(system.url, Seal(KEY), system.clock)
    try:
        store.refresh(state)
        return {name: dict(table._rows) for name, table in state.tables.items()}
    finally:
        store.close()


def shown(system: System) -> dict[str, tuple[tuple[str, ...], ...]]:
    return {what: system.rows(f"SHOW {what}") for what in SHOWN}


def may(headgate: Headgate, token: str, permission: Permission, stream: str) -> bool:
    return bool(headgate.check(token, permission, Kind.STREAM, stream, ADMIN))


# Migrations


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
    said = [process.communicate(timeout=60)[1].strip().splitlines()[-1:] for process in opening]
    assert [process.returncode for process in opening] == [0] * 3, said


def test_a_store_that_is_not_there_is_made_only_if_that_is_wanted(store_url: str) -> None:
    said = refused(lambda: Headgate(store_url, KEY, create=False))
    assert said.startswith("there is no Headgate in this store")
    opened(store_url)
    Headgate(store_url, KEY, passwords=cheap_passwords(), create=False).close()


# What is written stays


def test_everything_survives_closing_and_opening(system: System) -> None:
    system.run(EVERYTHING)
    before = shown(system)
    rows = in_memory(system.headgate)
    system.reopen()
    assert shown(system) == before
    assert in_memory(system.headgate) == rows == in_store(system)
    assert system.headgate.verify_audit() == []


def test_whatever_is_accepted_can_be_read_again(system: System) -> None:
    """A clearance longer than any text that is read back must be refused, or else must not get in anybody's way."""
    names = [f"{'c' * 120}{number}" for number in range(100)]
    system.run("; ".join(f"CREATE COMPARTMENT {name}" for name in names) + "; CREATE LEVEL S; CREATE LEVEL other")
    with suppress(HeadgateError):
        system.run(f"CREATE USER joe PASSWORD '{PASSWORD}' CLEARANCE S{{{', '.join(names)}}}")
        system.login("joe")
    system.reopen()
    system.run("DROP LEVEL other; SHOW USERS; SHOW SESSIONS")


def test_a_session_survives_closing_and_opening(system: System) -> None:
    joe = system.new_user("joe", "nurse")
    principal = system.headgate.principal(joe)
    assert system.reopen().principal(joe) == principal


def test_numbers_of_objects_are_never_used_again(system: System) -> None:
    system.run("CREATE STREAM a (n INT)")
    (first,) = system.sql("SELECT id FROM objects WHERE name = 'a'")
    system.run("DROP STREAM a")
    system.reopen()
    system.run("CREATE STREAM a (n INT)")
    (second,) = system.sql("SELECT id FROM objects WHERE name = 'a'")
    assert second > first


# All of it or none of it


def test_an_error_in_the_middle_of_a_script_changes_nothing(system: System) -> None:
    system.run(EVERYTHING)
    memory, store = in_memory(system.headgate), in_store(system)
    script = """
        CREATE USER al PASSWORD 'correct horse'; ALTER USER "head nurse" UNLOCK CLEARANCE U; DROP ROLE nurse;
        DROP STREAM in1; CREATE STREAM in1 (n INT); SET ROLE NONE; SET ROLE ALL; SET SYSTEM idle_minutes = 1;
        CREATE ROLE nurse; GRANT ROLE nurse TO USER al; ALTER USER root END SESSIONS;
    """
    for last in ('DROP ROLE "no such role"', "CREATE ROLE nurse", "DROP LEVEL C"):
        with pytest.raises(HeadgateError):
            system.run(script + last)
        assert in_memory(system.headgate) == memory
        assert in_store(system) == store
    assert system.headgate.verify_audit() == []
    system.run(script)
    assert in_memory(system.headgate) == in_store(system) != store


def test_an_error_of_the_database_changes_nothing(system: System) -> None:
    """The database refuses what our own checks let pass, and the memory follows it."""
    system.run("CREATE STREAM a (n INT)")
    system.sql("INSERT INTO parameters (name, value) VALUES ('idle_minutes', '5')")  # behind Headgate's back
    before = in_store(system)
    with pytest.raises(StoreError):
        system.run("CREATE STREAM b (n INT); SET SYSTEM idle_minutes = 7")
    assert in_store(system) == before
    system.rows("SHOW SYSTEM")
    assert in_memory(system.headgate) == before
    assert system.headgate.verify_audit() == []


def test_a_name_that_is_freed_in_a_script_can_be_taken_in_it(system: System) -> None:
    """Whatever the order in which rows were first touched, the database sees them in one that it accepts."""
    joe = system.new_user("joe", "clerk")
    system.run("GRANT ADD ON SYSTEM TO clerk; CREATE STREAM in1 (n INT); CREATE QUERY q READING in1 OUTPUT o")
    system.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM in1 TO clerk")
    system.run("CREATE QUERY q READING root.in1 OUTPUT p", joe)
    system.run("DROP STREAM in1; DROP QUERY q; DROP USER joe REASSIGN TO root")
    assert in_memory(system.headgate) == in_store(system)
    assert {row[0] for row in system.rows("SHOW CATALOG") if row[2] == ADMIN} == {"query", "stream"}


# Two processes


def test_a_change_is_seen_in_the_very_next_check_of_another_process(system: System) -> None:
    other = system.another()
    system.run("CREATE STREAM in1 (n INT)")
    joe = system.new_user("joe", "nurse")
    assert other.principal(joe).roles == {"nurse"}
    for _ in range(3):
        assert not may(other, joe, Permission.SUBSCRIBE, "in1")
        system.run("GRANT VIEW OBJECT, SUBSCRIBE ON STREAM in1 TO nurse")
        assert may(other, joe, Permission.SUBSCRIBE, "in1")
        system.run("REVOKE SUBSCRIBE ON STREAM in1 FROM nurse")
        assert not may(other, joe, Permission.SUBSCRIBE, "in1")
        system.run("REVOKE VIEW OBJECT ON STREAM in1 FROM nurse")


@pytest.mark.parametrize(
    "revocation",
    [
        "REVOKE ROLE nurse FROM USER joe",
        "REVOKE SUBSCRIBE ON STREAM in1 FROM nurse",
        "REVOKE VIEW OBJECT ON STREAM in1 FROM nurse",
        "DROP ROLE nurse",
        "DROP STREAM in1",
    ],
)
def test_a_revocation_is_seen_in_the_very_next_check_of_another_process(system: System, revocation: str) -> None:
    other = system.another()
    joe = system.new_user("joe", "nurse")
    system.run("CREATE STREAM in1 (n INT); GRANT VIEW OBJECT, SUBSCRIBE ON STREAM in1 TO nurse")
    assert may(other, joe, Permission.SUBSCRIBE, "in1")
    system.run(revocation)
    assert not may(other, joe, Permission.SUBSCRIBE, "in1")


@pytest.mark.parametrize(
    "ending",
    ["ALTER USER joe LOCK", "ALTER USER joe END SESSIONS", "DROP USER joe", "ALTER USER joe PASSWORD '12345678'"],
)
def test_a_session_that_ends_in_one_process_has_ended_in_the_other(system: System, ending: str) -> None:
    other = system.another()
    joe = system.new_user("joe", "nurse")
    assert other.principal(joe).user == "joe"
    system.run(ending)
    with pytest.raises(AuthenticationFailed):
        other.principal(joe)


def test_both_processes_write_and_both_know_everything(system: System) -> None:
    first, second = system.headgate, system.another()
    for number in range(20):
        writer = (first, second)[number % 2]
        writer.execute(system.root, f"CREATE USER u{number}; CREATE STREAM s{number} (n INT); CREATE ROLE r{number}")
    first.principal(system.root)
    second.principal(system.root)
    assert in_memory(first) == in_memory(second) == in_store(system)
    assert len(in_memory(first)["users"]) == 22  # with the one that nobody can be


def test_a_name_can_be_taken_in_one_process_only(system: System) -> None:
    other = system.another()
    system.run("CREATE USER joe")
    with pytest.raises(Conflict, match="already a user `joe`"):
        other.execute(system.root, "CREATE USER joe")


@pytest.mark.parametrize("left", ["none", "newest"])
def test_a_reader_that_is_too_far_behind_reads_everything_again(system: System, left: str) -> None:
    other = system.another()
    joe = system.new_user("joe", "nurse")
    assert other.principal(joe).roles == {"nurse"}
    system.run("CREATE ROLE a")
    system.run("REVOKE ROLE nurse FROM USER joe")
    system.run("CREATE ROLE b")
    keep = "-1" if left == "none" else "(SELECT max(version) FROM change_log)"
    system.sql(f"DELETE FROM change_log WHERE version <> {keep}")
    assert other.principal(joe).roles == frozenset()
    assert in_memory(other) == in_store(system) == in_memory(system.headgate)


def test_a_store_that_was_put_back_is_read_again(system: System) -> None:
    """A backup is restored under a running process: what is no longer in the store is no longer true."""

    def may_add(headgate: Headgate, token: str) -> bool:
        return bool(headgate.check(token, Permission.ADD, Kind.SYSTEM, ""))

    other = system.another()
    joe = system.new_user("joe", "nurse")
    system.run("GRANT ADD ON SYSTEM TO nurse")
    assert other.principal(joe).roles == {"nurse"}
    assert may_add(other, joe)
    system.sql(
        "DELETE FROM grants WHERE permission = 'ADD' AND role = 'nurse'",
        "DELETE FROM change_log WHERE version = (SELECT version FROM head)",
        "UPDATE head SET version = version - 1",
    )
    assert not may_add(other, joe)


# Many writers at once


def _start(url: str, prefix: str, first: int, last: int, threads: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), url, prefix, str(first), str(last), str(threads)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_writers_in_threads_and_processes_lose_nothing(system: System) -> None:
    system.run("CREATE ROLE worker")
    writers = {prefix: _start(system.url, prefix, 0, 25, 4) for prefix in ("a", "b")}

    def own(number: int) -> None:
        name = f"own_{number}"
        system.run(f"CREATE USER {name}; GRANT ROLE worker TO USER {name}; CREATE STREAM {name} (n INT)")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(own, range(25)))
    for prefix, process in writers.items():
        out, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert sorted(map(int, out.split())) == list(range(25)), prefix
    expected = {f"{prefix}_{number}" for prefix in ("own", "a", "b") for number in range(25)}
    system.headgate.principal(system.root)
    rows = in_memory(system.headgate)
    assert rows == in_store(system)
    assert {row.name for row in rows["users"].values()} == expected | {ADMIN, ""}
    assert {row.user for row in rows["memberships"].values() if row.role == "worker"} == expected
    assert {row.name for row in rows["objects"].values() if row.kind == "STREAM"} == expected
    assert system.headgate.verify_audit() == []
    assert system.sql("SELECT count(*) FROM audit WHERE action = 'CREATE USER'") == [(len(expected),)]


def test_the_trail_is_intact_whenever_it_is_looked_at(system: System) -> None:
    """Verifying while others write must not take their records for damage."""
    other, stop = system.another(), threading.Event()
    found: list[str] = []

    def watch() -> None:
        while not stop.is_set():
            found.extend(other.verify_audit())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(100):
            system.run(f"CREATE ROLE r{number}")
    finally:
        stop.set()
        watcher.join()
    assert found == []


# Numbers for labels and sources


TEXTS = ["nurse", "doctor & nurse", "(a & b) | c FROM in1", "TRUE FROM in1, in2", "a AT S", "TRUE", '"it s" | x']


def _labels(headgate: Headgate) -> LabelTable:
    return LabelTable(Rules(), headgate.journal("labels"))


def _sources(headgate: Headgate) -> SourceNumbers:
    return SourceNumbers(headgate.journal("sources"), headgate.journal("sets"))


def test_numbers_of_labels_are_the_same_after_opening_again(system: System) -> None:
    table = _labels(system.headgate)
    numbers = {text: table.number(parse_label(text)) for text in TEXTS}
    assert sorted(numbers.values()) == list(range(1, len(TEXTS) + 1))
    again = _labels(system.reopen())
    assert {text: again.number(parse_label(text)) for text in reversed(TEXTS)} == numbers
    assert all(again.label(number) == parse_label(text) for text, number in numbers.items())


def test_numbers_of_labels_are_the_same_in_two_processes(system: System) -> None:
    first, second = _labels(system.headgate), _labels(system.another())
    for number, text in enumerate(TEXTS):
        asked = (first, second) if number % 2 else (second, first)
        numbers = [table.number(parse_label(text)) for table in asked]
        assert numbers == [number + 1] * 2
        assert first.label(number + 1) == second.label(number + 1) == parse_label(text)


def test_a_label_that_another_process_numbered_can_be_read(system: System) -> None:
    first, second = _labels(system.headgate), _labels(system.another())
    number = first.number(parse_label("nurse AT S FROM in1"))
    assert second.label(number) == parse_label("nurse AT S FROM in1")


def test_a_long_label_does_not_keep_a_table_from_opening(system: System) -> None:
    """Its minimal form is longer than any text that may be written."""
    text = " & ".join(f"({'a' * 40}{i} | {'b' * 40}{i})" for i in range(7))
    number = _labels(system.headgate).number_of_text(text)
    assert number > 0
    assert _labels(system.reopen()).label(number) == parse_label(text)


def _sets() -> list[frozenset[str]]:
    """Small ones, the first 62 sources, and sets with later sources."""
    names = [f"joe.in{i}" for i in range(70)]
    sets = [frozenset({name}) for name in names] + [frozenset(names[:5]), frozenset(names[:62])]
    return [*sets, frozenset(names), frozenset(names[60:]), frozenset({"x y", "joe.in69"}), frozenset()]


def test_numbers_of_sources_are_the_same_after_opening_again(system: System) -> None:
    numbers = [_sources(system.headgate).number(members) for members in _sets()]
    assert len(set(numbers)) == len(numbers)
    again = _sources(system.reopen())
    assert [again.number(members) for members in _sets()] == numbers
    assert [again.members(number) for number in numbers] == _sets()


def test_numbers_of_sources_are_the_same_in_two_processes(system: System) -> None:
    first, second = _sources(system.headgate), _sources(system.another())
    for number, members in enumerate(_sets()):
        asked = (first, second) if number % 2 else (second, first)
        assert len({sources.number(members) for sources in asked}) == 1


def test_a_set_of_sources_that_another_process_numbered_can_be_read(system: System) -> None:
    first, second = _sources(system.headgate), _sources(system.another())
    for members in _sets():
        number = first.number(members)
        assert second.members(number) == members


def test_numbers_given_at_once_are_given_once(system: System) -> None:
    texts = [f"label {number % 40}" for number in range(160)]
    journals = [system.headgate.journal("race"), system.another().journal("race")]

    def ask(place: int) -> tuple[str, int]:
        return texts[place], journals[place % 2].number(texts[place])

    with ThreadPoolExecutor(4) as pool:
        given = set(pool.map(ask, range(len(texts))))
    assert len(given) == 40
    assert sorted(number for _, number in given) == list(range(1, 41))
    assert sorted(journals[0].read()) == sorted((number, text) for text, number in given)


# What cannot be opened or reached


SECRET = "Tr0ub4dor"


def refused(action: Callable[[], object]) -> str:
    """The text of a StoreError, which must be plain, and must not give the password away even in a traceback."""
    said, shown = _refusal(action)
    gc.collect()  # a connection left open is a fault of this test, not of the next one
    assert SECRET not in said + shown
    assert "\n" not in said and said[0].islower()
    return said


def _refusal(action: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(StoreError) as caught:
        action()
    return str(caught.value), "".join(traceback.format_exception(caught.value))


def opened(url: str) -> None:
    Headgate(url, KEY, clock=ManualClock(), passwords=cheap_passwords()).close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        f"mysql://joe:{SECRET}@localhost/db",
        f"oracle://joe:{SECRET}@localhost/db",
        f"postgresql://joe:{SECRET}@localhost:port/db",
        f"postgresql://joe:x@{SECRET}:y@localhost/db",
        f"postgresql://joe:{SECRET}:@@@",
        f"postgresql://joe:{SECRET}@localhost:99999999/db",
        f"postgresql://joe:{SECRET}@127.0.0.1:1/db",
        f"postgresql://joe:{SECRET}@127.0.0.1:1/db?bogus={SECRET}",
        "sqlite:////proc/no/such/folder/headgate.db",
        "sqlite:////",
        "sqlite:///\x00",
        "sqlite:////proc/version",
    ],
)
def test_a_wrong_url_is_refused_in_plain_words(url: str) -> None:
    refused(lambda: opened(url))


def test_a_wrong_password_for_the_server_is_refused_in_plain_words(postgres_url: str) -> None:
    url = make_url(fresh_database(postgres_url))
    refused(lambda: opened(url.set(password=SECRET).render_as_string(hide_password=False)))
    refused(lambda: opened(url.set(database="no such database").render_as_string(hide_password=False)))


def test_a_damaged_file_is_refused_in_plain_words(tmp_path: Path) -> None:
    file = tmp_path / "headgate.db"
    file.write_bytes(os.urandom(8192))
    refused(lambda: opened(f"sqlite:///{file}"))


def test_a_file_damaged_in_the_middle_is_refused_in_plain_words(tmp_path: Path) -> None:
    system = System(f"sqlite:///{tmp_path / 'headgate.db'}")
    system.initialise()
    system.close()
    system.sql("PRAGMA wal_checkpoint(TRUNCATE)")
    file = tmp_path / "headgate.db"
    whole = bytearray(file.read_bytes())
    for page in range(4096, len(whole), 4096):
        whole[page : page + 200] = b"\xff" * 200
    file.write_bytes(whole)

    def use() -> None:
        try:
            system.another().login(ADMIN, PASSWORD)
        finally:
            system.close()

    refused(use)


def test_the_store_of_another_version_is_refused_in_plain_words(system: System) -> None:
    system.close()
    system.sql("UPDATE alembic_version SET version_num = '9999'")
    refused(lambda: opened(system.url))


def test_what_cannot_be_opened_leaves_no_connection_open(postgres_url: str) -> None:
    system = System(fresh_database(postgres_url))
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    left = []

    def look() -> None:
        """While the refusal is still at hand, so that nothing has been tidied up by chance."""
        try:
            Headgate(system.url, KEY, create=False)
        except StoreError:
            left.append(system.sql(count))
            raise

    refused(look)
    system.close()
    assert left == [[(0,)]], "kept open by what refused to open"


def test_a_store_that_lacks_its_rows_is_refused_in_plain_words(system: System) -> None:
    system.sql("DELETE FROM head")
    refused(lambda: system.run("SHOW ROLES"))
    refused(lambda: system.headgate.principal(system.root))


def test_an_error_never_shows_what_was_to_be_written(system: System) -> None:
    """Not even in a traceback, where a driver likes to show its parameters: a hash is worth stealing too."""
    system.sql("ALTER TABLE users RENAME TO elsewhere")
    with pytest.raises(StoreError) as caught:
        system.run(f"CREATE USER joe PASSWORD '{SECRET}'")
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert "$argon2" not in shown


def test_headgate_goes_on_when_the_server_comes_back(postgres_url: str) -> None:
    """The server drops every connection, as when it restarts; the one that is kept for checks is among them."""
    system = System(fresh_database(postgres_url))
    try:
        system.initialise()
        joe = system.new_user("joe", "nurse")
        assert system.headgate.principal(joe).roles == {"nurse"}
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        system.sql(f"{kill} AND pid <> pg_backend_pid()")
        first: object = None
        try:
            first = system.headgate.principal(joe).roles
        except StoreError as error:
            first = error  # allowed once: in the middle of it nobody can say what happened
        assert isinstance(first, StoreError) or first == {"nurse"}
        assert system.headgate.principal(joe).roles == {"nurse"}
        system.run("REVOKE ROLE nurse FROM USER joe")
        assert system.headgate.principal(joe).roles == frozenset()
    finally:
        system.close()
