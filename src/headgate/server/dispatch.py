"""Decides about results when they are sent, for all connections together, and takes back what is sent and not permitted
any more.

One thread reads the delivery log for every connection that waits, then holds rights once and decides for all of them.
INVARIANT: what was decided about is noted as in flight of its connection while rights are still held; so a change of
rights that comes later finds it, and `settle` resets the connection before the change is answered.

"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.egress.delivery_log import DeliveryLog, Entry, LogPosition
from headgate.egress.filter import Decisions
from headgate.egress.level_logs import Logs
from headgate.egress.sinks import Address
from headgate.errors import AuthenticationFailed, HeadgateError, LeaseLost
from headgate.logs import failure
from headgate.model.results import Recipient, ResultBatch
from headgate.model.snapshot import CatalogSnapshot, SubscriptionStatus
from headgate.recovery.subscription_status import DROPPED
from headgate.server.connections import Link
from headgate.server.positions import Positions
from headgate.server.rendering import CHANGED, LOST, Rendering, SharedLines
from headgate.service import Headgate
from headgate.service.headgate import ResultReader

CHUNK_ROWS, CHUNK_BYTES, CHUNK_VERSIONS = 256, 32 << 10, 32
"""What is decided about at a time for one connection; a single larger result is a chunk of its own."""
TOGETHER = 32
"""Chunks that the event loop gets at once."""
USE_SECONDS = 20.0
"""How often open connections count as use of their sessions."""
USED_TOGETHER = 100
"""Sessions that are marked as used in one transaction."""
SESSION_ENDED = "your session has ended"
UNSUBSCRIBED = "you are not subscribed any more"
FAULT = "the server has a fault"
RESET_SECONDS = 5.0
"""How long the operating system may take to close a connection that was reset."""
ARRIVAL_SECONDS = 0.25
"""How long the answer to a change of rights waits for a reader's machine to acknowledge what was sent to it before.
Machines do that some time after they have it: 40 to 200 ms."""
_LOOK_SECONDS = 0.005


@dataclass(eq=False)
class Flight:
    """Results that were decided about; `end` is where they end in what was sent, None while they are not sent yet."""

    batches: Sequence[ResultBatch]
    end: int | None = None


@dataclass(eq=False)
class Connection:
    """A reader of one subscription."""

    token: str
    standing: SubscriptionStatus
    position: LogPosition
    rendering: Rendering
    told: LogPosition = field(default_factory=LogPosition)
    """Up to which position the reader was told that results were removed."""
    link: Link | None = None
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    flights: deque[Flight] = field(default_factory=deque)
    sent: int = 0
    is_reset: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.standing.name, self.standing.query

    def forget_arrived(self) -> None:
        """Forgets flights that the reader's machine has acknowledged. Encryption makes more bytes, never fewer."""
        arrived = self.sent - (self.link.unacknowledged() if self.link else 0)
        while self.flights and self.flights[0].end is not None and self.flights[0].end <= arrived:
            self.flights.popleft()

    def has_left(self, flight: Flight) -> bool:
        """Whether nothing of a flight is on this machine any more that was not sent."""
        if self.link is None or flight.end is None:
            return False
        return flight.end <= self.sent - self.link.unsent()


@dataclass(frozen=True)
class Chunk:
    """What a connection sends next; `ended` says why there will be nothing more."""

    content: bytes = b""
    flight: Flight | None = None
    ended: str = ""
    more: bool = False


class Answers:
    """Chunks on their way to the event loop, some at a time: to wake it for each one takes longer than to make it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._given: list[tuple[asyncio.Future[Chunk], Chunk]] = []

    def give(self, future: asyncio.Future[Chunk], chunk: Chunk) -> None:
        self._given.append((future, chunk))
        if len(self._given) >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        given, self._given = self._given, []
        if given:
            _quietly(self._loop, _answer, given)


class Dispatcher:
    def __init__(self, headgate: Headgate, logs: Logs, positions: Positions) -> None:
        self._headgate, self._logs, self._positions = headgate, logs, positions
        self._waiting: queue.SimpleQueue[tuple[Connection, asyncio.Future[Chunk]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="dispatch", daemon=True)
        self.connections: set[Connection] = set()
        self._requested: set[str] = set()
        """The sessions that have made requests since sessions were last marked as used."""
        self._standings: tuple[CatalogSnapshot, dict[tuple[str, str], SubscriptionStatus]] = CatalogSnapshot(), {}
        self.sent = 0
        self.resets = 0

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._logs.wake = lambda readers: _quietly(self._loop, self._wake, readers)
        self._thread.start()
        self._using = asyncio.ensure_future(self._use_sessions())

    def stop(self) -> None:
        _quietly(self._loop, self._using.cancel)
        self._logs.wake = lambda _: None
        self._waiting.put(None)
        self._thread.join()

    def _wake(self, readers: set[tuple[str, str]] | None = None) -> None:
        for connection in self.connections:
            if readers is None or connection.key in readers:
                connection.woken.set()

    def use(self, token: str) -> None:
        """A session has made a request. Called in the event loop."""
        self._requested.add(token)

    async def _use_sessions(self) -> None:
        """A session that makes requests or reads results is used. Who reads with one that has ended is woken to learn
        it."""
        while True:
            await asyncio.sleep(USE_SECONDS)
            tokens = sorted({x.token for x in self.connections} | self._requested)
            self._requested.clear()
            for first in range(0, len(tokens), USED_TOGETHER):
                some = tokens[first : first + USED_TOGETHER]
                try:
                    ended = await asyncio.to_thread(self._headgate.use_all, some)
                except HeadgateError as error:
                    failure("server", "sessions could not be marked as used", error)
                    continue
                self._wake({x.key for x in self.connections if x.token in ended})

    # For connections --------------------------------------------------------------------------------------------------

    async def next(self, connection: Connection) -> Chunk:
        """The next chunk, possibly empty. Raises AuthenticationFailed if the session has ended."""
        connection.forget_arrived()
        answer: asyncio.Future[Chunk] = self._loop.create_future()
        self._waiting.put((connection, answer))
        return await answer

    async def settle(self) -> None:
        """After a change of rights: takes back what is in flight and not permitted any more, and wakes those whose
        session or subscription may have ended."""
        flying = [x for x in self.connections if x.flights]
        for connection in flying:
            connection.forget_arrived()
        if any(x.flights for x in flying):
            now = await asyncio.to_thread(self._headgate.snapshot)
            found = ((x, self._forbidden(x, now)) for x in flying)
            await self._take_back({x: flight for x, flight in found if flight is not None})
        self._wake()

    async def _take_back(self, forbidden: Mapping[Connection, Flight]) -> None:
        """Resets connections that still hold some of these flights, or of those before them. What has left this machine
        cannot be taken back; perhaps it is only not acknowledged yet. That is waited for a moment, so that a reader
        that has it all keeps its connection. INVARIANT: what did not arrive before this returns never does."""
        sent = {x: flight for x, flight in forbidden.items() if x.has_left(flight)}
        await self._reset([x for x in forbidden if x not in sent])
        latest = time.monotonic() + ARRIVAL_SECONDS
        while sent and time.monotonic() < latest:
            await asyncio.sleep(_LOOK_SECONDS)
            for connection in sent:
                connection.forget_arrived()
            sent = {x: flight for x, flight in sent.items() if flight in x.flights}
        await self._reset(list(sent))

    async def _reset(self, connections: Collection[Connection]) -> None:
        for connection in connections:
            connection.is_reset = True
            connection.woken.set()
            self.resets += 1
            if connection.link is not None:
                connection.link.reset()
        try:
            async with asyncio.timeout(RESET_SECONDS):
                while any(x.link is not None and not x.link.closed for x in connections):
                    await asyncio.sleep(0)
        except TimeoutError as error:
            failure("server", "a connection that was reset is not closed", error)

    def _forbidden(self, connection: Connection, now: CatalogSnapshot) -> Flight | None:
        """The last flight of a connection with something that is not permitted any more. What cannot be decided is
        not."""
        flights = tuple(connection.flights)  # the thread adds to them meanwhile
        if not flights:
            return None
        try:
            reader = self._headgate.reader(connection.token)
        except HeadgateError:
            return flights[-1]
        standing = self._standing(now, connection.key)
        if standing is None or not _is_own(reader, standing.outgoing):
            return flights[-1]
        decisions = Decisions(now)
        return next((x for x in reversed(flights) if not _may_keep(decisions, x, standing.name)), None)

    # The thread -------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
            waiting = [first]
            while not self._waiting.empty():
                if (more := self._waiting.get()) is None:
                    return
                waiting.append(more)
            answers = Answers(self._loop)
            try:
                self._round(waiting, answers)
            except Exception as error:
                failure("server", "results could not be sent", error)
                for _, answer in waiting:
                    answers.give(answer, Chunk(ended=FAULT))
            answers.flush()

    def _round(self, waiting: list[tuple[Connection, asyncio.Future[Chunk]]], answers: Answers) -> None:
        read = [(x, answer, self._read(x)) for x, answer in waiting]
        if idle := [(x, answer) for x, answer, entries in read if not entries]:
            now = self._headgate.snapshot()
            for connection, answer in idle:
                answers.give(answer, self._idle(connection, now))
        found = [x for x in read if x[2]]
        if not found:
            return
        decided, lines = self._decide([(connection, entries) for connection, _, entries in found]), SharedLines()
        for (connection, answer, entries), (allowed, out, flight, ended) in zip(found, decided, strict=True):
            try:
                content = b"" if ended else self._content(connection, allowed, out, lines)
                if not ended:
                    content = self._notice_of_loss(connection, entries[0].lost) + content
            except Exception as error:  # one reader's results harm no other reader
                failure("server", "results could not be written", error)
                answers.give(answer, Chunk(ended=FAULT))
                continue
            if not ended:
                connection.position = entries[-1].positions[-1]
            more = not ended and self._log(connection).waits(*connection.key, connection.position)
            answers.give(answer, Chunk(content, flight, ended, more=more))

    def _read(self, connection: Connection) -> list[Entry]:
        """What a connection gets next. A reader that is behind gets several versions at once: a chunk costs more than
        what is in it."""
        log, rows, size = self._log(connection), CHUNK_ROWS, CHUNK_BYTES
        entries = some = log.read(*connection.key, connection.position, rows, size)
        for _ in range(CHUNK_VERSIONS - 1):
            rows -= sum(len(x.batch) for x in some)
            size -= sum(column.nbytes for x in some for column in x.batch.values)
            if not some or rows <= 0 or size <= 0:
                break
            some = log.read(*connection.key, entries[-1].positions[-1], rows, size)
            if some and some[0].lost is not None:  # it is told so first
                break
            entries = [*entries, *some]
        return entries

    def _idle(self, connection: Connection, now: CatalogSnapshot) -> Chunk:
        """Nothing to send; but perhaps the session or the subscription has ended."""
        ended = self._ended(connection, now)
        content = b"" if ended else self.lost(connection)
        connection.position = self._log(connection).passed(*connection.key, connection.position)
        return Chunk(content, ended=ended)

    def _ended(self, connection: Connection, now: CatalogSnapshot) -> str:
        try:
            reader = self._headgate.reader(connection.token)
        except AuthenticationFailed:
            return SESSION_ENDED
        standing = self._standing(now, connection.key)
        if standing is not None and _is_own(reader, standing.outgoing):
            connection.standing = standing
            return ""
        known = connection.standing  # whoever has lost the right is not told what happens later
        dropped = known.stream not in now.streams and known.word != "suspended"
        return DROPPED if dropped else UNSUBSCRIBED

    def _decide(
        self, found: Sequence[tuple[Connection, list[Entry]]]
    ) -> list[tuple[list[Entry], Recipient, Flight | None, str]]:
        """What each connection may have of what was read, under the rights of this moment."""
        while True:
            try:
                with self._headgate.open() as now:
                    decisions = Decisions(now)
                    decided = [self._allowed(now, decisions, connection, entries) for connection, entries in found]
                    self._headgate.verify()
                    for (connection, _), (_, _, flight, _) in zip(found, decided, strict=True):
                        if flight is not None:
                            connection.flights.append(flight)
                    return decided
            except LeaseLost:
                continue

    def _allowed(
        self, now: CatalogSnapshot, decisions: Decisions, connection: Connection, entries: list[Entry]
    ) -> tuple[list[Entry], Recipient, Flight | None, str]:
        out = connection.standing.outgoing
        if ended := self._ended(connection, now):
            return [], out, None, ended
        subscriber = now.recipients.get(connection.key) or out
        if not all(connection.rendering.fits(entry.batch) for entry in entries):
            return [], out, None, CHANGED
        left = ((entry, decisions.left(entry.batch, connection.standing.name)) for entry in entries)
        allowed = [entry if x is entry.batch else replace(entry, batch=x) for entry, x in left if x is not None]
        flight = Flight([x.batch for x in allowed if len(x.batch)])
        return allowed, subscriber, flight if flight.batches else None, ""

    def _content(self, connection: Connection, allowed: Iterable[Entry], out: Recipient, lines: SharedLines) -> bytes:
        address, parts = Address.of(out), list[bytes]()
        for entry in allowed:
            history = self._log(connection).history
            shown = [self._positions.shown(x, history, *connection.key) for x in entry.positions]
            if entry.batch.word:
                parts.append(connection.rendering.notice(entry.batch.word, shown[0]))
            else:
                parts.append(connection.rendering.results(entry.batch, shown, address, lines))
                self.sent += len(shown)
        return b"".join(parts)

    def lost(self, connection: Connection) -> bytes:
        """A notice, if results were removed that this reader had not read, and it was not told."""
        return self._notice_of_loss(connection, self._log(connection).lost(*connection.key, connection.position))

    @staticmethod
    def _notice_of_loss(connection: Connection, lost: LogPosition | None) -> bytes:
        if lost is None or lost <= connection.told:
            return b""
        connection.told = lost
        return connection.rendering.notice({"lost": LOST}, "")

    # Subscriptions ----------------------------------------------------------------------------------------------------

    def subscription(self, token: str, stream: int) -> SubscriptionStatus | None:
        """The subscription of a session's user to a stream, by the stream's number, at the session's level."""
        now, reader = self._headgate.snapshot(), self._headgate.reader(token)
        mine = (x for x in now.standings if x.stream == stream and _is_own(reader, x.outgoing))
        return next(mine, None)

    def _standing(self, now: CatalogSnapshot, key: tuple[str, str]) -> SubscriptionStatus | None:
        known = self._standings  # another thread may replace them
        if known[0] is not now:
            known = self._standings = now, {(x.name, x.query): x for x in now.standings}
        return known[1].get(key)

    def shown(self, connection: Connection) -> str:
        """Where a connection goes on, as its reader sees it."""
        return self._positions.shown(connection.position, self._log(connection).history, *connection.key)

    def read_position(self, text: str, standing: SubscriptionStatus) -> LogPosition:
        log = self._logs.of(standing.outgoing.level)
        return self._positions.read(text, log.history, standing.name, standing.query)

    def end(self, standing: SubscriptionStatus) -> LogPosition:
        """The position after everything that there is for a subscription."""
        return self._logs.of(standing.outgoing.level).end()

    def _log(self, connection: Connection) -> DeliveryLog:
        return self._logs.of(connection.standing.outgoing.level)


def _is_own(reader: ResultReader, out: Recipient) -> bool:
    """Whether a subscription is this reader's, at its level, and uses no role that its session lacks."""
    return (out.user, out.level) == (reader.user, reader.level) and out.roles <= reader.roles


def _may_keep(decisions: Decisions, flight: Flight, subscription: str) -> bool:
    return all(_is_whole(decisions.left(batch, subscription), batch) for batch in flight.batches)


def _is_whole(left: ResultBatch | None, batch: ResultBatch) -> bool:
    return left is not None and len(left) == len(batch)


def _answer(given: Sequence[tuple[asyncio.Future[Chunk], Chunk]]) -> None:
    for future, chunk in given:
        if not future.done():
            future.set_result(chunk)


def _quietly(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *given: object) -> None:
    """Calls something in the event loop, unless that has ended."""
    try:
        loop.call_soon_threadsafe(act, *given)
    except RuntimeError:
        if not loop.is_closed():
            raise
