"""The throw-away server that the store's tests run on keeps its promises."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from headgate.errors import StoreError
from headgate.testing.postgres import PostgresServer, fresh_database, running_postgres


def ask(url: str, query: str) -> object:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return connection.execute(text(query)).scalar_one()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


def test_it_answers(server: PostgresServer) -> None:
    assert ask(server.url, "SELECT 1") == 1


def test_its_url_is_for_sqlalchemy_with_psycopg(server: PostgresServer) -> None:
    assert make_url(server.url).drivername == "postgresql+psycopg"


def test_it_listens_on_one_loopback_address_only(server: PostgresServer) -> None:
    assert ask(server.url, "SHOW listen_addresses") == "127.0.0.1"
    assert ask(server.url, "SHOW unix_socket_directories") == ""
    # A server that listened everywhere would answer here too.
    with socket.socket() as client:
        client.settimeout(5)
        assert client.connect_ex(("127.0.0.2", server.port)) != 0


def test_a_wrong_password_is_refused(server: PostgresServer) -> None:
    wrong = make_url(server.url).set(password="guess")
    with pytest.raises(OperationalError, match="password authentication failed"):
        ask(wrong.render_as_string(hide_password=False), "SELECT 1")


def test_a_commit_is_as_durable_as_a_users(server: PostgresServer) -> None:
    assert ask(server.url, "SHOW fsync") == "on"
    assert ask(server.url, "SHOW synchronous_commit") == "on"


def test_its_files_are_closed_to_others(server: PostgresServer) -> None:
    assert server.directory.stat().st_mode & 0o077 == 0


def test_fresh_databases_share_nothing(server: PostgresServer) -> None:
    first, second = fresh_database(server.url), fresh_database(server.url)
    with create_engine(first, poolclass=NullPool).begin() as connection:
        connection.execute(text("CREATE TABLE seen (n int)"))
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert (ask(first, tables), ask(second, tables)) == (1, 0)


def test_it_stops_cleanly_and_leaves_nothing() -> None:
    server = PostgresServer()
    server.start()
    pid, directory = server.pid, server.directory
    # An idle client must not hold the shutdown up.
    engine = create_engine(server.url)
    with engine.connect():
        assert server.stop() == 0
    engine.dispose()
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_it_stops_when_the_test_fails() -> None:
    ports = []

    def failing_test() -> None:
        with running_postgres() as url:
            ports.append(make_url(url).port)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_test()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]), timeout=5)


def test_without_binaries_the_error_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("headgate.testing.postgres.DEBIAN_VERSIONS", tmp_path)
    with pytest.raises(StoreError, match=r"ensure-postgres\.sh"):
        PostgresServer()
