"""`kill -9` of Headgate at work, Spark and all, while files arrive: what it wrote is what the oracle says.

Every life is a process of its own, with its own Java. The next one starts Spark while the one before still works, so
that kills hit work and not the seconds before it; one in ten is killed before its first batch all the same.
HEADGATE_KILLS says how many kills there are.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headgate.labels import Conjunction, Label, parse_roles
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.expressions import Value
from headgate.service import Headgate
from headgate.service.folders import Folders
from headgate.service.streams import checkpoint_name
from headgate.testing.oracle import CascadedQuery, CascadeSetting, Event, OracleResult, Tuple, cascade

SERVICE = Path(__file__).with_name("crash_service.py")
BEGIN = dt.datetime(2024, 3, 1, 8, 0, tzinfo=dt.UTC)
PASSWORD = "correct horse"
POLICIES = ("doctor | nurse", "doctor", "doctor & cardiology", "doctor | nurse | administration")
PEOPLE = {"dora": "doctor", "carl": "doctor, cardiology", "nina": "nurse", "adam": "administration"}
SETUP = """
SET SYSTEM idle_minutes = 600;
CREATE ROLE doctor; CREATE ROLE cardiology; CREATE ROLE nurse; CREATE ROLE administration;
{users}
CREATE STREAM HR (at TIMESTAMP, patient INT, rate INT, policy STRING)
  EVENT TIME at LATENESS 5 SECONDS ROLES FROM policy SOURCE json (path = '{folder}/HR', maxFilesPerTrigger = '1');
CREATE STREAM BP (at TIMESTAMP, patient INT, pressure INT, policy STRING)
  EVENT TIME at LATENESS 5 SECONDS ROLES FROM policy SOURCE json (path = '{folder}/BP', maxFilesPerTrigger = '1');
GRANT VIEW OBJECT, READ TUPLE ON STREAM HR TO doctor, nurse, administration;
GRANT VIEW OBJECT, READ TUPLE ON STREAM BP TO doctor, nurse, administration;
CREATE QUERY alarms AS SELECT patient, rate WHERE rate > 100 FROM HR;
CREATE QUERY racing AS
  SELECT patient, COUNT(*) AS n, MAX(rate) AS top WHERE rate > 90 FROM HR [RANGE 20 SECONDS] GROUP BY patient;
CREATE QUERY strained AS
  SELECT HR.patient, rate, pressure FROM HR [RANGE 3 SECONDS], BP [RANGE 3 SECONDS] WHERE HR.patient = BP.patient;
CREATE QUERY load AS SELECT COUNT(*) AS n, SUM(rate) AS all_rates FROM HR [RANGE 10 SECONDS SLIDE 5 SECONDS];
CREATE QUERY worst AS SELECT COUNT(*) AS n, MAX(top) AS most FROM racing [ROWS 7];
START QUERY alarms; START QUERY racing; START QUERY strained; START QUERY load; START QUERY worst;
{grants}
"""
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it lives for seconds
QUERIES = ("alarms", "racing", "strained", "load", "worst")


class Hospital:
    """A store, people with sessions that subscribed to everything, and files that come."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.events: list[Event] = []
        self.count = 0
        self.clock = BEGIN
        self.headgate = Headgate.at_home(folder / "headgate", create=True)
        self.headgate.initialise("joe", PASSWORD)
        joe = self.headgate.login("joe", PASSWORD)
        (folder / "token").write_text(joe)
        users = "\n".join(
            f"CREATE USER {name} PASSWORD '{PASSWORD}'; GRANT ROLE {roles} TO USER {name};"
            for name, roles in PEOPLE.items()
        )
        grants = "\n".join(
            f"GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM {query} TO doctor, nurse, administration;"
            for query in QUERIES
        )
        for stream in ("HR", "BP"):
            (folder / stream).mkdir()
        self.headgate.execute(joe, SETUP.format(users=users, grants=grants, folder=folder))
        for name in PEOPLE:
            token = self.headgate.login(name, PASSWORD)
            self.headgate.execute(token, "; ".join(f"SUBSCRIBE TO joe.{query}" for query in QUERIES))

    def arrive(self) -> None:
        """One more file of each stream, complete before it has its name; tuples in disorder, none too late."""
        for stream, column in (("HR", "rate"), ("BP", "pressure")):
            rows = []
            for _ in range(self.random.randint(1, 4)):
                at = self.clock + dt.timedelta(milliseconds=self.random.randrange(4000))
                patient = self.random.randrange(4)
                rows.append(
                    {
                        "at": at.isoformat(),
                        "patient": patient,
                        column: self.random.randint(80, 130),
                        "policy": POLICIES[patient],
                    }
                )
            new = self.folder / stream / f".{self.count:05}.json"
            new.write_text("".join(json.dumps(row) + "\n" for row in rows))
            moment = (BEGIN + dt.timedelta(seconds=self.count)).timestamp()
            os.utime(new, (moment, moment))
            new.rename(new.with_name(new.name[1:]))
            self.events += [self._tuple(f"joe.{stream}", row) for row in rows]
        self.count += 1
        self.clock += dt.timedelta(seconds=1)

    def _tuple(self, stream: str, row: dict[str, Any]) -> Tuple:
        at = dt.datetime.fromisoformat(row["at"])
        rules = self.headgate.snapshot().rules
        label = rules.combine(
            Label(sources=frozenset({stream})), Label(roles=Conjunction.of(parse_roles(row["policy"])))
        )
        values: dict[str, Value] = {**row, "at": at}
        return Tuple(stream, round(at.timestamp() * 1000), values, rules.normal(label))

    def expected(self) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
        snapshot, found = self.headgate.snapshot(), {}
        for subscriber in snapshot.subscribers:
            results = self._received(snapshot, subscriber.name, subscriber.query)
            found[subscriber.name, subscriber.query] = [
                (dt.datetime.fromtimestamp(x.time / 1000, dt.UTC).isoformat(), str(x.label), x.values) for x in results
            ]
        return found

    def _received(self, snapshot: CatalogSnapshot, who: str, query: str) -> list[OracleResult]:
        """Of a query over the results of another: what it makes of those that this subscriber would receive."""
        running, given = snapshot.running[query], {who: snapshot.clearances[who, query]}
        producers = [x for x in snapshot.queries if x.output in running.streams]
        links = [CascadedQuery(x.query, x.output, x.level) for x in (*producers, replace(running, output="its own"))]
        lateness = {name: late for x in (*producers, running) for name, late in x.lateness.items()}
        return cascade(links, self.events, given, CascadeSetting(snapshot.rules, lateness))["its own"][who]

    def written(self) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
        snapshot, folders, found = self.headgate.snapshot(), Folders(self.headgate), {}
        for x in snapshot.subscribers:
            user, name = folders.of(x.name, x.query).path
            file = self.folder / "out" / user / f"{name}.jsonl"
            lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
            results = (y for y in lines if "values" in y)
            found[x.name, x.query] = [(y["time"], y["label"], tuple(y["values"].values())) for y in results]
        return found

    def sizes(self, user: str) -> dict[str, int]:
        """How many results there are; that some are suspended may be said after them."""
        files = (self.folder / "out" / user).glob("*.jsonl")
        return {file.name: file.read_bytes().count(b'"values"') for file in files}


class Life:
    """One process with its Java, in a group of their own."""

    def __init__(self, folder: Path, number: int) -> None:
        self._page = folder / f"page{number}"
        self._page.write_bytes(b"starting Spark".ljust(32))
        self._said = (folder / f"said{number}").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(SERVICE), str(folder), str(self._page)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=os.environ | {"JAVA_TOOL_OPTIONS": JAVA},
            start_new_session=True,
        )

    def hear(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self._said.seek(0)
        assert line.strip() == word, f"{line!r} instead of {word!r}: {self._said.read()}"

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        print(word, file=self.process.stdin, flush=True)

    def begin(self, work: str) -> None:
        self.hear("warm")
        self.say(work)

    def replay(self) -> None:
        """Reads all there is, to its end."""
        self.begin("replay")
        self.hear("working")
        self.hear("done")
        assert self.process.wait() == 0

    def end(self) -> None:
        """Nothing of it is left behind, however the test went."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.bury()

    def kill(self) -> str:
        """Python and Java at once; returns what they were doing."""
        assert self.process.poll() is None, "it ended on its own"
        os.killpg(self.process.pid, signal.SIGKILL)
        return self.bury()

    def bury(self) -> str:
        self.process.wait()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self._said.close()
        return self._page.read_bytes().decode().strip()


def kill_again_and_again(folder: Path, seed: int, kills: int) -> None:
    hospital, rng, phases = Hospital(folder, seed), Random(seed), Counter[str]()
    life = Life(folder, 0)
    try:
        for number in range(kills):
            for _ in range(2):
                hospital.arrive()
            life.begin("follow")
            early = rng.random() < 0.1
            if not early:
                life.hear("working")
            standby = Life(folder, number + 1)
            try:
                hospital.arrive()
                time.sleep(rng.uniform(0, 4))  # the moment of death is what the test is about
                phases[life.kill()] += 1
            finally:
                life = standby
            print(f"kill {number + 1}: {dict(phases)}", flush=True)
        life.replay()
    finally:
        life.end()
    right, found = hospital.expected(), hospital.written()
    assert sum(map(len, right.values())) > kills
    wrong = [key for key in right if right[key] != found[key]]
    assert not wrong, {key: (len(right[key]), len(found[key])) for key in wrong}
    results = sum(map(len, right.values()))
    print(f"{kills} kills, {dict(phases)}: {2 * hospital.count} files, {results} results exactly", flush=True)
    hospital.headgate.close()


@pytest.mark.long
def test_a_service_killed_a_hundred_times_writes_exactly_what_the_oracle_says(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 7, int(os.environ.get("HEADGATE_KILLS", "100")))


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, 12])
def test_a_right_that_was_lost_just_before_a_kill_is_lost_for_all_that_was_not_out(tmp_path: Path, seed: int) -> None:
    """When REVOKE has returned nothing more goes out to those it is about, whatever is recovered afterwards."""
    hospital, rng = Hospital(tmp_path, seed), Random(seed)
    for _ in range(6):
        hospital.arrive()
    right = hospital.expected()
    nina = {x.name for x in hospital.headgate.snapshot().subscribers if outgoing(hospital, x.name, x.query) == "nina"}
    with_right = {key: right[key] for key in right if key[0] in nina}
    assert all(with_right.values())
    life = Life(tmp_path, 0)
    try:
        life.begin("follow")
        life.hear("working")
        time.sleep(rng.uniform(0.0, 3.0))  # the moment is what the test is about
        hospital.headgate.execute((tmp_path / "token").read_text(), "REVOKE READ TUPLE ON STREAM HR FROM nurse")
        sizes = hospital.sizes("nina")
        print(f"\nkilled: {life.kill()}")
        life = Life(tmp_path, 1)
        life.replay()
    finally:
        life.end()
    found, after = hospital.written(), hospital.sizes("nina")
    assert all(size <= sizes.get(file, 0) for file, size in after.items())
    assert all(found[key] == lines[: len(found[key])] for key, lines in with_right.items())
    assert {key: x for key, x in found.items() if key[0] not in nina} == {
        key: x for key, x in right.items() if key[0] not in nina
    }
    hospital.headgate.close()


def outgoing(hospital: Hospital, subscriber: str, query: str) -> str:
    return hospital.headgate.snapshots.outgoing(subscriber, query).user


class Command:
    """`headgate run --everyone`, as a person types it."""

    def __init__(self, folder: Path, *more: str) -> None:
        begin = "from headgate.cli import main; main()"
        place = ["--home", str(folder / "headgate"), "--session", str(folder / "token")]
        self.process = subprocess.Popen(
            [sys.executable, "-c", begin, *place, "run", "--everyone", "--out", str(folder / "out"), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"JAVA_TOOL_OPTIONS": JAVA},
            start_new_session=True,
        )

    def ends(self) -> tuple[int, str, str]:
        out, error = self.process.communicate(timeout=600)
        return self.process.returncode, out, error

    def fails(self) -> str:
        """With one line of our own."""
        code, out, error = self.ends()
        lines = [line for line in error.splitlines() if line.startswith("error: ")]
        assert (code, out, len(lines)) == (1, "", 1), (code, out, error)
        assert "Traceback" not in error
        return lines[0]


@pytest.mark.long
def test_a_run_that_is_stopped_by_a_signal_can_go_on(tmp_path: Path) -> None:
    """A folder that is missing at first, a second process, SIGTERM, Ctrl-C; then all of it is there."""
    hospital = Hospital(tmp_path, 21)
    hospital.arrive()
    (tmp_path / "HR").rename(tmp_path / "later")
    command = Command(tmp_path, "--follow")
    assert command.process.stderr is not None
    while (line := command.process.stderr.readline()) and "joe.HR" not in line:
        pass
    assert line == f"cannot read stream joe.HR as `json`: PATH_NOT_FOUND: `{tmp_path}/HR`; it is tried again\n"
    (tmp_path / "later").rename(tmp_path / "HR")
    assert command.process.stderr.readline() == "stream joe.HR can be read again\n"
    while not any(hospital.written().values()):
        assert command.process.poll() is None, command.ends()
        time.sleep(0.1)
    command.process.send_signal(signal.SIGTERM)
    assert command.ends()[0] == 0
    for number in (signal.SIGTERM, signal.SIGINT):
        hospital.arrive()
        command = Command(tmp_path, "--follow")
        before = hospital.sizes("dora")
        while hospital.sizes("dora") == before:
            assert command.process.poll() is None, command.ends()
            time.sleep(0.1)
        assert "another process works in" in Command(tmp_path).fails()
        assert "another process works in" in Command(tmp_path, "--fresh").fails()
        command.process.send_signal(number)
        code, out, error = command.ends()
        assert code == 0 and "joe.HR" in out and "Traceback" not in error, (code, out, error)
    hospital.arrive()
    assert Command(tmp_path).ends()[0] == 0
    assert hospital.written() == hospital.expected()
    hospital.headgate.close()


@pytest.mark.long
def test_a_lost_checkpoint_or_state_is_reported_and_everything_can_be_read_again(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, 22)
    for _ in range(3):
        hospital.arrive()
    assert Command(tmp_path).ends()[0] == 0
    engine = tmp_path / "headgate" / "engine"
    (engine / "checkpoints" / checkpoint_name("joe.BP")).rename(tmp_path / "kept")
    said = Command(tmp_path).fails()
    assert "is missing or older than the state" in said and "--fresh" in said
    (tmp_path / "kept").rename(engine / "checkpoints" / checkpoint_name("joe.BP"))
    (engine / "state").rename(tmp_path / "kept")
    said = Command(tmp_path).fails()
    assert "the state is missing or older" in said and "--fresh" in said
    hospital.arrive()
    assert Command(tmp_path, "--fresh").ends()[0] == 0
    assert hospital.written() == hospital.expected()
    hospital.headgate.close()
