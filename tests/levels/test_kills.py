"""`kill -9` of the shepherd, which is the server, and of its processors, while senders publish at two levels: every
result comes once, none is lost, and a level does not notice that the processor of another one died."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from pathlib import Path

import pytest
from conftest import PASSWORD
from server.test_kills import Killed

from headgate.client import Client

KILLS = int(os.environ.get("HEADGATE_KILLS", "20"))
LEVELS = ("U", "S")
PATIENCE = 180.0
WARD = f"""
CREATE LEVEL S ABOVE U;
CREATE ROLE nurse; CREATE ROLE sender;
CREATE USER ned PASSWORD '{PASSWORD}' CLEARANCE S; GRANT ROLE nurse TO USER ned;
CREATE USER sam PASSWORD '{PASSWORD}' CLEARANCE S; GRANT ROLE sender TO USER sam;
GRANT ADD ON SYSTEM TO nurse;
"""
OWN = """CREATE STREAM pulse{level} (sender STRING, n INT) SOURCE publish;
GRANT VIEW OBJECT, PUBLISH ON STREAM pulse{level} TO sender;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM pulse{level} TO nurse;
CREATE QUERY all{level} AS {all}; START QUERY all{level}; SUBSCRIBE TO all{level};
CREATE QUERY count{level} AS SELECT COUNT(*) AS n FROM pulse{level} [UNBOUNDED]; START QUERY count{level};
SUBSCRIBE TO count{level}
"""
ALL = {
    "U": "SELECT sender, n FROM pulseU",
    "S": "SELECT sender, n FROM pulseU UNION ALL SELECT sender, n FROM pulseS",
}
BOTH = pytest.mark.parametrize("architecture", ["replicated", "kernelized"])


class Sender(threading.Thread):
    """Publishes numbers at a level until it is asked to end; those in `sent` were acknowledged."""

    def __init__(self, client: Client, level: str) -> None:
        super().__init__(daemon=True)
        self._client, self._level = client, level
        self.sent = 0
        self.ending = threading.Event()

    def run(self) -> None:
        chance, publisher = random.Random(self._level), self._client.publisher(f"ned.pulse{self._level}")
        while not self.ending.wait(0.06):  # else they outrun the processors
            some = range(self.sent + 1, self.sent + 1 + chance.randint(1, 20))
            publisher.send([{"sender": self._level, "n": n} for n in some], seconds=PATIENCE)
            self.sent = some[-1]


class Reader(threading.Thread):
    """Reads all results of a subscription, until the connection is closed."""

    def __init__(self, client: Client, stream: str) -> None:
        super().__init__(daemon=True)
        self._client, self._stream = client, stream
        self.found: list[tuple[object, ...]] = []
        self.words: list[object] = []
        self.changed = threading.Condition()
        self.ending = False

    def run(self) -> None:
        try:
            self._read()
        except Exception:
            if not self.ending:
                raise

    def _read(self) -> None:
        for received in self._client.subscribe(self._stream):
            with self.changed:
                if received.values is None:
                    self.words.append(received)
                else:
                    self.found.append(tuple(received.values.values()))
                self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.found) >= count, PATIENCE), (len(self.found), count)

    def wait_until_last(self, value: object) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.found[-1:] == [(value,)], PATIENCE), (self.found[-1:], value)


def children(pid: int) -> list[int]:
    return [int(x) for path in Path(f"/proc/{pid}/task").glob("*/children") for x in path.read_text().split()]


def ended(pid: int) -> bool:
    """Within some seconds."""
    pause = threading.Event()
    return any(not Path(f"/proc/{pid}").exists() or pause.wait(0.1) for _ in range(200))


class Ward:
    """A server whose levels are apart, a sender, and readers of a stream and of a running count, at each level."""

    def __init__(self, home: Path, kind: str, architecture: str) -> None:
        self.server = Killed(home, kind, WARD, architecture)
        self.server.start()
        for level in LEVELS:
            self.server.client("ned", level).execute(OWN.format(level=level, all=ALL[level]))
        reading = {level: self.server.client("ned", level) for level in LEVELS}
        self.tuples = {level: Reader(reading[level], f"all{level}") for level in LEVELS}
        self.totals = {level: Reader(self.server.client("ned", level), f"count{level}") for level in LEVELS}
        self.senders = {level: Sender(self.server.client("sam", level), level) for level in LEVELS}
        for thread in (*self.tuples.values(), *self.totals.values(), *self.senders.values()):
            thread.start()

    def processors(self) -> dict[str, int]:
        """The processes of levels."""
        assert self.server.process is not None
        places = self.server.home / "engine" / "levels"
        numbers = json.loads((places / "levels.json").read_text())["levels"]
        found = {Path(os.readlink(f"/proc/{pid}/cwd")): pid for pid in children(self.server.process.pid)}
        return {level: found[place] for level, n in numbers.items() if (place := places / str(n) / "own") in found}

    def go_on(self, chance: random.Random) -> None:
        """Waits until more results have come at each level."""
        for reader in self.tuples.values():
            reader.wait_for(len(reader.found) + chance.randint(5, 60))

    def check(self) -> None:
        for sender in self.senders.values():
            sender.ending.set()
            sender.join(PATIENCE)
            assert not sender.is_alive()
        low, high = (self.senders[level].sent for level in LEVELS)
        expected = {"U": {"U": low}, "S": {"U": low, "S": high}}
        for level, sent in expected.items():
            self.tuples[level].wait_for(sum(sent.values()))
            stream = f"ned.pulse{level}"  # a count is final when something later has come
            self.server.client("sam", level).publish(stream, [{"sender": "end", "n": 0}])
            self.totals[level].wait_until_last(sent[level])
            for name, count in sent.items():
                assert [n for at, n in self.tuples[level].found if at == name] == list(range(1, count + 1))
            assert len([n for at, n in self.tuples[level].found if at != "end"]) == sum(sent.values())
            totals = [n for (n,) in self.totals[level].found]
            assert totals == sorted(set(totals))  # type: ignore[type-var]
        print({"tuples": {"U": low, "S": high}, "totals": {x: len(y.found) for x, y in self.totals.items()}})

    def close(self) -> None:
        for reader in (*self.tuples.values(), *self.totals.values()):
            reader.ending = True
        for sender in self.senders.values():
            sender.ending.set()
        self.server.kill()
        for client in self.server.clients:
            client.close()


def kill_shepherd(home: Path, kind: str, architecture: str, kills: int) -> None:
    ward, chance = Ward(home, kind, architecture), random.Random(7)
    try:
        for _ in range(kills):
            ward.go_on(chance)
            orphans = ward.processors()
            assert len(orphans) == len(LEVELS)
            ward.server.kill()
            assert all(map(ended, orphans.values()))  # processors end with the server
            ward.server.start()
        ward.check()
    finally:
        ward.close()


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("kind", ["direct", "spark"])
def test_a_shepherd_that_is_killed_20_times_loses_and_repeats_nothing(
    tmp_path: Path, kind: str, architecture: str
) -> None:
    kill_shepherd(tmp_path, kind, architecture, KILLS)


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("level", LEVELS)
def test_a_processor_that_is_killed_20_times_loses_and_repeats_nothing(
    tmp_path: Path, level: str, architecture: str
) -> None:
    """The other processor is the same process until the end, and its results keep coming while this one is dead."""
    ward, chance = Ward(tmp_path, "direct", architecture), random.Random(7)
    other = LEVELS[1 - LEVELS.index(level)]
    try:
        ward.go_on(chance)
        survivor = ward.processors()[other]
        for _ in range(KILLS):
            os.kill(ward.processors()[level], signal.SIGKILL)
            ward.tuples[other].wait_for(len(ward.tuples[other].found) + 5)
            ward.go_on(chance)
            assert ward.processors()[other] == survivor
        ward.check()
        assert not ward.tuples[other].words
    finally:
        ward.close()
