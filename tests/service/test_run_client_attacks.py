"""Attacks on what a run client hands to a session: results, dead letters, counts, and whose they are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import System

from headgate.clock import SystemClock
from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import FileSink, Sink
from headgate.errors import SourceError
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.model.results import delivered_results
from headgate.model.snapshot import SnapshotSource
from headgate.recovery.pipeline import Pipeline
from headgate.service import run_client as clients
from headgate.service.folders import Folders
from headgate.service.run_client import RunClient

SETUP = """
CREATE STREAM hr (at TIMESTAMP, pat INT, hr INT, policy STRING) EVENT TIME at ROLES FROM policy
  SOURCE json (path = '/nowhere');
CREATE QUERY high AS SELECT pat, hr WHERE hr > 1 FROM hr;
CREATE QUERY twice AS SELECT pat, hr * 2 AS hr FROM high;
START QUERY high; START QUERY twice;
"""
EVERYTHING = "GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM {} TO {}"


@pytest.fixture
def ward(sqlite_system: System) -> System:
    sqlite_system.run(SETUP)
    sqlite_system.new_user("ned", "nurse")
    for name in ("hr", "high", "twice"):
        sqlite_system.run(EVERYTHING.format(name, "nurse"))
    return sqlite_system


class Work:
    """A pipeline behind a run client, without Spark."""

    def __init__(self, system: System, snapshots: SnapshotSource, home: Path, *sinks: Sink) -> None:
        self.system = system
        self.pipeline = Pipeline(
            home, snapshots, lambda _, program, schema: LocalExecutor(program, schema, evaluate), sinks, SystemClock()
        )
        self.number = -1
        self.stream = "root.hr"

    def take(self, *rows: tuple[int | None, str]) -> None:
        self.number += 1
        at = dt.datetime(2024, 3, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=self.number)
        table = {
            "at": pa.array([at] * len(rows), pa.timestamp("us", "UTC")),
            "pat": pa.array([1] * len(rows), pa.int32()),
            "hr": pa.array([x for x, _ in rows], pa.int32()),
            "policy": pa.array([x for _, x in rows], pa.string()),
        }
        self.pipeline.take(self.stream, self.number, pa.table(table))


@pytest.fixture
def with_client(
    ward: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[System, RunClient, Work, Path]]:
    """ned runs its own subscriptions, with files; Processing is given by hand, since Spark has no part in this."""
    token = ward.login("ned")
    ward.run("SUBSCRIBE TO root.high; SUBSCRIBE TO root.twice", token)
    made: list[Work] = []

    class Made:
        def __init__(
            self, _: object, home: Path, sinks: list[Sink], *, snapshots: SnapshotSource, **_settings: object
        ) -> None:
            made.append(Work(ward, snapshots, home, *sinks))

        def close(self) -> None:
            made[0].pipeline.close()

    monkeypatch.setattr(clients, "Processing", Made)
    found = RunClient(ward.headgate, token)
    with found.at_work(tmp_path / "engine", tmp_path / "out"):
        yield ward, found, made[0], tmp_path / "out"


def test_a_session_that_runs_its_own_queries_gets_no_dead_letters_of_others(
    with_client: tuple[System, RunClient, Work, Path],
) -> None:
    _, _, work, out = with_client
    work.take((5, "nurse"), (6, "doctor &"), (7, "doctor"))
    assert [x.name for x in out.rglob("*.jsonl") if "rejected" in x.name] == []
    assert not any("7" in x.read_text().partition("values")[2] for x in out.rglob("*high*"))


def test_a_session_gets_no_count_of_tuples_it_may_not_see(with_client: tuple[System, RunClient, Work, Path]) -> None:
    _, client, work, _ = with_client
    work.take((5, "nurse"))
    before = list(client.summary(work.pipeline.counts))
    work.take((6, "doctor &"), (7, "doctor"), (None, "doctor"))
    assert list(client.summary(work.pipeline.counts)) == before
    assert [title for title, _, _ in before] == ["results"]


def test_a_session_receives_results_over_results_it_may_see(with_client: tuple[System, RunClient, Work, Path]) -> None:
    """The queries in between run for it as well; they were left out, and nothing came."""
    _, _, work, out = with_client
    work.take((5, "nurse"), (7, "doctor"))
    (file,) = (x for x in out.rglob("*.jsonl") if "twice" in x.name)
    assert '"hr": 10' in file.read_text() and len(file.read_text().splitlines()) == 1


def everyone(ward: System, tmp_path: Path) -> tuple[Work, Mailbox]:
    mailbox = Mailbox()
    files = FileSink(tmp_path / "out", Folders(ward.headgate))
    return Work(ward, ward.headgate, tmp_path / "engine", mailbox, files), mailbox


def test_an_operator_gets_the_counts_of_tuples(ward: System, tmp_path: Path) -> None:
    ward.run("SUBSCRIBE TO root.high", ward.login("ned"))
    work, _ = everyone(ward, tmp_path)
    work.take((5, "nurse"), (6, "doctor &"), (7, "doctor"))
    (title, columns, (row,)), _ = RunClient(ward.headgate, ward.login("root"), everyone=True).summary(
        work.pipeline.counts
    )
    told = dict(zip(columns, row, strict=True))
    assert title == "streams"
    assert [told[x] for x in ("tuples", "seen by nobody", "routed")] == ["3", "1", "1"]
    assert told["lag"].endswith(" s")
    assert [value for name, value in told.items() if name.startswith("rejected")] == ["1"]


def fetched(ward: System, mailbox: Mailbox, token: str) -> dict[str, list[tuple[object, ...]]]:
    user = ward.headgate.principal(token).user
    with ward.headgate.open() as now:
        return {
            ward.headgate.snapshots.outgoing(x.name, x.query).stream: [
                y.values for y in delivered_results(mailbox.fetch(x.name, x.query, now))
            ]
            for x in now.subscribers
            if x.outgoing and x.outgoing.user == user
        }


def test_dead_letters_go_to_the_present_owner_of_the_stream(ward: System, tmp_path: Path) -> None:
    """The name of a source keeps who made it; a stream that was passed on is somebody else's."""
    ward.run("GRANT ADD ON SYSTEM TO PUBLIC")
    ann = ward.new_user("ann")
    ward.run("CREATE STREAM own (at TIMESTAMP, hr INT, policy STRING) EVENT TIME at ROLES FROM policy", ann)
    ward.run(EVERYTHING.format("own", "nurse"), ann)
    ned = ward.login("ned")
    ward.run("SUBSCRIBE TO ann.own", ned)
    work, _ = everyone(ward, tmp_path)
    work.stream = "ann.own"
    work.take((5, "nurse &"))
    ward.run("DROP USER ann REASSIGN TO ned")
    work.take((6, "nurse &"))
    letters = {x.parent.name: x.read_text() for x in (tmp_path / "out").rglob("*rejected*")}
    assert letters.keys() == {"ann", "ned"} and '"hr": 6' in letters["ned"] and '"hr": 6' not in letters["ann"]


def test_reading_results_needs_the_rights_to_all_their_sources(ward: System, tmp_path: Path) -> None:
    """Who may read the last stream only, or all but one of those in between, receives nothing."""
    tokens = {}
    for user, names in {"eve": ("twice",), "amy": ("hr", "twice"), "ben": ("high", "twice")}.items():
        ward.new_user(user, f"of_{user}")
        ward.run(f"GRANT ROLE nurse TO USER {user}; REVOKE ROLE nurse FROM USER {user}")
        for name in names:
            ward.run(EVERYTHING.format(name, f"of_{user}"))
        tokens[user] = ward.login(user)
        ward.run("SUBSCRIBE TO root.twice", tokens[user])
    ned = ward.login("ned")
    ward.run("SUBSCRIBE TO root.twice", ned)
    work, mailbox = everyone(ward, tmp_path)
    work.take((5, "TRUE"), (6, "nurse"))
    assert fetched(ward, mailbox, ned) == {"root.twice": [(1, 10), (1, 12)]}
    for user, token in tokens.items():
        assert fetched(ward, mailbox, token) == {"root.twice": []}, user


def test_a_narrowed_query_gives_its_owner_what_its_roles_may_see_and_others_their_own(
    ward: System, tmp_path: Path
) -> None:
    ward.run("GRANT ADD ON SYSTEM TO PUBLIC")
    token = ward.new_user("dora", "doctor")
    ward.run(f"GRANT ROLE nurse TO USER dora; {EVERYTHING.format('hr', 'doctor')}")
    token = ward.login("dora")
    ward.run("CREATE QUERY mine AS nurse SELECT hr FROM root.hr; START QUERY mine; SUBSCRIBE TO mine", token)
    ward.run(EVERYTHING.format("mine", "nurse"), token)
    ned = ward.login("ned")
    ward.run("SUBSCRIBE TO dora.mine", ned)
    work, mailbox = everyone(ward, tmp_path)
    work.take((1, "doctor"), (2, "nurse"), (3, "doctor | nurse"), (4, "doctor & nurse"))
    assert fetched(ward, mailbox, token) == {"dora.mine": [(2,), (3,)]}
    assert fetched(ward, mailbox, ned) == {"dora.mine": [(2,), (3,)]}


def test_an_owner_who_is_dropped_while_its_stream_is_read_ends_no_query(ward: System, tmp_path: Path) -> None:
    token = ward.login("ned")
    ward.run("SUBSCRIBE TO root.hr", token)
    work, _ = everyone(ward, tmp_path)
    work.take((1, "nurse"))
    ward.run("UNSUBSCRIBE FROM root.hr", token)
    work.take((2, "nurse"))
    assert work.pipeline.counts.batches == 1


def test_long_names_of_users_and_streams_end_no_query(ward: System, tmp_path: Path) -> None:
    """A name of 128 characters is more than a thousand bytes as part of a path."""
    long = "é" * 128
    ward.run(f"GRANT ADD ON SYSTEM TO PUBLIC; CREATE USER \"{long}\" PASSWORD 'correct horse'")
    ward.run(f'GRANT ROLE nurse TO USER "{long}"')
    token = ward.login(long)
    ward.run(f'CREATE QUERY "{long}" AS SELECT hr FROM root.hr; START QUERY "{long}"; SUBSCRIBE TO "{long}"', token)
    ned = ward.login("ned")
    ward.run("SUBSCRIBE TO root.hr", ned)
    work, _ = everyone(ward, tmp_path)
    work.take((1, "nurse"))
    assert len(list((tmp_path / "out").rglob("*.jsonl"))) == 2


def test_notices_of_unavailable_streams_name_only_streams_that_the_user_may_see(ward: System) -> None:
    """Their owner and whoever runs the system which and why; who may read them, what waits; nobody else anything."""
    failed = {"root.hr": SourceError("cannot read stream root.hr as `json`: PATH_NOT_FOUND")}
    ned, eve = ward.login("ned"), ward.new_user("eve", "clerk")
    ward.run(EVERYTHING.format("twice", "clerk"))
    eve = ward.login("eve")
    for token in (ned, eve):
        ward.run("SUBSCRIBE TO root.twice", token)
    assert RunClient(ward.headgate, ward.root, everyone=True).unread(failed) == [failed["root.hr"].message]
    assert RunClient(ward.headgate, ward.root).unread(failed) == [failed["root.hr"].message]
    assert RunClient(ward.headgate, ned).unread(failed) == ["root.twice: an input stream is unavailable"]
    assert RunClient(ward.headgate, eve).unread(failed) == []


def test_a_slow_reader_of_results_holds_nobody_up(system: System, tmp_path: Path) -> None:
    """The attack: a reader stops between two tables; everyone else waited for it, until the store gave up."""
    system.run(SETUP)
    system.new_user("ned", "nurse")
    for name in ("hr", "high", "twice"):
        system.run(EVERYTHING.format(name, "nurse"))
    token = system.login("ned")
    system.run("SUBSCRIBE TO root.high; SUBSCRIBE TO root.twice", token)
    client = RunClient(system.headgate, token)
    work = Work(system, client, tmp_path / "engine", client._mailbox)
    work.take((5, "nurse"))
    shown = client.received(20)
    assert next(shown)[2]
    other = system.another()
    other.execute(system.root, "REVOKE READ TUPLE ON STREAM hr FROM nurse")
    (_, _, rows) = next(shown)
    assert rows == []
    work.pipeline.close()
