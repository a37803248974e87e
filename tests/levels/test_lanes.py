"""Lanes: processors that die, rights that are lost, levels that come while the system runs, levels side by side."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from worlds.harness import stream

from headgate.cql.overload import REFUSE
from headgate.labels import Level, LevelOrder, parse_level
from headgate.levels.child import ProcessChild, Resources, Start
from headgate.levels.folders import Identity
from headgate.levels.shedding import ROOM, notice_of
from headgate.server.level_settings import priority
from levels.harness import Dying, Levels, ThreadChild, closing

NUMBERS = stream("numbers", "n INT")
SUM = "SELECT COUNT(*) AS n, SUM(n) AS s FROM numbers [ROWS 3]"
BOTH = pytest.mark.parametrize("architecture", ["replicated", "kernelized"])


def bench(home: Path, architecture: str, start: Start = ThreadChild, levels: tuple[str, ...] = ("U", "S")) -> Levels:
    found = Levels(home, NUMBERS, architecture=architecture, start=start)
    for level in levels:
        found.query(f"q{level}", "SELECT n FROM numbers", level=level)
    found.subscribed(**{f"u{level}": (f"q{level}", "", level) for level in levels})
    return found


@BOTH
def test_a_processor_that_dies_loses_and_repeats_nothing_and_others_do_not_notice(
    tmp_path: Path, architecture: str
) -> None:
    with closing(bench(tmp_path, architecture)) as levels:
        shepherd = levels.open_up()
        high, low = shepherd.lanes[Level("S")], shepherd.lanes[Level("U")]
        for number in range(12):
            levels.take("numbers", ("TRUE", 2 * number), ("TRUE AT S", 2 * number + 1))
            if number % 3 == 2:
                shepherd.drain()
                assert high.child is not None
                high.child.channel.close()
        shepherd.drain()
        assert levels.received("uS", "qS") == [(n,) for n in range(24)]
        assert levels.received("uU", "qU") == [(n,) for n in range(0, 24, 2)]
        assert high.starts > 4 and low.starts == 1


@BOTH
def test_a_processor_may_die_at_any_message(tmp_path: Path, architecture: str) -> None:
    dying = Dying(1)
    with closing(bench(tmp_path, architecture, dying)) as levels:
        shepherd = levels.open_up()
        for number in range(10):
            levels.take("numbers", ("TRUE", 2 * number), ("TRUE AT S", 2 * number + 1))
        shepherd.drain()
        assert levels.received("uS", "qS") == [(n,) for n in range(20)]
        assert levels.received("uU", "qU") == [(n,) for n in range(0, 20, 2)]
        assert dying.deaths > 2


@BOTH
def test_the_server_goes_on_with_what_waited_in_queues(tmp_path: Path, architecture: str) -> None:
    with closing(bench(tmp_path, architecture)) as levels:
        shepherd = levels.open_up()
        for number in range(5):
            levels.take("numbers", ("TRUE", 2 * number), ("TRUE AT S", 2 * number + 1))
        shepherd.close()  # wherever the processors are
        shepherd = levels.open_up()
        levels.take("numbers", ("TRUE", 10))
        shepherd.drain()
        assert levels.received("uS", "qS") == [(n,) for n in range(11)]
        assert levels.received("uU", "qU") == [(n,) for n in range(0, 11, 2)]


def test_readers_can_go_on_as_soon_as_the_server_is_ready(tmp_path: Path) -> None:
    """A position is read with the history of the log of its level, which is read back before processors start: a reader
    that came earlier was told that its position is not one of its own."""
    held = threading.Event()

    def start(folder: Path, identity: Identity, share: Resources) -> ThreadChild:
        held.wait()
        return ThreadChild(folder, identity, share)

    with closing(bench(tmp_path, "replicated")) as levels:
        shepherd = levels.open_up()
        levels.take("numbers", ("TRUE", 1), ("TRUE AT S", 2))
        shepherd.drain()
        shepherd.close()
        restored = []
        for level, sink in levels.sinks.items():
            sink.restore = lambda *_, level=level, **__: restored.append(level)  # type: ignore[method-assign]
        levels.setting = replace(levels.setting, start=start)
        levels.open_up()
        assert set(restored) == {None, Level("U"), Level("S")}
        held.set()


@BOTH
def test_a_right_that_is_lost_is_lost_although_results_are_computed(tmp_path: Path, architecture: str) -> None:
    """The processor is stopped between its results and their delivery: rights are lost there."""
    with closing(bench(tmp_path, architecture)) as levels:
        shepherd = levels.open_up()
        levels.take("numbers", ("TRUE AT S", 1))
        shepherd.drain()
        high = shepherd.lanes[Level("S")]
        deliver = high._deliver

        def revoked_meanwhile(message: object) -> None:
            levels.subscribed(uU=("qU", "", "U"))
            deliver(message)  # type: ignore[arg-type]

        high._deliver = revoked_meanwhile  # type: ignore[method-assign]
        levels.take("numbers", ("TRUE AT S", 2), ("TRUE", 3))
        shepherd.drain()
        assert levels.received("uS", "qS") == [(1,)]
        assert levels.received("uU", "qU") == [(3,)]


@BOTH
@pytest.mark.parametrize("restarts", [False, True])
def test_windows_keep_the_results_of_a_query_that_is_gone(tmp_path: Path, architecture: str, restarts: bool) -> None:
    """Their labels name streams that nothing reads any more; readers still have their rights to these."""
    with closing(Levels(tmp_path, NUMBERS, stream("others", "n INT"), architecture=architecture)) as levels:
        levels.query("first", "SELECT n FROM numbers")
        levels.query("second", "SELECT a.n AS x, b.n AS y FROM out.first [ROWS 3] a, others [ROWS 1] b")
        levels.subscribed(uS=("second", "", "S"))
        shepherd = levels.open_up()
        levels.take("numbers", ("TRUE", 1), ("TRUE", 2))
        levels.take("others", ("TRUE", 8))
        shepherd.drain()
        del levels.queries["first"]
        levels.subscribed(uS=("second", "", "S"))
        if restarts:
            shepherd.close()
            shepherd = levels.open_up()
        levels.take("others", ("TRUE", 9))
        shepherd.end()
        assert levels.received("uS", "second") == [(1, 8), (2, 8), (1, 9), (2, 9)]


@BOTH
def test_a_level_with_too_much_waiting_goes_without_and_says_so(tmp_path: Path, architecture: str) -> None:
    """The processor of S cannot start for a while. U is not concerned."""
    dead = threading.Event()
    dead.set()

    def start(folder: Path, identity: Identity, share: Resources) -> ThreadChild:
        if dead.is_set() and folder.parent.name == "1":
            raise OSError
        return ThreadChild(folder, identity, share)

    with closing(bench(tmp_path, architecture, start)) as levels:
        share = {"S": Resources(backlog=1), "U": Resources()}
        levels.setting = replace(levels.setting, share=lambda level, _: share[level.name])
        shepherd = levels.open_up()
        for number in range(4):
            levels.take("numbers", ("TRUE", 2 * number), ("TRUE AT S", 2 * number + 1))
        shepherd.lanes[Level("U")].ask("settle").result()
        assert levels.received("uU", "qU") == [(0,), (2,), (4,), (6,)]
        dead.clear()
        shepherd.drain()
        levels.take("numbers", ("TRUE", 8), ("TRUE AT S", 9))
        shepherd.drain()
        assert levels.received("uU", "qU") == [(0,), (2,), (4,), (6,), (8,)]
        assert levels.received("uS", "qS") == [(0,), (1,), (8,), (9,)]
        words = [x.word for x in levels.sinks[Level("S")].found if x.word]
        assert words == [{"waits": notice_of(REFUSE)}, {"continues": ROOM}]
        assert not [x for x in levels.sinks[Level("U")].found if x.word]


@BOTH
def test_levels_that_are_created_while_the_system_runs_get_processors(tmp_path: Path, architecture: str) -> None:
    """Two compartments beside each other, and one level above both."""
    with closing(bench(tmp_path, architecture, levels=("U",))) as levels:
        shepherd = levels.open_up()
        levels.take("numbers", ("TRUE", 0), ("TRUE AT S", 1))
        shepherd.drain()
        assert shepherd.lanes.keys() == {Level("U")}
        order = LevelOrder({"S": frozenset("U"), "A": frozenset("U"), "B": frozenset("U"), "AB": frozenset("AB")})
        names = ("U", "A", "B", "AB", "S{x}", "S{x, y}")
        for name in names[1:]:
            levels.query(f"q{names.index(name)}", "SELECT n FROM numbers", level="U")
        queries = {name: f"q{names.index(name) or 'U'}" for name in names}
        for name, query in queries.items():
            levels.queries[query] = replace(levels.queries[query], level=parse_level(name))
        levels.subscribed(**{f"u{n}": (queries[name], "", "U") for n, name in enumerate(names)})
        subscribers = tuple(
            replace(x, clearance=replace(x.clearance, level=parse_level(name)), level=name)  # type: ignore[type-var]
            for x, name in zip(levels.now.subscribers, names, strict=True)
        )
        levels.now = replace(levels.now, rules=replace(levels.now.rules, order=order), subscribers=subscribers)
        shown = ("TRUE", "TRUE AT A", "TRUE AT B", "TRUE AT A, B", "TRUE AT S{x}", "TRUE AT S{x, y}", "TRUE AT AB")
        levels.take("numbers", *((label, n) for n, label in enumerate(shown, 10)))
        shepherd.drain()
        assert len(shepherd.lanes) == 6
        found = {name: [x[0] for x in levels.received(f"u{n}", queries[name])] for n, name in enumerate(names)}
        assert found == {
            "U": [10],
            "A": [10, 11],
            "B": [10, 12],
            "AB": [10, 11, 12, 13, 16],
            "S{x}": [10, 14],
            "S{x, y}": [10, 14, 15],
        }


def test_a_level_that_is_created_divides_the_shares_anew(tmp_path: Path) -> None:
    """The priority of S was the lowest; TS, above it, has a lower one than S then."""
    started: list[tuple[str, int]] = []

    def start(folder: Path, identity: Identity, share: Resources) -> ThreadChild:
        started.append((folder.parent.name, share.nice))
        return ThreadChild(folder, identity, share)

    with closing(bench(tmp_path, "replicated", start)) as levels:
        levels.setting = replace(
            levels.setting, share=lambda level, now: Resources(nice=priority(level, now.rules.order, {}))
        )
        levels.now = replace(levels.now, rules=replace(levels.now.rules, order=LevelOrder.total("U", "S")))
        shepherd = levels.open_up()
        levels.take("numbers", ("TRUE", 1), ("TRUE AT S", 2))
        shepherd.drain()
        assert sorted(started) == [("0", 0), ("1", 19)]
        levels.query("qTS", "SELECT n FROM numbers", level="TS")
        levels.subscribed(uU=("qU", "", "U"), uS=("qS", "", "S"), uTS=("qTS", "", "TS"))
        levels.now = replace(levels.now, rules=replace(levels.now.rules, order=LevelOrder.total("U", "S", "TS")))
        levels.take("numbers", ("TRUE", 3), ("TRUE AT S", 4), ("TRUE AT TS", 5))
        shepherd.drain()
        assert sorted(started[2:]) == [("1", 10), ("2", 19)]  # not U
        assert levels.received("uU", "qU") == [(1,), (3,)]
        assert levels.received("uS", "qS") == [(1,), (2,), (3,), (4,)]
        assert levels.received("uTS", "qTS") == [(3,), (4,), (5,)]


@pytest.mark.long
@BOTH
def test_processors_that_are_killed_under_load_lose_and_repeat_nothing(tmp_path: Path, architecture: str) -> None:
    """Each of two processors, 20 times, with SIGKILL, whatever it is doing."""
    with closing(bench(tmp_path, architecture, ProcessChild)) as levels:
        shepherd = levels.open_up()
        shepherd.drain()
        number = 0
        for turn in range(40):
            lane = shepherd.lanes[Level(("U", "S")[turn % 2])]
            lane.ask("settle").result()  # it runs
            for _ in range(5):
                levels.take("numbers", ("TRUE", 2 * number), ("TRUE AT S", 2 * number + 1))
                number += 1
            assert isinstance(lane.child, ProcessChild)
            lane.child._process.send_signal(signal.SIGKILL)
        shepherd.drain()
        assert levels.received("uS", "qS") == [(n,) for n in range(2 * number)]
        assert levels.received("uU", "qU") == [(n,) for n in range(0, 2 * number, 2)]
        assert all(lane.starts > 20 for lane in shepherd.lanes.values())
        print({str(level): lane.starts for level, lane in shepherd.lanes.items()})
