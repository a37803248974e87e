"""`Pipeline.settle`: changes of subscriptions are told though no batch comes, once, and also those that came while a
batch was on its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import System
from test_subscriptions import Ward

from headgate.errors import SourceError
from headgate.ingress.validation import Ingress
from headgate.recovery.subscription_status import AGAIN
from headgate.service.snapshots import SUSPENDED

REVOKE = "REVOKE READ TUPLE ON STREAM high FROM nurse"
GRANT = "GRANT READ TUPLE ON STREAM high TO nurse"


@pytest.fixture
def ward(sqlite_system: System, tmp_path: Path) -> Iterator[Ward]:
    made = Ward(sqlite_system, tmp_path)
    made.system.run("SUBSCRIBE TO root.high", made.ned)
    made.take(2)
    yield made
    made.stop()


def versions(ward: Ward) -> int:
    return ward.work.pipeline._committer.version


def test_a_notice_comes_without_a_batch_and_once(ward: Ward) -> None:
    ward.system.run(REVOKE)
    for _ in range(3):
        ward.work.pipeline.settle()
    assert ward.lines() == [2, {"suspended": SUSPENDED}]
    ward.system.run(GRANT)
    for _ in range(3):
        ward.work.pipeline.settle()
    assert ward.lines() == [2, {"suspended": SUSPENDED}, {"continues": AGAIN}]
    ward.take(3)
    assert ward.lines()[-1] == 3


def test_where_nothing_has_changed_no_version_is_made(ward: Ward) -> None:
    before = versions(ward)
    ward.work.pipeline.settle()
    ward.system.run("CREATE ROLE other")  # a change that is no subscription's
    ward.work.pipeline.settle()
    assert versions(ward) == before


def test_a_change_while_results_are_on_their_way_is_told_without_another_batch(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are delivered under the new rights, so these are known; but nobody has been told of them."""
    pipeline = ward.work.pipeline
    staged = pipeline._committer.stage

    def revoked(*given: Any) -> Any:
        monkeypatch.setattr(pipeline._committer, "stage", staged)
        ward.system.run(REVOKE)
        return staged(*given)

    monkeypatch.setattr(pipeline._committer, "stage", revoked)
    ward.take(3)
    assert ward.lines() == [2]
    pipeline.settle()
    pipeline.settle()
    assert ward.lines() == [2, {"suspended": SUSPENDED}]


def test_notices_that_wait_since_a_batch_that_could_not_be_read_are_told(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object, **__: object) -> None:
        raise SourceError("it cannot be read")

    ward.system.run("SUBSCRIBE TO root.hr", ward.system.login("dora", level="U"))  # so that it is read
    ward.system.run(REVOKE)
    with monkeypatch.context() as patch:
        patch.setattr(Ingress, "take", unreadable)
        with pytest.raises(SourceError):
            ward.take(3)
    assert ward.work.pipeline._statuses.pending and ward.lines() == [2]
    ward.work.pipeline.settle()
    assert not ward.work.pipeline._statuses.pending
    assert ward.lines() == [2, {"suspended": SUSPENDED}]


def test_two_changes_between_two_looks_are_told_as_what_holds(ward: Ward) -> None:
    ward.system.run(REVOKE)
    ward.system.run(GRANT)
    ward.work.pipeline.settle()
    assert ward.lines() == [2]


def test_a_notice_survives_a_restart_before_it_was_told(ward: Ward) -> None:
    ward.system.run(REVOKE)
    ward.stop()
    ward.start()
    ward.work.pipeline.settle()
    assert ward.lines() == [2, {"suspended": SUSPENDED}]
    ward.stop()
    ward.start()
    ward.work.pipeline.settle()
    assert ward.lines() == [2, {"suspended": SUSPENDED}]
