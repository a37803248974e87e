"""A store that cannot be opened or reached is refused in plain words, which give no secret away."""

from __future__ import annotations

import os
import socket
import traceback
from pathlib import Path
from typing import Any

import pytest
from conftest import ADMIN, KEY, PASSWORD, System
from sqlalchemy import make_url

from access.stores import SECRET, opened, refused
from headgate.access import database
from headgate.errors import StoreError
from headgate.service import Headgate
from headgate.testing.postgres import fresh_database


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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"port": 1}, "cannot reach the store at `127.0.0.1:1`: connection refused"),
        ({"password": SECRET}, "cannot reach the store at `{here}`: it refused the password"),
        ({"password": ""}, "cannot reach the store at `{here}`: it wants a password"),
        ({"username": SECRET}, "cannot reach the store at `{here}`: it refused the password"),
        ({"database": SECRET}, "cannot reach the store at `{here}`: it has no such user or database"),
        (
            {"host": "no-such-host.invalid", "port": 5432},
            "cannot reach the store at `no-such-host.invalid:5432`: there is",
        ),
        (
            {"host": "", "query": {"host": "/no/such/folder"}},
            "cannot reach the store at `/no/such/folder:{port}`: no server listens at this socket",
        ),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_with_the_cause_and_without_secrets(
    postgres_url: str, change: dict[str, Any], said: str
) -> None:
    url = make_url(fresh_database(postgres_url)).set(drivername="postgresql")
    here = f"{url.host}:{url.port}"
    secret = str(url.password)
    with pytest.raises(StoreError) as caught:
        opened(url.set(**change).render_as_string(hide_password=False))
    shown = "".join(traceback.format_exception(caught.value))
    assert str(caught.value).startswith(said.format(here=here, port=url.port)), str(caught.value)
    assert SECRET not in shown and secret not in shown


def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts, and says nothing; the time is short here."""
    monkeypatch.setattr(database, "CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(StoreError, match=f"cannot reach the store at `127.0.0.1:{port}`: no answer in time"):
            opened(f"postgresql://joe:{SECRET}@127.0.0.1:{port}/db")


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
