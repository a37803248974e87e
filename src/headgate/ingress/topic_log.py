"""The ingress log as topics of Kafka: one for each stream, written in transactions.

A group of requests is one transaction: their tuples, as Arrow streams, with the sequence numbers of their senders in a
header. INVARIANT: tuples count when Kafka commits the transaction that holds them and their numbers. The database
beside the log only repeats the numbers that a topic holds up to an offset. What follows in the topic is read from there
before anything else is written to it: after a start, and whenever it is not known whether a transaction was committed.
Kafka ends the transactions of the former writer first (by the name of the writer), so none is open then, and no server
that still runs elsewhere writes any more.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headgate.clock import Clock
from headgate.errors import Conflict, HeadgateError, StoreError, Unavailable
from headgate.ingress.ingress_log import IngressLog, open_store
from headgate.ingress.sequence_numbers import Acknowledged, Numbers, PublishRequest
from headgate.ingress.sequence_numbers import Producer as Sender
from headgate.ingress.topics import LARGEST_MESSAGE, PARTITION, STORE, Brokers, Topics, away
from headgate.logs import event, failure

HEADER = "headgate"
"""In JSON: `by`, the process that wrote the message, and `numbers`: a list of [user, level, producer, last number]."""
_VALUE_BYTES = 900_000
"""Bytes of the value of a message, unless a single row has more: brokers usually take a megabyte."""
_PAUSE = 1.0
"""How long Kafka is not asked again after a failure; meanwhile requests are refused at once."""
_TRANSACTION_SECONDS = 30
"""After this time Kafka itself ends a transaction of a server that is gone; until then readers wait for it."""
_SETUP = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS identity (one INTEGER PRIMARY KEY CHECK (one = 1), identity TEXT);
CREATE TABLE IF NOT EXISTS topics (stream TEXT PRIMARY KEY, upto INTEGER);
"""
_REPEATED = "PRAGMA synchronous = NORMAL"
"""For what the topics hold too. Not for the identity: with another one, tuples would be looked for in other topics."""


class TopicLog(IngressLog):
    """INVARIANT: `topics` of the store has for each stream an offset up to which all sequence numbers of its topic are
    in the store."""

    def __init__(
        self, folder: Path, brokers: Brokers, clock: Clock | None = None, seconds: float | None = None
    ) -> None:
        super().__init__(open_store(folder / STORE, _SETUP), clock)
        self._store.execute("INSERT OR IGNORE INTO identity VALUES (1, ?)", (token_hex(4),))
        self._store.execute(_REPEATED)
        (identity,) = self._store.execute("SELECT identity FROM identity").fetchone()
        self.topics = Topics(brokers, identity) if seconds is None else Topics(brokers, identity, seconds)
        self._producer: Producer | None = None
        self._current: set[str] = set()
        """Streams whose numbers in the store are those of the topic."""
        self._refused_until = 0.0
        self._process = token_hex(8)
        self._read_once: set[str] = set()
        """Streams whose topic this process has read: from then on nobody else writes to it, or has taken over."""
        self._taken_over = False
        self._thread.start()

    def close(self) -> None:
        super().close()
        self._producer = None

    def is_full(self, stream: str) -> bool:  # noqa: ARG002
        return False

    def make_room(self, stream: str) -> None:
        """The topic's retention does."""

    def waiting(self, stream: str) -> int | None:  # noqa: ARG002
        return None

    def keep(self, streams: Collection[str]) -> None:
        """Topics of dropped streams are left to their retention."""
        self._numbers.keep(streams)
        known = [name for (name,) in self._store.execute("SELECT stream FROM topics").fetchall()]
        self._store.executemany("DELETE FROM topics WHERE stream = ?", [(x,) for x in known if x not in streams])

    # Writing ----------------------------------------------------------------------------------------------------------

    def _record(self, group: Sequence[PublishRequest]) -> dict[PublishRequest, Acknowledged | HeadgateError]:
        """A message that the topic does not take fails alone."""
        try:
            return super()._record(group)
        except _RowTooLarge as error:
            if len(group) == 1:
                return {group[0]: error}
            answers: dict[PublishRequest, Acknowledged | HeadgateError] = {}
            for request in group:
                try:
                    answers |= self._record([request])
                except HeadgateError as other:
                    answers[request] = other
            return answers

    def _write(self, tables: Mapping[str, Sequence[pa.Table]], last: Numbers) -> None:
        messages = list(_messages(tables, last, self._process))
        if not messages:
            return
        ends: dict[str, int] = {}
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            elif (offset := message.offset()) is not None and offset >= 0:
                ends[message.topic() or ""] = offset + 1

        streams, self._current = self._current, set()  # until it is known what Kafka has committed
        with self._reporting():
            producer = self._open()
            producer.begin_transaction()
            for stream, value, header in messages:
                headers: list[tuple[str, str | bytes | None]] = [(HEADER, header)]
                topic = self.topics.name(stream)
                producer.produce(topic, value, partition=PARTITION, headers=headers, on_delivery=delivered)
            try:
                producer.commit_transaction(self.topics.seconds)
            except KafkaException as error:
                raise KafkaException(failed[0]) if failed else error from None
        if self._remember(last, {stream: ends.get(self.topics.name(stream)) for stream in tables}):
            self._current = streams

    def _remember(self, last: Numbers, ends: Mapping[str, int | None]) -> bool:
        """Only repeats what the topics hold: if it fails (False) they are read again."""
        store = self._store
        try:
            store.execute("BEGIN IMMEDIATE")
            self._numbers.record(last)
            known = [(stream, end) for stream, end in ends.items() if end is not None]
            store.executemany("INSERT OR REPLACE INTO topics VALUES (?, ?)", known)
            store.execute("COMMIT")
            return True
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                store.execute("ROLLBACK")
            failure("ingress", "sequence numbers could not be written; they are read from Kafka again", error)
            return False

    # What is there already --------------------------------------------------------------------------------------------

    def _refusals(self, streams: AbstractSet[str]) -> Mapping[str, HeadgateError]:
        if self._taken_over:
            raise _taken_over()
        if time.monotonic() < self._refused_until:
            raise away()
        refusals: dict[str, HeadgateError] = {}
        with self._reporting():
            self._open()
            for stream in sorted(streams - self._current):
                try:
                    self.topics.create(stream)
                    self._catch_up(stream)
                    self._current.add(stream)
                    self._read_once.add(stream)
                except _Inconsistent as error:
                    refusals[stream] = error
        return refusals

    def _open(self) -> Producer:
        """The producer. A new one ends the transactions of those before it: what they have not committed will never
        be."""
        if self._producer is None:
            settings = {
                "transactional.id": self.topics.writer,
                "transaction.timeout.ms": _TRANSACTION_SECONDS * 1000,
                "message.timeout.ms": round(self.topics.seconds * 1000),
                "message.max.bytes": LARGEST_MESSAGE,
                "compression.type": "zstd",
                "linger.ms": 0,
                "queue.buffering.max.kbytes": 2097151,  # a group of requests is in memory anyway
            }
            producer = Producer(self.topics.brokers.client() | settings)
            producer.init_transactions(self.topics.seconds)
            self._producer = producer
            self._current.clear()
        return self._producer

    def _catch_up(self, stream: str) -> None:
        """Reads the sequence numbers that the topic holds and the store does not."""
        row = self._store.execute("SELECT upto FROM topics WHERE stream = ?", (stream,)).fetchone()
        known = int(row[0]) if row else 0
        place = TopicPartition(self.topics.name(stream), PARTITION)
        reading = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
        client = self.topics.brokers.client() | reading
        consumer = Consumer(client | {"group.id": self.topics.writer, "auto.offset.reset": "error"})
        try:
            first, end = consumer.get_watermark_offsets(place, timeout=self.topics.seconds) or (0, 0)
            if known > end:
                raise _Inconsistent(
                    "cannot take tuples for this stream: its topic ends before the last tuples that it took",
                    hint="it was made anew, or its broker has lost some; publish to a new stream",
                )
            if first > known:
                event("ingress", "a topic does not hold all that was published", stream=stream, first=first)
            begin = max(first, known)
            consumer.assign([TopicPartition(place.topic, PARTITION, begin)])
            last, upto = self._read(consumer, stream, begin)
        finally:
            consumer.close()
        if not self._remember(last, {stream: upto}):
            raise StoreError("cannot write published tuples", hint="send them again with the same sequence number")

    def _read(self, consumer: Consumer, stream: str, upto: int) -> tuple[Numbers, int]:
        last: Numbers = {}
        while True:
            message = consumer.poll(self.topics.seconds)
            if message is None:
                raise away()
            error, offset = message.error(), message.offset()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return last, upto
            if error is not None:
                raise KafkaException(error)
            process, numbers = _header(message)
            if stream in self._read_once and process != self._process:
                self._taken_over = True
                raise _taken_over()
            for sender, sequence in numbers.items():
                last[stream, sender] = max(sequence, last.get((stream, sender), 0))
            upto = upto if offset is None else offset + 1

    # Faults -----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (KafkaException, BufferError, Unavailable) as error:
            raise self._failed(error) from None

    def _failed(self, error: KafkaException | BufferError | Unavailable) -> HeadgateError:
        """After any fault it is not known what Kafka has committed: a new producer begins, and reads it."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
        self._current.clear()
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return _RowTooLarge("cannot take the request: a row of it is larger than a message of its topic may be")
        self._refused_until = time.monotonic() + _PAUSE
        failure("ingress", "Kafka does not take published tuples", error, kind=_kind(error))
        return error if isinstance(error, Unavailable) else away(error)


def _kind(error: Exception) -> str:
    return error.args[0].name() if isinstance(error, KafkaException) else type(error).__name__


class _Inconsistent(StoreError):
    """A topic that is not what the log wrote."""


class _RowTooLarge(Conflict):
    """A row for which the broker takes no message."""


def _taken_over() -> StoreError:
    return StoreError("cannot write published tuples: another server writes the topics of this home folder")


def _messages(
    tables: Mapping[str, Sequence[pa.Table]], last: Numbers, process: str
) -> Iterator[tuple[str, bytes, bytes]]:
    """The messages of a transaction: stream, tuples, and the header; numbers are in the first of each stream."""
    for stream, some in tables.items():
        table = pa.concat_tables(some)
        numbers = [[x.user, x.level, x.name, sequence] for (name, x), sequence in last.items() if name == stream]
        if numbers or table.num_rows:
            for value in _values(table):
                yield stream, value, json.dumps({"by": process, "numbers": numbers}).encode()
                numbers = []


def _values(table: pa.Table) -> Iterator[bytes]:
    """Rows as Arrow streams that messages can hold."""
    size = max(1, table.num_rows * _VALUE_BYTES // max(1, table.nbytes))
    for begin in range(0, max(1, table.num_rows), size):
        part = table.slice(begin, size)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part.combine_chunks())
        value = sink.getvalue().to_pybytes()
        if len(value) > _VALUE_BYTES and part.num_rows > 1:
            half = part.num_rows // 2
            yield from _values(part.slice(0, half))
            yield from _values(part.slice(half))
        else:
            yield value


def _header(message: Message) -> tuple[str, dict[Sender, int]]:
    """Who wrote a message, and the sequence numbers in it."""
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    try:
        (header,) = [json.loads(value or b"") for name, value in headers if name == HEADER]
        numbers = {Sender(str(x), str(level), str(name)): int(last) for x, level, name, last in header["numbers"]}
        return str(header["by"]), numbers
    except (ValueError, TypeError, KeyError):
        raise _Inconsistent("cannot take tuples for this stream: its topic holds messages of others") from None
