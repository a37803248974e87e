"""What is said at the end, and of a mailbox, is what happened."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import System
from test_run_client_attacks import EVERYTHING, SETUP, Work

from headgate.cli.run import _News
from headgate.egress.mailbox import Mailbox
from headgate.service.run_client import RunClient
from headgate.visibility.role_limits import YIELDS


@pytest.fixture
def ward(sqlite_system: System) -> System:
    sqlite_system.run(SETUP)
    sqlite_system.new_user("ned", "nurse")
    for name in ("hr", "high", "twice"):
        sqlite_system.run(EVERYTHING.format(name, "nurse"))
    return sqlite_system


def reasons(client: RunClient, work: Work) -> list[tuple[str, ...]]:
    tables = {title: [tuple(row) for row in rows] for title, _, rows in client.summary(work.pipeline.counts)}
    return tables.get("ended", [])


def test_a_query_that_ended_is_in_every_summary_until_it_begins_anew(ward: System, tmp_path: Path) -> None:
    ward.run("CREATE ROLE small MAX RESULTS 2; GRANT ROLE small TO USER root")
    token = ward.login("ned")
    ward.run("SUBSCRIBE TO root.high", token)
    for home, everyone in ((tmp_path / "all", True), (tmp_path / "own", False)):
        client = RunClient(ward.headgate, ward.root if everyone else token, everyone=everyone)
        work = Work(ward, client, home, Mailbox())
        work.take((5, "nurse"), (6, "nurse"))
        assert reasons(client, work) == []
        work.take((5, "nurse"), (6, "nurse"), (7, "nurse"))
        assert reasons(client, work) == [("root.high", "root", "ned", YIELDS)]
        work.pipeline.close()
        again = Work(ward, client, home, Mailbox())  # after a restart it is still so
        assert reasons(client, again) == [("root.high", "root", "ned", YIELDS)]
        again.pipeline.close()


def test_a_query_that_ends_while_streams_are_followed_gives_one_notice_at_once(
    ward: System, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ward.run("CREATE ROLE small MAX RESULTS 2; GRANT ROLE small TO USER root")
    token = ward.login("ned")
    ward.run("SUBSCRIBE TO root.high", token)
    client = RunClient(ward.headgate, token)
    work = Work(ward, client, tmp_path, Mailbox())
    following = SimpleNamespace(failed={}, counts=work.pipeline.counts)
    news = _News(client, following)  # type: ignore[arg-type]
    news.tell()
    work.take((5, "nurse"), (6, "nurse"), (7, "nurse"))
    news.tell()
    news.tell()
    assert capsys.readouterr().err == f"query root.high of root ended for ned: {YIELDS}\n"
    work.pipeline.close()


def test_a_notice_that_rights_withheld_is_not_given_after_a_restart(ward: System, tmp_path: Path) -> None:
    ward.run("CREATE ROLE small MAX RESULTS 2; GRANT ROLE small TO USER root")
    token = ward.login("ned")
    ward.run("SUBSCRIBE TO root.high", token)
    client = RunClient(ward.headgate, token)
    work = Work(ward, client, tmp_path / "own", Mailbox())
    work.take((5, "nurse"), (6, "nurse"), (7, "nurse"))
    work.pipeline.close()
    ward.run("REVOKE SUBSCRIBE ON STREAM high FROM nurse")
    again = Work(ward, client, tmp_path / "own", Mailbox())
    assert reasons(client, again) == []
    again.pipeline.close()


def test_a_mailbox_says_how_many_came_and_how_many_are_shown(
    ward: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = ward.login("ned")
    ward.run("SUBSCRIBE TO root.high", token)
    client = RunClient(ward.headgate, token)
    mailbox = Mailbox(most=10)
    monkeypatch.setattr(client, "_mailbox", mailbox)
    work = Work(ward, client, tmp_path, mailbox)
    try:
        for count, said, shown in (
            (2, "2 results", 2),
            (5, "5 results, the last 3 are shown", 3),
            (25, "25 results, the last 3 are shown", 3),  # one batch alone is more than is kept
            (1, "1 result", 1),
        ):
            work.take(*((100 + n, "nurse") for n in range(count)))
            ((title, _, rows),) = client.received(3)
            assert title == f"root.high: {said}"
            assert [row[2] for row in rows] == [str(100 + n) for n in range(count)][-shown:]
        for _ in range(4):
            work.take(*((200 + n, "nurse") for n in range(4)))
        ((title, _, rows),) = client.received(20)
        assert title == "root.high: 16 results, the last 10 are shown"
        assert [row[2] for row in rows] == [str(200 + n) for n in [2, 3, *[0, 1, 2, 3] * 2]]
    finally:
        work.pipeline.close()


def test_a_notice_stays_however_many_results_follow(ward: System, tmp_path: Path) -> None:
    token = ward.login("ned")
    ward.run("SUBSCRIBE TO root.high", token)
    client = RunClient(ward.headgate, token)
    mailbox = Mailbox(most=2)
    work = Work(ward, client, tmp_path, mailbox)
    try:
        work.pipeline.wait({"root.hr": "it is gone"})
        work.take((5, "nurse"), (6, "nurse"), (7, "nurse"))
        ((session, query),) = ((x.name, x.query) for x in client.snapshot().subscribers)
        assert mailbox.lost[session, query] == 1
        word, again, results = mailbox.fetch(session, query, client.snapshot())
        assert word.waits and again.continues and len(results) == 2
        assert not mailbox.lost[session, query]
    finally:
        work.pipeline.close()
