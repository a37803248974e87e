"""A hostile processor finds nothing of a level that its own does not dominate, whatever it reads. The same search finds
everything when nothing is enforced, so it looks in the right places."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from worlds.harness import stream

from headgate.labels import Level
from headgate.levels.child import ProcessChild, Resources
from headgate.levels.folders import Identity, LevelFolders
from levels.harness import Levels, closing

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: each processor gets a user of its own"),
]
NOTES = stream("notes", "a INT, text STRING")
LEVELS = ("U", "S", "TS")
CANARIES = {level: f"canary-{level}-{os.getpid()}-{time.time_ns()}" for level in LEVELS}
PLACES = ("store", "folder", "port", "unix", "abstract")
SECRETS = {place: f"canary-{place}-{os.getpid()}-{time.time_ns()}" for place in PLACES}
WAYS = {"file", "neighbour", "memory", "socket", "shared folder"}
START = """import sys
sys.argv[1:] = ["hostile"]
sys.path.insert(0, {!r})
from headgate.levels.enter import main
main()
"""


@contextmanager
def answering(family: int, address: tuple[str, int] | str, text: str) -> Iterator[socket.socket]:
    """A server of this machine that tells a secret to whoever connects."""
    with socket.socket(family) as listening:
        listening.bind(address)
        listening.listen()

        def answer() -> None:
            while True:
                try:
                    with listening.accept()[0] as client:
                        client.send(text.encode())
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        yield listening
        listening.shutdown(socket.SHUT_RDWR)


class Attack:
    """Honest processors of all levels that hold canaries, and secrets elsewhere on the machine."""

    def __init__(self, home: Path, architecture: str, stack: ExitStack) -> None:
        self.home = home
        home.mkdir(mode=0o700)
        self.levels = stack.enter_context(
            closing(Levels(home / "engine", NOTES, architecture=architecture, start=ProcessChild))
        )
        for level in LEVELS:
            self.levels.query(f"q{level}", "SELECT text FROM notes [ROWS 100]", level=level)
        self.levels.subscribed(**{f"u{level}": (f"q{level}", "", level) for level in LEVELS})
        shepherd = self.levels.open_up()
        for _ in range(2):
            self.levels.take("notes", *((f"TRUE AT {level}", 1, CANARIES[level]) for level in LEVELS))
        shepherd.drain()
        assert (CANARIES["TS"],) in self.levels.received("uTS", "qTS")
        (home / "headgate.db").write_text(SECRETS["store"])
        (home / "headgate.db").chmod(0o600)
        self.common = Path(tempfile.mkdtemp())
        self.common.chmod(0o755)
        (self.common / "left.txt").write_text(SECRETS["folder"])
        (self.common / "left.txt").chmod(0o644)
        port = stack.enter_context(answering(socket.AF_INET, ("127.0.0.1", 0), SECRETS["port"]))
        stack.enter_context(answering(socket.AF_UNIX, str(home / "s"), SECRETS["unix"]))
        stack.enter_context(answering(socket.AF_UNIX, "\0" + f"hg{os.getpid()}", SECRETS["abstract"]))
        self.port = port.getsockname()[1]

    def found(self, level: str, identity: Identity) -> dict[str, list[str]]:
        """What a hostile processor in the place of this level's finds, and how."""
        shepherd = self.levels.shepherd
        assert shepherd is not None
        folder = shepherd._places.of(Level(level))
        command = [sys.executable, "-I", "-c", START.format(str(Path(__file__).parent))]
        child = ProcessChild(folder / "own", identity, Resources(), command)
        try:
            pids = [os.getpid(), *(x.child.pid for x in shepherd.lanes.values() if isinstance(x.child, ProcessChild))]
            child.channel.send(
                "search",
                canaries=[*CANARIES.values(), *SECRETS.values()],
                home=str(self.home),
                now=time.time(),
                pids=pids,
                port=self.port,
                unix=str(self.home / "s"),
                abstract=f"hg{os.getpid()}",
            )
            answer = child.channel.receive()
            assert answer.facts["user"] == (identity.user or 0)
            return dict(answer.facts["found"])
        finally:
            child.kill()


@pytest.fixture(params=["replicated", "kernelized"])
def attack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attack]:
    with ExitStack() as stack:
        yield Attack(tmp_path / "home", request.param, stack)


def identity_of(attack: Attack, level: str) -> Identity:
    assert attack.levels.shepherd is not None
    return attack.levels.shepherd._way.identity(Level(level))[0]


def test_a_hostile_processor_finds_nothing_of_other_levels(attack: Attack) -> None:
    everything = attack.found("U", Identity())  # as the server's user, with nothing enforced
    assert everything.keys() == {*CANARIES.values(), *SECRETS.values()}
    assert {way for ways in everything.values() for way in ways} >= WAYS
    assert attack.found("U", identity_of(attack, "U")).keys() <= {CANARIES["U"]}
    assert attack.found("S", identity_of(attack, "S")).keys() <= {CANARIES["U"], CANARIES["S"]}
    own = attack.found("TS", identity_of(attack, "TS"))
    assert own.keys() <= set(CANARIES.values()) and CANARIES["TS"] in own  # its own state is there


def test_the_folders_of_levels_are_for_their_users_alone(attack: Attack) -> None:
    assert attack.levels.shepherd is not None
    places: LevelFolders = attack.levels.shepherd._places
    for level in LEVELS:
        folder, user = places.of(Level(level)), places.identity(Level(level)).user
        assert (folder / "own").stat().st_uid == user and (folder / "own").stat().st_mode & 0o777 == 0o700
        assert (folder / "queue").stat().st_uid == 0 and (folder / "queue").stat().st_mode & 0o777 == 0o750
        assert (folder / "outlet").stat().st_uid == 0 and (folder / "outlet").stat().st_mode & 0o777 == 0o700
