"""Those who have left: nothing of theirs is held any more; and those who only receive, who have not left."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import System
from test_run_client_attacks import EVERYTHING, SETUP, Work

from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import FileSink
from headgate.errors import AuthenticationFailed
from headgate.service.folders import Folders
from headgate.service.run_client import RunClient


class Ward:
    def __init__(self, system: System, folder: Path) -> None:
        self.system = system
        self.mailbox = Mailbox()
        files = FileSink(folder / "out", Folders(system.headgate))
        self.work = Work(system, system.headgate, folder / "engine", self.mailbox, files)

    def nurse(self) -> str:
        token = self.system.login("ned")
        self.system.run("SUBSCRIBE TO root.high; SUBSCRIBE TO root.twice", token)
        return token


@pytest.fixture
def ward(sqlite_system: System, tmp_path: Path) -> Iterator[Ward]:
    sqlite_system.run(SETUP)
    sqlite_system.new_user("ned", "nurse")
    for name in ("hr", "high", "twice"):
        sqlite_system.run(EVERYTHING.format(name, "nurse"))
    found = Ward(sqlite_system, tmp_path)
    yield found
    found.work.pipeline.close()


def names(ward: Ward) -> set[str]:
    return {x.name for x in ward.system.headgate.snapshot().subscribers}


def test_of_subscriptions_that_have_ended_nothing_is_held(ward: Ward) -> None:
    headgate, pipeline = ward.system.headgate, ward.work.pipeline
    for _ in range(5):
        token = ward.nurse()
        ward.work.take((5, "nurse"))
        ward.system.run("UNSUBSCRIBE FROM root.high; UNSUBSCRIBE FROM root.twice", token)
    ward.nurse()
    ward.work.take((6, "nurse"))
    assert len(pipeline.notices()) == 10
    gc.collect()
    mine = names(ward)
    assert len(mine) == 2  # one for each stream
    assert {name for name, _ in ward.mailbox._kept} == mine
    assert {name for name, _ in ward.mailbox._sizes} == mine
    assert {name for name, _ in headgate.snapshots._outgoing} == mine
    assert {name for _, name in pipeline.counts.results} == mine
    assert pipeline.counts.received == {("ned", "root.high"): 6, ("ned", "root.twice"): 6}


def test_also_if_nothing_comes_any_more(ward: Ward) -> None:
    headgate, pipeline = ward.system.headgate, ward.work.pipeline
    token = ward.nurse()
    ward.work.take((5, "nurse"))
    ward.system.run("UNSUBSCRIBE FROM root.high; UNSUBSCRIBE FROM root.twice", token)
    pipeline.settle()
    gc.collect()
    assert not ward.mailbox._kept and not ward.mailbox._sizes and not pipeline.counts.results
    pipeline.settle()
    pipeline.end()
    assert {str(x) for x in pipeline.notices()} == {
        f"the subscription of ned to root.{name} ended: the subscription was ended" for name in ("high", "twice")
    }
    gc.collect()
    assert not headgate.snapshots._outgoing


def test_whoever_leaves_while_its_results_are_computed_ends_nobodys_work(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its results would have gone is still asked for, when the catalog has forgotten it already."""
    system, chain = ward.system, ward.work.pipeline._shared.graph
    system.new_user("nan", "nurse")
    staying, token = system.login("nan"), ward.nurse()
    system.run("SUBSCRIBE TO root.high; SUBSCRIBE TO root.twice", staying)
    ward.work.take((5, "nurse"))
    batch = chain.batch

    def leaving(*given: object, **more: object) -> object:
        found = batch(*given, **more)  # type: ignore[arg-type]
        system.run("UNSUBSCRIBE FROM root.high; UNSUBSCRIBE FROM root.twice", token)
        system.headgate.snapshot()
        gc.collect()
        return found

    monkeypatch.setattr(chain, "batch", leaving)
    ward.work.take((6, "nurse"))
    assert {name for name, _ in ward.mailbox._kept} == names(ward) != set()


def test_whoever_unsubscribes_does_not_find_old_results_when_it_comes_back(ward: Ward) -> None:
    token = ward.nurse()
    ward.work.take((5, "nurse"))
    ward.system.run("UNSUBSCRIBE FROM root.high", token)
    ward.work.take((6, "nurse"))
    ward.system.run("SUBSCRIBE TO root.high", token)
    ward.work.take((7, "nurse"))
    with ward.system.headgate.open() as now:
        found = [sum(map(len, ward.mailbox.fetch(x.name, x.query, now))) for x in now.subscribers]
    assert sorted(found) == [1, 3]


def test_whoever_takes_its_results_is_not_idle_but_files_keep_nobody_awake(ward: Ward) -> None:
    system = ward.system
    system.run("SET SYSTEM idle_minutes = 30")
    taking, sleeping = ward.nurse(), ward.nurse()
    client = RunClient(system.headgate, taking)
    for _ in range(3):
        system.clock.advance(20 * 60)
        ward.work.take((5, "nurse"))  # into files, and into mailboxes
        assert len(list(client.received(20))) == 2
    assert system.headgate.principal(taking)
    with pytest.raises(AuthenticationFailed):
        system.headgate.principal(sleeping)


def test_whoever_takes_its_results_still_ends_with_its_session(ward: Ward) -> None:
    system = ward.system
    system.run("SET SYSTEM session_minutes = 60")
    token = ward.nurse()
    client = RunClient(system.headgate, token)
    for _ in range(5):
        system.clock.advance(11 * 60)
        list(client.received(20))
    system.clock.advance(11 * 60)
    with pytest.raises(AuthenticationFailed):
        list(client.received(20))


def test_whoever_takes_its_results_does_not_wake_one_that_has_ended(ward: Ward) -> None:
    """The attack: a token that was idle for too long, with a run client that is still open."""
    token = ward.nurse()
    client = RunClient(ward.system.headgate, token)
    ward.system.clock.advance(31 * 60)
    with pytest.raises(AuthenticationFailed):
        list(client.received(20))
    with pytest.raises(AuthenticationFailed):
        ward.system.headgate.principal(token)
