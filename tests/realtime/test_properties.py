"""Lock manager and scheduler under random programs: serialisable, no deadlock, no inversion, no delay from above."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.labels.levels import Level
from headgate.realtime.access import readable, writable
from headgate.realtime.lattice import Lattice
from headgate.realtime.settings import Approach, Settings
from headgate.realtime.transactions import Item, Operation, Program, Read, Ticket, TransactionManager, Work, Write

from .lattices import DIAMOND, FIVE, FORK, THREE, TWO

MS = 0.001
PER_LEVEL = 2
CYCLE = 20
TURNS = Settings().but("strict.cycle_ms", float(CYCLE)).but("strict.reserve", 0.1)
ALL_ADMITTED = Approach("all admitted", admission=False, slots=True)
STRICT = Approach("strict", feedback="dominated", counted="own", slots=True)


@dataclass(frozen=True)
class Arrival:
    """When, in ms; level; time to the deadline, in ms; what it does: items with (write?, work in ms)."""

    at: int
    level: int
    slack: int
    steps: tuple[tuple[int, bool, int], ...]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Lattice, list[Arrival]]:
    lattice = draw(st.sampled_from([TWO, THREE, FORK, DIAMOND, FIVE]))
    n = len(lattice.levels)
    step = st.tuples(st.integers(0, n * PER_LEVEL - 1), st.booleans(), st.integers(0, 4))
    arrival = st.builds(
        Arrival,
        st.integers(0, 40),
        st.integers(0, n - 1),
        st.integers(1, 120),
        st.lists(step, min_size=1, max_size=5).map(tuple),
    )
    return lattice, sorted(draw(st.lists(arrival, min_size=1, max_size=14)), key=lambda a: a.at)


def program(lattice: Lattice, arrival: Arrival, name: int) -> Program:
    """Reads what it may read, writes what it may write a value made of all it has read, and works in between."""
    may_read, may_write = readable(lattice), writable(lattice, "above")

    def run() -> Generator[Operation, Any, Any]:
        seen: list[Any] = []
        for item, writes, work in arrival.steps:
            level = item // PER_LEVEL
            if writes and may_write[arrival.level, level]:
                yield Write(str(item), hash((name, tuple(seen))))
            elif may_read[arrival.level, level]:
                seen.append((yield Read(str(item))))
            yield Work(work * MS)
        return seen

    return run


def play(lattice: Lattice, arrivals: list[Arrival], approach: Approach) -> tuple[TransactionManager, list[Ticket]]:
    items = {str(i): Item(lattice.levels[i // PER_LEVEL], 0) for i in range(len(lattice.levels) * PER_LEVEL)}
    manager = TransactionManager(lattice, items, approach, TURNS, capacity=16)
    tickets, now = [], 0.0
    numbers: dict[int, int] = defaultdict(int)
    for arrival in arrivals:
        manager.advance(now, arrival.at * MS)
        now = arrival.at * MS
        numbers[arrival.level] += 1
        made = program(lattice, arrival, 1000 * arrival.level + numbers[arrival.level])
        level = lattice.levels[arrival.level]
        tickets.append(manager.submit(now, made, level, now + arrival.slack * MS, 0.005))
    manager.advance(now, 1.0)
    return manager, tickets


@given(histories())
@settings(max_examples=80, deadline=None)
def test_histories_are_serialisable_in_the_order_of_commits(history: tuple[Lattice, list[Arrival]]) -> None:
    lattice, arrivals = history
    manager, tickets = play(lattice, arrivals, ALL_ADMITTED)
    values: dict[str, Any] = dict.fromkeys(manager.values, 0)
    position = {id(ticket): i for i, ticket in enumerate(tickets)}
    for ticket in manager.committed:
        arrival = arrivals[position[id(ticket)]]
        running = program(lattice, arrival, 1000 * arrival.level + ticket.number)()
        written: dict[str, Any] = {}
        answer: Any = None
        result: Any = None
        while result is None:
            try:
                operation = running.send(answer)
            except StopIteration as end:
                result = end.value
                continue
            answer = None
            if isinstance(operation, Read):
                answer = written.get(operation.item, values[operation.item])
            elif isinstance(operation, Write):
                written[operation.item] = operation.value
        assert result == ticket.result
        values.update(written)
    assert values == manager.values


@given(histories())
@settings(max_examples=80, deadline=None)
def test_nobody_waits_for_ever_and_nothing_is_left_locked(history: tuple[Lattice, list[Arrival]]) -> None:
    manager, tickets = play(*history, ALL_ADMITTED)
    assert {ticket.status for ticket in tickets} <= {"committed", "missed"}
    state = manager.handler.state
    assert set(state.items["first"].tolist()) == {-1}
    assert set(state.items["waiting"].tolist()) == {0}
    assert state.queue_count.sum() == 0


@given(histories())
@settings(max_examples=80, deadline=None)
def test_locks_exclude_each_other_and_nobody_waits_for_somebody_who_goes_later(
    history: tuple[Lattice, list[Arrival]],
) -> None:
    lattice, arrivals = history
    manager, tickets = play(lattice, arrivals, ALL_ADMITTED)
    deadline = {(t.level, t.number): a.at + a.slack for t, a in zip(tickets, arrivals, strict=True)}

    def goes_before(one: tuple[Level, int], other: tuple[Level, int]) -> bool:
        if one[0] == other[0]:
            return (deadline[one], one[1]) < (deadline[other], other[1])
        return lattice.order.dominates(other[0], one[0])

    holders: dict[int, set[tuple[Level, int]]] = defaultdict(set)
    for _, event, level, number, item in manager.events:
        me = (level, number)
        if event == "locked":
            holders[item].add(me)
        elif event == "waiting":
            assert any(goes_before(other, me) for other in holders[item] - {me})
        elif event in ("restarted", "committed", "missed", "aborted"):
            for held in holders.values():
                held.discard(me)


@given(histories(), st.sampled_from([ALL_ADMITTED, STRICT]))
@settings(max_examples=80, deadline=None)
def test_what_a_level_sees_does_not_depend_on_levels_it_does_not_dominate(
    history: tuple[Lattice, list[Arrival]], approach: Approach
) -> None:
    lattice, arrivals = history
    manager, tickets = play(lattice, arrivals, approach)
    for k in range(len(lattice.levels)):
        below = [i for i, arrival in enumerate(arrivals) if lattice.dominates[k, arrival.level]]
        alone, again = play(lattice, [arrivals[i] for i in below], approach)
        levels = {lattice.levels[j] for j in range(len(lattice.levels)) if lattice.dominates[k, j]}
        assert [e for e in manager.events if e[2] in levels] == alone.events
        assert [tickets[i] for i in below] == again


def by_ticks(arrivals: list[Arrival], slots: list[tuple[tuple[int, ...], int]]) -> list[float | None]:
    """A slow scheduler: each millisecond goes to the lowest level of the slot's chain, earliest deadline first. Tells
    when each transaction is done, if it ever is."""
    left = [sum(work for _, _, work in arrival.steps) for arrival in arrivals]
    ended: list[float | None] = [None] * len(arrivals)
    turns = [chain for chain, duration in slots for _ in range(duration)]
    for now in range(300):
        for level in turns[now % len(turns)]:
            ready = [
                (a.at + a.slack, i)
                for i, a in enumerate(arrivals)
                if a.level == level and a.at <= now < a.at + a.slack and left[i]
            ]
            if ready:
                i = min(ready)[1]
                left[i] -= 1
                if not left[i]:
                    ended[i] = now + 1
                break
    return ended


@given(histories())
@settings(max_examples=80, deadline=None)
def test_the_scheduler_agrees_with_one_that_counts_milliseconds(history: tuple[Lattice, list[Arrival]]) -> None:
    lattice, arrivals = history
    works = [Arrival(a.at, a.level, a.slack, tuple((0, False, w + 1) for _, _, w in a.steps)) for a in arrivals]
    manager = TransactionManager(lattice, {"x": Item(lattice.levels[0], 0)}, ALL_ADMITTED, TURNS, capacity=16)
    now, tickets = 0.0, []
    for a in works:
        manager.advance(now, a.at * MS)
        now = a.at * MS

        def only_works(total: int = sum(work for _, _, work in a.steps)) -> Generator[Operation, Any, Any]:
            yield Work(total * MS)

        tickets.append(manager.submit(now, only_works, lattice.levels[a.level], now + a.slack * MS, 0.001))
    manager.advance(now, 1.0)
    slots = [(slot.chain, slot.duration // 1_000_000) for slot in lattice.slots(0.1, CYCLE * 1_000_000)]
    ended = [round(t.ended / MS, 6) if t.ended and t.status == "committed" else None for t in tickets]
    assert ended == by_ticks(works, slots)
