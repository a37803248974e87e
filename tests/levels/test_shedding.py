"""Load shedding: what a level goes without is decided by its own backlog and by what streams declare, and it says so.
The attack comes first: a high level tries to change what a low one receives, sheds or is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from worlds.harness import stream

from headgate.cql.overload import REFUSE, Overload, Shed
from headgate.labels import Level
from headgate.levels.child import Resources
from headgate.levels.folders import Identity
from headgate.levels.lane import Lane
from headgate.levels.shedding import ROOM, notice_of
from headgate.levels.shepherd import Shepherd
from headgate.model.rejected import RejectedRows
from levels.harness import Levels, ThreadChild, closing

NUMBERS = stream("numbers", "n INT")
OLDEST, SAMPLE = Overload(Shed.OLDEST), Overload(Shed.SAMPLE, 25.0)
LEVELS = ("U", "S")
BOTH = pytest.mark.parametrize("architecture", ["replicated", "kernelized"])
POLICIES = pytest.mark.parametrize("overload", [REFUSE, OLDEST, SAMPLE], ids=lambda x: x.shed.name)


@dataclass
class Scene:
    """Two levels; the processor of a level in `dead` cannot start, so its tuples wait."""

    home: Path
    architecture: str
    overload: Overload
    backlog: Mapping[str, int]
    dead: set[str] = field(default_factory=set)
    owner: list[RejectedRows] = field(default_factory=list)

    def levels(self) -> Levels:
        found = Levels(self.home, NUMBERS, architecture=self.architecture, start=self._start)
        found.descriptors = {"numbers": replace(found.descriptors["numbers"], overload=self.overload)}
        for level in LEVELS:
            found.query(f"q{level}", "SELECT n FROM numbers", level=level)
        found.subscribed(**{f"u{level}": (f"q{level}", "", level) for level in LEVELS})
        found.setting = replace(
            found.setting,
            share=lambda level, _: Resources(backlog=self.backlog[level.name]),
            stream_levels=lambda: {"numbers": Level("U")},
        )
        return found

    def _start(self, folder: Path, identity: Identity, share: Resources) -> ThreadChild:
        if LEVELS[int(folder.parent.name)] in self.dead:
            raise OSError
        return ThreadChild(folder, identity, share)

    def opened(self, levels: Levels) -> Shepherd:
        shepherd = levels.open_up()
        hear = shepherd._hear
        for n, lane in enumerate(shepherd.lanes.values()):
            lane.shedding._draw = np.random.default_rng(n).random
            lane._around = replace(lane._around, tell=lambda x: (self.owner.extend(x), hear(x))[1])  # type: ignore[func-returns-value]
        return shepherd


def words(levels: Levels, level: str) -> list[Mapping[str, str]]:
    return [x.word for x in levels.sinks[Level(level)].found if x.word]


# The attack -----------------------------------------------------------------------------------------------------------


def low(home: Path, architecture: str, overload: Overload, high: str) -> tuple[object, ...]:
    """All that the low level can notice: results, notices, what its owner is told, what it sheds. Its processor is dead
    at first, so that it sheds."""
    scene = Scene(home, architecture, overload, {"U": 3_000, "S": 3_000}, {"U"} | ({"S"} if high == "dead" else set()))
    secrets = {"idle": 0, "busy": 30, "dead": 30}[high]
    with closing(scene.levels()) as levels:
        shepherd = scene.opened(levels)
        for number in range(8):
            own = [("TRUE", 100 * number + n) for n in range(20)]
            levels.take("numbers", *[("TRUE AT S", -1 - n) for n in range(secrets)], *own)
            if high == "busy":
                shepherd.lanes[Level("S")].ask("settle").result()
        scene.dead.clear()
        shepherd.lanes[Level("U")].ask("settle").result()
        levels.take("numbers", ("TRUE", 1_000), *[("TRUE AT S", 1)] * secrets)
        shepherd.lanes[Level("U")].ask("settle").result()
        owner = [(x.stream, x.reason) for x in scene.owner]
        left_out = dict(shepherd.lanes[Level("U")].shedding.left_out)
        return levels.received("uU", "qU"), words(levels, "U"), owner, left_out


def differs(tmp_path: Path, architecture: str, overload: Overload) -> bool:
    seen = [low(tmp_path / high, architecture, overload, high) for high in ("idle", "busy", "dead")]
    assert seen[0][3] and seen[0][1]  # it does shed, and is told
    return any(x != seen[0] for x in seen)


@BOTH
@POLICIES
def test_what_a_low_level_sheds_does_not_depend_on_higher_ones(
    tmp_path: Path, architecture: str, overload: Overload
) -> None:
    assert not differs(tmp_path, architecture, overload)


def test_the_attack_succeeds_on_a_backlog_that_levels_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[Lane] = []
    begin = Lane.start

    def start(self: Lane, logs_of: Callable[[bytes], frozenset[int]]) -> None:
        known.append(self)
        begin(self, logs_of)

    def used(self: Lane) -> float:
        together = [x for x in known if x._folder.parent == self._folder.parent]
        return sum(x.queue.size for x in together) / self.share.backlog

    monkeypatch.setattr(Lane, "start", start)
    monkeypatch.setattr(Lane, "used", property(used))
    assert differs(tmp_path, "replicated", REFUSE)


# The policies ---------------------------------------------------------------------------------------------------------


def shed(home: Path, architecture: str, overload: Overload, batches: int, each: int) -> tuple[list[int], Scene, Levels]:
    """What the level S receives of batches that came while its processor was dead, and of one afterwards; records of
    one batch take about a kilobyte."""
    scene = Scene(home, architecture, overload, {"U": 0, "S": 6_000}, {"S"})
    with closing(scene.levels()) as levels:
        shepherd = scene.opened(levels)
        for number in range(batches):
            levels.take("numbers", *[("TRUE AT S", each * number + n) for n in range(each)])
        scene.dead.clear()
        shepherd.drain()
        levels.take("numbers", ("TRUE AT S", -1))
        shepherd.drain()
        return [n for (n,) in levels.received("uS", "qS")], scene, levels  # type: ignore[misc]


@BOTH
def test_refuse_leaves_out_the_newest(tmp_path: Path, architecture: str) -> None:
    found, scene, levels = shed(tmp_path, architecture, REFUSE, 12, 1)
    kept = len(found) - 1
    assert 2 < kept < 12 and found == [*range(kept), -1]
    assert words(levels, "S") == [{"waits": notice_of(REFUSE)}, {"continues": ROOM}]
    assert not scene.owner  # the stream is of U, whose owner must not hear how S does


@BOTH
def test_oldest_first_leaves_out_what_waits_longest(tmp_path: Path, architecture: str) -> None:
    found, _, levels = shed(tmp_path, architecture, OLDEST, 12, 1)
    kept = len(found) - 2
    assert 1 < kept < 11 and found == [0, *range(12 - kept, 12), -1]  # the first may be under way
    assert words(levels, "S") == [{"waits": notice_of(OLDEST)}, {"continues": ROOM}]
    assert levels.shepherd is not None and levels.shepherd.counts.left_out == {("S", "numbers"): 11 - kept}


@BOTH
def test_sample_takes_a_random_share_and_states_its_error(tmp_path: Path, architecture: str) -> None:
    found, _, levels = shed(tmp_path, architecture, SAMPLE, 10, 60)
    assert found == [*sorted(found[:-1]), -1] and 60 < len(found) < 480
    assert [x for x in found if 0 <= x < 60] == list(range(60))
    text = (
        "a random 25 percent are taken; n of them stand for n / 0.25, with a standard error of 86.6 / sqrt(n) percent"
    )
    assert words(levels, "S") == [{"waits": f"your level has too many tuples waiting: {text}"}, {"continues": ROOM}]
    assert levels.shepherd is not None and levels.shepherd.counts.left_out == {("S", "numbers"): 601 - len(found)}


def test_the_stated_error_of_a_sample_is_that_of_counts() -> None:
    """10,000 samples of 2,000 tuples: the deviation of counts that are estimated from them."""
    share, tuples = SAMPLE.percent / 100, 2_000
    taken = np.random.default_rng(1).binomial(tuples, share, 10_000)
    stated = np.sqrt(1 - share) / np.sqrt(taken.mean())
    assert np.std(taken / share) / tuples == pytest.approx(stated, rel=0.05)


def test_an_owner_is_told_how_many_tuples_its_own_level_goes_without(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "replicated", REFUSE, {"U": 1, "S": 0}, {"U"})
    with closing(scene.levels()) as levels:
        shepherd = scene.opened(levels)
        for number in range(4):
            levels.take("numbers", ("TRUE", number), ("doctor", 10 + number))
        scene.dead.clear()
        shepherd.drain()
        levels.take("numbers", ("TRUE", 9))
        shepherd.drain()
        assert [(x.stream, x.reason) for x in scene.owner] == [
            ("numbers", notice_of(REFUSE)),
            ("numbers", f"{ROOM}; 6 tuples left out"),
        ]
        # its readers are not: three of these tuples have a role that the reader does not have
        assert words(levels, "U") == [{"waits": notice_of(REFUSE)}, {"continues": ROOM}]
        assert levels.received("uU", "qU") == [(0,), (9,)]


@BOTH
def test_the_backlog_after_a_restart_is_what_it_was_before(tmp_path: Path, architecture: str) -> None:
    scene = Scene(tmp_path, architecture, REFUSE, {"U": 0, "S": 1 << 20}, {"S"})
    with closing(scene.levels()) as levels:
        shepherd = scene.opened(levels)
        for number in range(4):
            levels.take("numbers", *[("TRUE AT S", n) for n in range(number, 500)], ("TRUE", number))
        before = shepherd.lanes[Level("S")].queue.size
        shepherd.close()
        assert scene.opened(levels).lanes[Level("S")].queue.size == before > 4 * 500 * 8


@BOTH
def test_what_was_shed_stays_shed_after_a_restart_of_the_server(tmp_path: Path, architecture: str) -> None:
    scene = Scene(tmp_path, architecture, OLDEST, {"U": 0, "S": 3_000}, {"S"})
    with closing(scene.levels()) as levels:
        shepherd = scene.opened(levels)
        for number in range(6):
            levels.take("numbers", ("TRUE AT S", number))
        shepherd.close()
        shepherd = scene.opened(levels)
        for number in range(6, 9):
            levels.take("numbers", ("TRUE AT S", number))
        scene.dead.clear()
        shepherd.drain()
        found = [int(str(n)) for (n,) in levels.received("uS", "qS")]
        assert found == sorted(set(found)) and 0 in found and 8 in found and len(found) < 9
