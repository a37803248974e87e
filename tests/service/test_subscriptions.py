"""A subscription is a user's, not a login's: it lasts until UNSUBSCRIBE and gives what the rights of the moment permit;
whatever stops it is said to its subscriber, to the owner of what it is of, and to those who run the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import System
from test_run_client_attacks import EVERYTHING, SETUP, Work

from headgate.egress.mailbox import Mailbox
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import FileSink
from headgate.errors import AccessDenied, Conflict, HeadgateError
from headgate.recovery.subscription_status import AGAIN
from headgate.service.folders import Folders
from headgate.service.run_client import RunClient
from headgate.service.snapshots import BROKEN, STOPPED, SUSPENDED, UNFED


class Ward:
    """The engine of everyone over a store with ned, a nurse, and dora, who is a doctor as well."""

    def __init__(self, system: System, folder: Path) -> None:
        self.system, self.folder = system, folder
        system.run(SETUP + "CREATE LEVEL S; CREATE ROLE nurse; CREATE ROLE doctor")
        system.new_user("ned", "nurse")
        system.new_user("dora", "nurse", "doctor", clearance="S")
        for name in ("hr", "high", "twice"):
            system.run(EVERYTHING.format(name, "nurse"))
        self.ned = system.login("ned")
        self.number = -1
        self.start()

    def start(self) -> None:
        files = FileSink(self.folder / "out", Folders(self.system.headgate))
        self.work = Work(self.system, self.system.headgate, self.folder / "engine", files)
        self.work.number = self.number

    def stop(self) -> None:
        self.number = self.work.number
        self.work.pipeline.close()

    def take(self, *values: int, policy: str = "nurse") -> None:
        self.work.take(*((x, policy) for x in values))

    def lines(self, place: str = "ned/root.high") -> list[object]:
        """Results as their values, and what is said instead of results."""
        file = self.folder / "out" / f"{place}.jsonl"
        found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [x["values"]["hr"] if "values" in x else x for x in found]


@pytest.fixture
def ward(sqlite_system: System, tmp_path: Path) -> Iterator[Ward]:
    made = Ward(sqlite_system, tmp_path)
    yield made
    made.stop()


# It lasts -------------------------------------------------------------------------------------------------------------


def test_a_subscription_lasts_when_its_user_makes_no_request(ward: Ward) -> None:
    """The attack on the service: with the defaults everybody's results stopped after half an hour, without a word."""
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    for value in range(2, 6):
        ward.take(value)
        ward.system.clock.advance(20 * 60)
    ward.system.clock.advance(10 * 24 * 3600)
    ward.take(6)
    assert ward.lines() == [2, 3, 4, 5, 6]


def test_a_subscription_lasts_across_logins_logouts_and_restarts(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    ward.take(2)
    ward.system.headgate.logout(ward.ned)
    ward.take(3)
    again = ward.system.login("ned")
    assert ward.system.run("SUBSCRIBE TO root.high", again)[0].text == "already subscribed to stream root.high"
    ward.take(4)
    ward.system.run("ALTER USER ned END SESSIONS")
    ward.take(5)
    ward.stop()
    ward.start()
    ward.take(6)
    assert ward.lines() == [2, 3, 4, 5, 6]
    assert [x.name for x in (ward.folder / "out/ned").iterdir()] == ["root.high.jsonl"]


def test_many_logins_make_one_subscription(ward: Ward) -> None:
    """The attack: 150 sessions of one user, and as many views, files and results."""
    for _ in range(15):
        ward.system.run("SUBSCRIBE TO root.high", ward.system.login("ned"))
    assert len(ward.system.headgate.snapshot().subscribers) == 1
    ward.take(2)
    assert len(ward.work.pipeline._shared.graph._assignment.views) == 1
    assert ward.lines() == [2]


def test_a_subscription_keeps_the_roles_it_was_made_with(ward: Ward) -> None:
    ward.system.run("GRANT ROLE doctor TO USER ned")
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)  # this session has nurse only
    ward.take(2)
    ward.take(3, policy="doctor")
    both = ward.system.login("ned")
    said = ward.system.run("SUBSCRIBE TO root.high", both)[0].text
    assert said == "already subscribed to stream root.high; from now on with the roles doctor, nurse"
    ward.take(4, policy="doctor")
    ward.system.run("SET ROLE nurse; SUBSCRIBE TO root.high", both)
    ward.take(5, policy="doctor")
    ward.take(6)
    assert ward.lines() == [2, 4, 6]


def test_each_level_has_subscriptions_of_its_own(ward: Ward) -> None:
    low, high = ward.system.login("dora", level="U"), ward.system.login("dora", level="S")
    ward.system.run("SUBSCRIBE TO root.high", low)
    assert ward.system.rows("SHOW SUBSCRIPTIONS", high) == ()
    with pytest.raises(Conflict, match=r"not subscribed to stream root\.high at level S"):
        ward.system.run("UNSUBSCRIBE FROM root.high", high)
    ward.take(2)
    ward.system.run("SUBSCRIBE TO root.high", high)
    ward.take(3)
    ward.system.run("UNSUBSCRIBE FROM root.high", low)
    ward.take(4)
    assert ward.lines("dora/root.high")[:2] == [2, 3]
    assert ward.lines("dora/S/root.high") == [3, 4]


def test_a_session_is_handed_nothing_that_needs_roles_it_was_opened_without(ward: Ward) -> None:
    """The attack: a session with fewer roles, on purpose, runs what a session with all of them subscribed to."""
    system = ward.system
    system.run("SUBSCRIBE TO root.high", system.login("dora", level="U"))
    narrow = system.login("dora", level="U", roles=frozenset({"nurse"}))
    wide, high = system.login("dora", level="U"), system.login("dora", level="S")
    assert not RunClient(system.headgate, narrow).snapshot().subscribers
    assert not RunClient(system.headgate, high).snapshot().subscribers
    assert not RunClient(system.headgate, ward.ned).snapshot().subscribers
    assert len(RunClient(system.headgate, wide).snapshot().subscribers) == 1
    homes = {RunClient(system.headgate, token).home(ward.folder).name for token in (narrow, wide, high, wide)}
    assert len(homes) == 3 and "engine-dora" in homes and "engine-dora@S" in homes


def test_the_state_of_ones_own_work_is_the_same_after_logging_in_again(ward: Ward) -> None:
    """Else everything would be read once more with each login."""
    system = ward.system
    homes = {RunClient(system.headgate, system.login("ned")).home(ward.folder) for _ in range(3)}
    assert homes == {ward.folder / "engine-ned"}


# Rights of the moment -------------------------------------------------------------------------------------------------

LOSSES = [
    ("REVOKE SUBSCRIBE ON STREAM high FROM nurse", "GRANT SUBSCRIBE ON STREAM high TO nurse"),
    ("REVOKE READ TUPLE ON STREAM high FROM nurse", "GRANT READ TUPLE ON STREAM high TO nurse"),
    ("REVOKE READ TUPLE ON STREAM hr FROM nurse", "GRANT READ TUPLE ON STREAM hr TO nurse"),
    ("REVOKE ROLE nurse FROM USER ned", "GRANT ROLE nurse TO USER ned"),
    ("ALTER USER ned LOCK", "ALTER USER ned UNLOCK"),
    ("CREATE SEPARATION apart DYNAMIC OF nurse, night", "DROP SEPARATION apart"),
]


@pytest.mark.parametrize(("loss", "gain"), LOSSES, ids=[loss for loss, _ in LOSSES])
def test_it_is_suspended_while_rights_are_missing_and_goes_on_after(ward: Ward, loss: str, gain: str) -> None:
    system = ward.system
    system.run("CREATE ROLE night; GRANT ROLE night TO USER ned")
    system.run("SUBSCRIBE TO root.high", system.login("ned"))
    ward.take(2)
    system.run(loss)
    ward.take(3)
    ward.take(4)
    system.run(gain)
    ward.take(5)
    suspended = {"suspended": SUSPENDED}
    assert ward.lines() == [2, suspended, {"continues": AGAIN}, 5]
    assert ward.lines("root/root.high.subscribers") == [
        {"suspended": "for a subscriber: its rights do not cover it now; it continues when they do"},
        {"continues": f"for a subscriber: {AGAIN}"},
    ]
    assert [str(x) for x in ward.work.pipeline.notices()] == [
        (
            "the subscription of ned to root.high is suspended: "
            "the rights of ned do not cover it now; it continues when they do"
        ),
        f"the subscription of ned to root.high continues: {AGAIN}",
    ]


def test_a_subscription_above_the_clearance_is_suspended(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.high", ward.system.login("dora", level="S"))
    ward.take(2)
    ward.system.run("ALTER USER dora CLEARANCE U")
    ward.take(3)
    ward.system.run("ALTER USER dora CLEARANCE S")
    ward.take(4)
    assert ward.lines("dora/S/root.high") == [2, {"suspended": SUSPENDED}, {"continues": AGAIN}, 4]
    assert ward.lines("root/root.high.subscribers") == []  # the owner, at U, learns nothing of what is at S


def test_a_dropped_role_of_the_same_name_gives_no_old_subscription_anything(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    ward.take(2)
    ward.system.run("DROP ROLE nurse; CREATE ROLE nurse; GRANT ROLE nurse TO USER ned")
    for name in ("hr", "high"):
        ward.system.run(EVERYTHING.format(name, "nurse"))
    ward.take(3)
    assert ward.lines() == [2, {"suspended": SUSPENDED}]


def test_of_a_dropped_user_nothing_is_left_for_another_of_that_name(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    ward.take(2)
    ward.system.run("DROP USER ned")
    ward.system.new_user("ned", "nurse")
    ward.take(3)
    assert ward.lines() == [2, {"ended": "the subscription was ended"}]
    assert not ward.system.headgate.snapshot().subscribers


# What stops it is said ------------------------------------------------------------------------------------------------

ENDS = [
    ("STOP QUERY high", STOPPED),
    ("DROP QUERY high", "what it was subscribed to was dropped"),
    ("DROP STREAM hr", BROKEN),
]


@pytest.mark.parametrize("running", [True, False], ids=["while the engine runs", "while it does not"])
@pytest.mark.parametrize(("statement", "why"), ENDS, ids=[statement for statement, _ in ENDS])
def test_a_query_that_is_stopped_or_dropped_gives_a_notice(ward: Ward, statement: str, why: str, running: bool) -> None:
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    ward.take(2)
    if not running:
        ward.stop()
    ward.system.run(statement)
    if not running:
        ward.start()
    ward.work.pipeline.settle()  # also if no tuple comes any more
    ward.work.pipeline.settle()
    assert ward.lines() == [2, {"ended": why}]
    assert ward.lines("root/root.high.subscribers") == [{"ended": f"for a subscriber: {why}"}]
    assert [str(x) for x in ward.work.pipeline.notices()] == [f"the subscription of ned to root.high ended: {why}"]


def test_a_query_that_is_started_again_goes_on_for_its_subscribers(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    ward.take(2)
    ward.system.run("STOP QUERY high")
    ward.take(3)
    ward.system.run("START QUERY high")
    ward.take(4)
    assert ward.lines() == [2, {"ended": STOPPED}, {"continues": AGAIN}, 4]


def test_a_query_over_a_stopped_query_gives_a_notice_that_it_waits(ward: Ward) -> None:
    ward.system.run("SUBSCRIBE TO root.twice", ward.ned)
    ward.take(2)
    ward.system.run("STOP QUERY high")
    ward.work.pipeline.settle()
    ward.system.run("START QUERY high")
    ward.take(4)
    assert ward.lines("ned/root.twice") == [4, {"waits": UNFED}, {"continues": AGAIN}, 8]


def test_a_subscriber_without_rights_gets_no_notice_of_a_query(ward: Ward) -> None:
    """What one may not see does not exist for one, so it does not stop either."""
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    ward.take(2)
    ward.system.run("REVOKE VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM high FROM nurse")
    ward.take(3)
    before = ward.lines()
    for statement in ("STOP QUERY high", "START QUERY high", "DROP QUERY high"):
        ward.system.run(statement)
        ward.work.pipeline.settle()
    assert ward.lines() == before == [2, {"suspended": SUSPENDED}]


def test_a_notice_of_a_subscription_comes_once_even_after_a_crash(ward: Ward) -> None:
    """The engine ends after its state is written down, before anything went out."""
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    ward.take(2)
    ward.system.run("DROP QUERY high")
    pipeline = ward.work.pipeline
    pipeline._deliver = lambda *_: None  # type: ignore[method-assign]
    pipeline.settle()
    assert ward.lines() == [2]
    ward.stop()
    ward.start()
    ward.stop()
    ward.start()
    assert ward.lines() == [2, {"ended": "what it was subscribed to was dropped"}]


def test_a_new_subscription_begins_anew_even_within_one_script(ward: Ward) -> None:
    ward.system.run("ALTER ROLE ADMIN MAX RESULTS 1; SUBSCRIBE TO root.hr")
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    ward.take(2, 3)
    ward.take(4)
    (ended,) = (x for x in ward.lines() if isinstance(x, dict))
    assert ward.lines() == [2, ended]
    why = ended["ended"]
    assert list(ward.work.pipeline.counts.ended) == [("ned", "root.high", why)]  # whoever runs it finds it there
    assert ward.lines("root/root.high.subscribers") == [{"ended": f"for a subscriber: {why}"}]
    ward.system.run("SUBSCRIBE TO root.high", ward.ned)
    ward.take(5)
    assert ward.lines() == [2, ended]
    ward.system.run("UNSUBSCRIBE FROM root.high; SUBSCRIBE TO root.high", ward.ned)
    ward.take(6)
    assert ward.lines() == [2, ended, {"ended": "the subscription was ended"}, 6]


# Names ----------------------------------------------------------------------------------------------------------------


def test_a_stream_made_again_goes_on_under_its_own_name(ward: Ward) -> None:
    """Results went to `root.hr~2`, and whoever followed `root.hr` saw nothing more. As a source it is another one: the
    rights to it give nothing of the one before."""
    system = ward.system
    system.run("SUBSCRIBE TO root.hr", ward.ned)
    ward.take(2)
    system.run("DROP STREAM hr")
    ward.work.pipeline.settle()
    system.run(SETUP.partition(";")[0])
    system.run(EVERYTHING.format("hr", "nurse"))
    system.run("SUBSCRIBE TO root.hr", ward.ned)
    ward.work.stream, ward.work.number = "root.hr~2", -1
    ward.take(3)
    ward.take(4, policy="nurse &")
    assert ward.lines("ned/root.hr") == [2, {"ended": "what it was subscribed to was dropped"}, 3]
    assert "~" not in (ward.folder / "out/ned/root.hr.jsonl").read_text()
    assert sorted(x.name for x in (ward.folder / "out").rglob("*.jsonl")) == [
        "root.hr.jsonl",
        "root.hr.rejected.jsonl",
        "root.hr.subscribers.jsonl",
    ]
    assert "~" not in system.run("EXPLAIN SELECT hr FROM hr [ROWS 5] WHERE hr > 3")[0].text
    (_, _, rows), *_ = RunClient(system.headgate, system.root, everyone=True).summary(ward.work.pipeline.counts)
    assert {row[0] for row in rows} == {"root.hr"}


def test_parquet_files_name_sources_as_people_do_and_still_know_them(
    sqlite_system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was staged before a crash is decided about by the labels that were meant, not by those that are shown."""
    system = sqlite_system
    system.run(SETUP + "DROP QUERY twice; DROP QUERY high; DROP STREAM hr")
    system.run(SETUP.partition(";")[0])
    system.new_user("ned", "nurse")
    system.run(EVERYTHING.format("hr", "nurse"))
    system.run("SUBSCRIBE TO root.hr", system.login("ned"))

    def begin() -> Work:
        sink = ParquetSink(tmp_path / "out", Folders(system.headgate))
        work = Work(system, system.headgate, tmp_path / "engine", sink, Mailbox())
        work.stream = "root.hr~2"
        return work

    work = begin()
    with monkeypatch.context() as patched:
        patched.setattr(type(work.pipeline), "_deliver", lambda *_: None)
        work.take((5, "nurse"))
    work.pipeline.close()
    begin().pipeline.close()
    (file,) = (tmp_path / "out/ned").rglob("*.parquet")
    (row,) = pq.ParquetFile(file).read().to_pylist()
    assert (row["hr"], row["headgate_label"]) == (5, 'nurse FROM "root.hr"')


# AS role, ... ---------------------------------------------------------------------------------------------------------


def test_as_role_leaves_the_query_the_rights_of_that_role_only_and_says_so(sqlite_system: System) -> None:
    """Paper 001, 4.1: the roles of a query are its privileges, for streams as for tuples."""
    system = sqlite_system
    system.run("CREATE STREAM s (a INT)")
    token = system.new_user("bob", "R1", "R2")
    system.run("GRANT ADD ON SYSTEM TO R1; GRANT VIEW OBJECT, READ TUPLE ON STREAM s TO R1")
    system.run("CREATE QUERY a AS SELECT a FROM s; CREATE QUERY b AS R1 SELECT a FROM s", token)
    system.run("CREATE QUERY c AS R1, R2 SELECT a FROM s", token)
    with pytest.raises(AccessDenied) as caught:
        system.run("CREATE QUERY d AS R2 SELECT a FROM s", token)
    assert caught.value.message == (
        "VIEW OBJECT on stream root.s is denied: not the owner, and none of the roles after AS (R2) holds VIEW OBJECT"
    )
    assert caught.value.hint == "a query has the rights of these roles only"
    system.run("CREATE STREAM own (a INT)", token)
    system.run("CREATE QUERY e AS R2 SELECT a FROM own", token)  # what one owns needs no role


def test_other_refusals_speak_of_active_roles(sqlite_system: System) -> None:
    sqlite_system.run("CREATE STREAM s (a INT)")
    token = sqlite_system.new_user("bob", "R1")
    sqlite_system.run("GRANT ADD ON SYSTEM TO R1; GRANT VIEW OBJECT ON STREAM s TO R1")
    with pytest.raises(HeadgateError, match="no active role holds READ TUPLE"):
        sqlite_system.run("CREATE QUERY d AS SELECT a FROM s", token)
