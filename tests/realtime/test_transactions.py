"""Programs on the in-memory store: access rules, versions, deadlines, aborts; traces computed by hand."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from headgate.errors import AccessDenied, Conflict, HeadgateError, NotFound
from headgate.labels.levels import Level
from headgate.realtime.lattice import Lattice
from headgate.realtime.settings import COVERT_AC, OPEN, Approach, Settings
from headgate.realtime.transactions import (
    Item,
    Milestone,
    Operation,
    Program,
    Read,
    Ticket,
    TransactionManager,
    Work,
    Write,
)

from .lattices import DIAMOND, TWO

U, S = Level("U"), Level("S")
Steps = Generator[Operation, Any, Any]


def store(approach: Approach = OPEN, lattice: Lattice = TWO, settings: Settings | None = None) -> TransactionManager:
    items = {f"{level}{i}": Item(level, 0) for level in lattice.levels for i in range(3)}
    return TransactionManager(lattice, items, approach, settings)


def does(*operations: Operation) -> Program:
    """A program that does these and returns what its reads gave."""

    def program() -> Steps:
        seen = []
        for operation in operations:
            answer = yield operation
            if isinstance(operation, Read):
                seen.append(answer)
        return seen

    return program


def run(manager: TransactionManager, *submissions: tuple[float, Level, float, Program], until: float) -> list[Ticket]:
    """Submits (when, level, deadline, program) in order and runs to the end."""
    tickets, now = [], 0.0
    for when, level, deadline, program in submissions:
        manager.advance(now, when)
        tickets.append(manager.submit(when, program, level, deadline, 0.01))
        now = when
    manager.advance(now, until)
    return tickets


def test_a_transaction_reads_writes_and_commits() -> None:
    manager = store()
    (ticket,) = run(manager, (0, U, 1, does(Write("U0", 7), Read("U0"), Work(0.5))), until=2)
    assert (ticket.status, ticket.result, ticket.ended) == ("committed", [7], 0.5)
    assert manager.values["U0"] == 7


def test_the_dominated_level_preempts() -> None:
    manager = store()
    high, low = run(manager, (0, S, 10, does(Work(1.0))), (0.4, U, 10, does(Work(0.5))), until=10)
    assert (low.ended, high.ended) == (0.9, 1.5)


def test_the_earliest_deadline_goes_first_within_a_level() -> None:
    manager = store()
    late, early = run(manager, (0, U, 10, does(Work(1.0))), (0.4, U, 5, does(Work(0.5))), until=10)
    assert (early.ended, late.ended) == (0.9, 1.5)


def test_a_deadline_is_firm_and_its_last_instant_counts() -> None:
    manager = store()
    hit, missed = run(manager, (0, U, 1.0, does(Work(1.0))), (0, S, 1.5, does(Write("S0", 1), Work(1.0))), until=9)
    assert (hit.status, hit.ended) == ("committed", 1.0)
    assert missed.status == "missed"
    assert missed.ended == pytest.approx(1.5)
    assert manager.values["S0"] == 0


def test_a_conflict_aborts_the_later_transaction_which_starts_again() -> None:
    manager = store()
    reads_below = does(Read("U0"), Work(1.0))
    high, low = run(manager, (0, S, 9, reads_below), (0.5, U, 9, does(Write("U0", 3), Work(0.2))), until=9)
    assert (low.ended, high.ended) == (0.7, 1.7)  # the reader lost 0.5 of its work
    assert (high.restarts, high.result) == (1, [3])


def test_a_reader_does_not_disturb_another_reader() -> None:
    manager = store()
    tickets = run(manager, (0, S, 9, does(Read("U0"), Work(1.0))), (0.5, U, 9, does(Read("U0"), Work(0.2))), until=9)
    assert [ticket.restarts for ticket in tickets] == [0, 0]


def test_a_read_lock_becomes_a_write_lock() -> None:
    manager = store()
    upgrades = does(Read("U0"), Work(0.1), Write("U0", 5), Work(0.1))
    other, ticket = run(manager, (0, U, 9, does(Read("U0"), Work(1.0))), (0.5, U, 2, upgrades), until=9)
    assert ticket.ended == pytest.approx(0.7)
    assert (other.restarts, other.result) == (1, [5])


def test_without_levels_in_the_scheduler_the_low_transaction_waits_for_the_high_one() -> None:
    """The channel that Covert-AC leaves open, seen."""
    for load, ended in ((False, 0.5), (True, 1.0)):
        manager = store(COVERT_AC)
        high = [(0.0, S, 1.0, does(Work(0.5)))] if load else []
        assert run(manager, *high, (0.0, U, 2.0, does(Work(0.5))), until=9)[-1].ended == ended


def test_incomparable_levels_take_turns_and_their_blind_writes_do_not_conflict() -> None:
    settings = Settings().but("strict.cycle_ms", 10.0).but("strict.reserve", 0.0)
    a, b = Level("A"), Level("B")
    for alone in (True, False):
        manager = store(Approach("turns", admission=False, slots=True), DIAMOND, settings)
        writes = (does(Write("T0", "a"), Work(0.009)), does(Write("T0", "b"), Work(0.02)))
        others = [] if alone else [(0.0, b, 1.0, writes[1])]
        tickets = run(manager, (0.0, a, 1.0, writes[0]), *others, until=1)
        assert (tickets[0].ended, tickets[0].restarts) == (0.014, 0)  # turns of 5 ms: 0-5, 10-15
        assert manager.values["T0"] == ("a" if alone else "b")


def test_a_level_above_waits_for_a_lock_of_a_dominated_level_that_has_no_turn() -> None:
    settings = Settings().but("strict.cycle_ms", 10.0).but("strict.reserve", 0.0)
    manager = store(Approach("turns", admission=False, slots=True), DIAMOND, settings)
    b, top = Level("B"), Level("T")
    low, high = run(
        manager,
        (0.0, b, 1.0, does(Write("T0", 1), Work(0.006))),
        (0.005, top, 1.0, does(Work(0.006), Read("T0"))),
        until=1,
    )
    # B works 5-10 and 15-16 ms; T has 10-15 and 16-17, and then reads what B wrote.
    assert (low.ended, high.ended, high.result) == (0.016, 0.017, [1])
    assert "waiting" not in [event for _, event, *_ in manager.events]
    manager = store(Approach("turns", admission=False, slots=True), DIAMOND, settings)
    low, high = run(
        manager,
        (0.0, b, 1.0, does(Write("T0", 1), Work(0.006))),
        (0.005, top, 1.0, does(Read("T0"), Work(0.001))),
        until=1,
    )
    assert (low.ended, high.ended, high.result) == (0.016, 0.017, [1])
    assert "waiting" in [event for _, event, *_ in manager.events]


def test_nobody_reads_above_and_hidden_items_do_not_exist() -> None:
    manager = store()
    hidden, absent = run(manager, (0, U, 1, does(Read("S0"))), (0, U, 1, does(Read("S9"))), until=1)
    assert hidden.status == absent.status == "failed"
    assert isinstance(hidden.error, NotFound)
    assert str(hidden.error) == "cannot read item `S0`: there is none for level `U`"
    assert str(absent.error) == "cannot read item `S9`: there is none for level `U`"


def test_nobody_writes_below() -> None:
    manager = store()
    (ticket,) = run(manager, (0, S, 1, does(Write("U0", 1))), until=1)
    assert isinstance(ticket.error, AccessDenied)
    assert str(ticket.error) == "cannot write item `U0`: level `S` may only read it"
    assert manager.values["U0"] == 0


def test_writing_above_is_a_choice() -> None:
    (above,) = run(manager := store(), (0, U, 1, does(Write("S0", 1))), until=1)
    assert (above.status, manager.values["S0"]) == ("committed", 1)
    equal = store(settings=Settings().but("model.write_rule", "equal"))
    (ticket,) = run(equal, (0, U, 1, does(Write("S0", 1))), until=1)
    assert str(ticket.error) == "cannot write item `S0`: there is none for level `U`"


def test_a_degraded_transaction_ends_at_its_milestone() -> None:
    settings = Settings().but("model.milestones", (0.25, 0.5, 1.0))
    results = []
    for quality in (0.0, 0.5, 1.0):
        manager = store(settings=settings)
        manager.handler.state.groups["quality"] = quality
        program = does(Work(0.1), Milestone("rough"), Work(0.1), Milestone("fair"), Write("U0", 1), Work(0.2))
        (ticket,) = run(manager, (0, U, 1, program), until=1)
        results.append((ticket.version, ticket.result, ticket.ended, manager.values["U0"]))
    assert results == [(0, "rough", 0.1, 0), (1, "fair", 0.2, 0), (2, [], 0.4, 1)]


def test_a_program_that_fails_leaves_nothing_behind() -> None:
    def fails() -> Steps:
        yield Write("U0", 1)
        raise ValueError("no luck")

    manager = store()
    failed, after = run(manager, (0, U, 1, fails), (0, U, 2, does(Read("U0"))), until=2)
    assert (failed.status, str(failed.error)) == ("failed", "no luck")
    assert (after.status, after.result, after.restarts) == ("committed", [0], 0)


def test_bad_programs_and_submissions_are_refused() -> None:
    manager = store()
    with pytest.raises(Conflict, match="cannot submit a transaction: its deadline must lie ahead"):
        manager.submit(5, does(), U, 5, 1)
    bad = does("sleep")  # type: ignore[arg-type]
    (ticket,) = run(manager, (0, U, 1, bad), until=1)
    assert isinstance(ticket.error, HeadgateError)
    assert str(ticket.error) == "cannot run `str`: yield Read, Write, Work or Milestone"
    with pytest.raises(Conflict, match="cannot open a store without items: name at least one"):
        TransactionManager(TWO, {})


def test_too_many_locks_end_a_transaction() -> None:
    items = {f"U{i}": Item(U, 0) for i in range(70)}
    manager = TransactionManager(TWO, items, OPEN)
    (ticket,) = run(manager, (0, U, 1, does(*(Read(name) for name in items))), until=1)
    assert str(ticket.error) == "cannot read item `U64`: a transaction has at most 64 locks"


def test_a_store_controls_itself_by_the_samples_it_is_given() -> None:
    manager = TransactionManager(TWO, {"U0": Item(U, 0)})
    before = manager.handler.actuators[0].limit
    run(manager, (0, U, 1, does(Work(0.01))), until=5)
    sample = manager.sample(5.0)
    assert (sample.timely.tolist(), sample.miss_ratio(0)) == ([1, 0], 0.0)
    assert manager.handler.actuators[0].limit > before
