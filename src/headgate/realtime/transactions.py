"""Transactions as programs: generators that yield their reads, writes and work, over an in-memory store.

    def transfer():
        balance = yield Read("balance")
        yield Work(0.004)
        yield Milestone(balance)            # a degraded transaction ends here, with this result
        yield Write("balance", balance + 1)
        return balance + 1

A program may run several times: a transaction that is aborted for another starts again. Its writes are kept aside until
it commits, so an attempt that ends early leaves nothing behind. Times are seconds of whatever clock the caller reads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from headgate.errors import AccessDenied, Conflict, HeadgateError, NotFound
from headgate.labels.levels import Level
from headgate.realtime.access import readable, writable
from headgate.realtime.admission import submit
from headgate.realtime.handler import Handler, Sample
from headgate.realtime.lattice import SECOND, Lattice
from headgate.realtime.scheduler import abort, advance, begin, commit
from headgate.realtime.settings import STRICT, Approach, Settings
from headgate.realtime.state import COMMITTED, EVENTS, MISSED, NOBODY, READ, RESTARTED, START, WRITE

_LOG = 65_536
_NO_ITEM = -1


@dataclass(frozen=True)
class Read:
    """Yields the value of an item at the transaction's level or below."""

    item: str


@dataclass(frozen=True)
class Write:
    """Sets an item, at commit."""

    item: str
    value: Any


@dataclass(frozen=True)
class Work:
    """Uses the processor."""

    seconds: float


@dataclass(frozen=True)
class Milestone:
    """A place where a degraded transaction may end, and its result if it does."""

    result: Any = None


Operation = Read | Write | Work | Milestone
Program = Callable[[], Generator[Operation, Any, Any]]
Status = Literal["active", "rejected", "committed", "missed", "failed"]


@dataclass
class Ticket:
    """What became of a transaction. Who submitted it may look at all of it: nothing in it depends on higher levels."""

    level: Level
    number: int
    version: int = 0
    status: Status = "active"
    result: Any = None
    error: Exception | None = None
    restarts: int = 0
    ended: float | None = None


@dataclass
class _Attempt:
    """A transaction in the system: its program, the running attempt of it, and what it has written so far."""

    ticket: Ticket
    program: Program
    running: Generator[Operation, Any, Any] | None = None
    last: Operation | None = None
    milestones: int = 0
    writes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    level: Level
    value: Any = None


class _Degraded(Exception):
    """A transaction ends at a milestone."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class TransactionManager:
    """An in-memory store and the handler that runs transactions on it, strict unless told otherwise."""

    def __init__(
        self,
        lattice: Lattice,
        items: Mapping[str, Item],
        approach: Approach = STRICT,
        settings: Settings | None = None,
        *,
        capacity: int = 256,
    ) -> None:
        if not items:
            raise Conflict("cannot open a store without items: name at least one")
        self.lattice = lattice
        self.handler = Handler(
            lattice,
            np.array([lattice.number(item.level) for item in items.values()], dtype=np.int64),
            approach,
            settings,
            capacity=capacity,
            log=_LOG,
        )
        self.values = {name: item.value for name, item in items.items()}
        self.levels = {name: lattice.number(item.level) for name, item in items.items()}
        self.committed: list[Ticket] = []
        """In the order of their commits, which is an order in which they could have run one by one."""
        self.events: list[tuple[float, str, Level, int, int]] = []
        self._numbers = {name: number for number, name in enumerate(items)}
        self._readable = readable(lattice)
        self._writable = writable(lattice, self.handler.settings.model.write_rule)
        self._active: dict[int, _Attempt] = {}
        self._by_number: dict[tuple[int, int], int] = {}

    def submit(self, now: float, program: Program, level: Level, deadline: float, estimate: float) -> Ticket:
        """A transaction arrives at `now`; `estimate` is its processor time at full QoS, `deadline` a moment."""
        if not deadline > now or not estimate > 0:
            raise Conflict("cannot submit a transaction: its deadline must lie ahead and its estimate be more than 0")
        k = self.lattice.number(level)
        state = self.handler.state
        t = submit(state, _ns(now), k, _ns(deadline), max(1, _ns(estimate)), int(NOBODY))
        ticket = Ticket(level, int(state.levels[k]["submitted"]))
        if t == NOBODY:
            ticket.status, ticket.ended = "rejected", now
        else:
            ticket.version = int(state.transactions[t]["version"])
            self._active[t] = _Attempt(ticket, program)
            self._by_number[k, ticket.number] = t
        self._read_log()
        return ticket

    def advance(self, now: float, until: float) -> None:
        """Runs the processor from `now` to `until`, by simulated work."""
        time, end = _ns(now), _ns(until)
        while True:
            time, t = advance(self.handler.state, time, end)
            self._read_log()
            if t == NOBODY:
                return
            self._continue(time, t)
            self._read_log()

    def sample(self, now: float) -> Sample:
        """Ends a control period; to be called once per `period_s`."""
        return self.handler.sample(_ns(now))

    def _continue(self, now: int, t: int) -> None:
        """Lets a transaction's program run to its next operation."""
        attempt, state = self._active[t], self.handler.state
        if state.transactions[t]["phase"] == START:
            attempt.running, attempt.last = attempt.program(), None
            attempt.milestones, attempt.writes = 0, {}
        assert attempt.running is not None  # noqa: S101 - a transaction starts before it continues
        try:
            operation = attempt.running.send(self._answer(attempt))
            while not self._begin(now, t, attempt, operation):
                operation = attempt.running.send(None)
        except StopIteration as end:
            self._commit(now, t, attempt, end.value)
        except _Degraded as end:
            attempt.running.close()
            self._commit(now, t, attempt, end.result)
        except Exception as error:
            attempt.ticket.status, attempt.ticket.error, attempt.ticket.ended = "failed", error, now / SECOND
            self._forget(t, attempt)
            abort(state, now, t)

    def _answer(self, attempt: _Attempt) -> Any:
        """What the program's last operation gives."""
        if not isinstance(attempt.last, Read):
            return None
        return attempt.writes.get(attempt.last.item, self.values[attempt.last.item])

    def _begin(self, now: int, t: int, attempt: _Attempt, operation: Operation) -> bool:
        """Begins an operation; False if it took no time and the program may go on."""
        state = self.handler.state
        attempt.last = operation
        match operation:
            case Read(item):
                begin(state, now, t, self._may(t, item, "read", self._readable), READ, 0)
            case Write(item, value):
                begin(state, now, t, self._may(t, item, "write", self._writable), WRITE, 0)
                attempt.writes[item] = value
            case Work(seconds):
                begin(state, now, t, _NO_ITEM, READ, max(0, _ns(seconds)))
            case Milestone(result):
                attempt.milestones += 1
                if attempt.milestones <= attempt.ticket.version:
                    return False
                raise _Degraded(result)
            case _:
                raise HeadgateError(f"cannot run `{type(operation).__name__}`: yield Read, Write, Work or Milestone")
        return True

    def _may(self, t: int, item: str, what: str, allowed: Any) -> int:
        """The number of an item that the transaction may use; a name it may not see does not exist for it."""
        level = int(self.handler.state.transactions[t]["level"])
        shown = self.lattice.levels[level]
        k = self.levels.get(item)
        if k is not None and allowed[level, k]:
            width = len(self.handler.state.locks) // len(self.handler.state.transactions)
            if self.handler.state.transactions[t]["locks"] == width:
                raise Conflict(f"cannot {what} item `{item}`: a transaction has at most {width} locks")
            return self._numbers[item]
        if k is not None and self._readable[level, k]:
            raise AccessDenied(f"cannot {what} item `{item}`: level `{shown}` may only read it")
        raise NotFound(f"cannot {what} item `{item}`: there is none for level `{shown}`")

    def _commit(self, now: int, t: int, attempt: _Attempt, result: Any) -> None:
        self.values.update(attempt.writes)
        attempt.ticket.status, attempt.ticket.result, attempt.ticket.ended = "committed", result, now / SECOND
        self.committed.append(attempt.ticket)
        self._forget(t, attempt)
        commit(self.handler.state, now, t)

    def _forget(self, t: int, attempt: _Attempt) -> None:
        del self._active[t]
        del self._by_number[self.lattice.number(attempt.ticket.level), attempt.ticket.number]

    def _read_log(self) -> None:
        """Carries what the handler did over to the tickets."""
        state = self.handler.state
        for time, event, level, number, detail in state.log[: state.log_count[0]].tolist():
            self.events.append((time / SECOND, EVENTS[event], self.lattice.levels[level], number, detail))
            t = self._by_number.get((level, number))
            if t is None or event == COMMITTED:
                continue
            if event == RESTARTED:
                self._active[t].ticket.restarts += 1
            elif event == MISSED:
                ticket = self._active[t].ticket
                ticket.status, ticket.ended = "missed", time / SECOND
                self._forget(t, self._active[t])
        state.log_count[0] = 0


def _ns(seconds: float) -> int:
    return round(seconds * SECOND)
