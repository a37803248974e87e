"""Attacks by subscribing to what cannot run: it is refused, and if it is there nevertheless, it ends alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import System
from test_run_client_attacks import EVERYTHING, SETUP, Work, everyone

from headgate.access import queries, running
from headgate.access.queries import MOST_QUERIES
from headgate.access.statements import queries as statements
from headgate.errors import Conflict, HeadgateError
from headgate.service import snapshots

WIDE = f"""CREATE STREAM wide ({", ".join(f"c{n} INT" for n in range(251))}, policy STRING) ROLES FROM policy
  SOURCE json (path = '/nowhere'); CREATE STREAM thin (x INT) SOURCE json (path = '/nowhere')"""


@pytest.fixture
def ward(sqlite_system: System) -> System:
    sqlite_system.run(f"{SETUP}; {WIDE}; CREATE QUERY low AS SELECT pat FROM hr; START QUERY low")
    sqlite_system.new_user("ned", "nurse")
    sqlite_system.new_user("eve", "nurse")
    for name in ("hr", "high", "twice", "low", "wide", "thin"):
        sqlite_system.run(EVERYTHING.format(name, "nurse"))
    return sqlite_system


def refused(system: System, script: str, token: str = "") -> HeadgateError:
    with pytest.raises(HeadgateError) as found:
        system.run(script, token)
    return found.value


def test_a_stream_with_more_columns_than_results_have_is_refused_by_name(ward: System) -> None:
    eve = ward.login("eve")
    error = refused(ward, "SUBSCRIBE TO root.wide", eve)
    assert error.message == "cannot subscribe to stream root.wide: it has 252 columns, results have at most 200"
    assert "create a query" in error.hint
    assert ward.rows("SHOW SUBSCRIPTIONS", eve) == ()
    ward.run("CREATE QUERY some AS SELECT c1, c2 FROM wide; START QUERY some; SUBSCRIBE TO some")


def test_a_query_that_cannot_be_planned_any_more_is_not_started(ward: System, monkeypatch: pytest.MonkeyPatch) -> None:
    ward.run("STOP QUERY low")

    def fails(*_: object) -> Any:
        raise Conflict("a query must not have more than 200 results")

    monkeypatch.setattr(statements, "stored_query", fails)
    error = refused(ward, "START QUERY low")
    assert error.message == "cannot start query root.low: a query must not have more than 200 results"


def test_queries_that_read_two_others_each_are_refused_before_they_are_too_many(ward: System) -> None:
    """Each doubles what is run for a reader: 40 of them were 10^12."""
    ward.run("CREATE QUERY a0 AS SELECT pat FROM hr; CREATE QUERY b0 AS SELECT pat FROM hr")
    for n in range(1, 6):
        ward.run(f"CREATE QUERY a{n} AS {both(n)}; CREATE QUERY b{n} AS {both(n)}")
    error = refused(ward, f"CREATE QUERY a6 AS {both(6)}")  # for each reader 1 + 2 * 63 queries would run
    assert f"more than {MOST_QUERIES} queries" in error.message


def both(n: int) -> str:
    return f"SELECT v.pat FROM a{n - 1} [NOW] v, b{n - 1} [NOW] u WHERE v.pat = u.pat"


def fault(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("something that eve may not know")


def only(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """Fails for what is called so."""

    def found(*given: Any) -> Any:
        if any(getattr(x, "name", "") == name for x in given):
            raise ZeroDivisionError("something that eve may not know")
        return real(*given)

    return found


def owned(real: Callable[..., Any]) -> Callable[..., Any]:
    def found(self: Any, session: Any, *given: Any) -> Any:
        return fault() if session.user == "eve" else real(self, session, *given)

    return found


FAULTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "of a stream": ("thin", lambda m: m.setattr(snapshots, "descriptor_of", only("thin", snapshots.descriptor_of))),
    "of its columns": ("wide", lambda _: None),
    "of a query": (
        "high",
        lambda m: m.setattr(
            snapshots.SnapshotBuilder, "_running_query", only("high", snapshots.SnapshotBuilder._running_query)
        ),
    ),
    "of a query that it reads": (
        "twice",
        lambda m: m.setattr(
            snapshots.SnapshotBuilder, "_running_query", only("high", snapshots.SnapshotBuilder._running_query)
        ),
    ),
    "of a session": (
        "low",
        lambda m: m.setattr(snapshots.SnapshotBuilder, "_clearance", owned(snapshots.SnapshotBuilder._clearance)),
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_subscription_that_cannot_be_served_ends_alone(
    kind: str, ward: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, break_ = FAULTS[kind]
    ned, eve = ward.login("ned"), ward.login("eve")
    with monkeypatch.context() as older:  # a version that did not look
        older.setattr(statements, "whole_stream", lambda _: None)
        older.setattr(statements, "lower", lambda _: None)
        ward.run(f"SUBSCRIBE TO root.{name}", eve)
    ward.run("SUBSCRIBE TO root.low", ned)
    break_(monkeypatch)
    work: Work
    work, _ = everyone(ward, tmp_path)
    work.take((5, "nurse"), (6, "nurse"))
    work.pipeline.end()
    (mine,) = (tmp_path / "out" / "ned").glob("root.low*.jsonl")
    assert len(mine.read_text().splitlines()) == 2
    (told,) = (tmp_path / "out" / "eve").glob(f"root.{name}*.jsonl")
    error = "Conflict" if kind == "of its columns" else "ZeroDivisionError"
    assert json.loads(told.read_text()) == {"ended": f"it cannot be run ({error})"}


def test_a_stored_query_that_fails_in_any_way_is_left_out_and_named(
    ward: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "stored_query", only("high", queries.stored_query))
    ward.run("STOP QUERY high; START QUERY high")
    assert list(ward.headgate.monitor.running.faults().values()) == ["it cannot be planned (ZeroDivisionError)"]
