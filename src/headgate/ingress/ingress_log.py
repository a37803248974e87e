"""The ingress log: published tuples, durable before they are acknowledged, where the engine reads them.

INVARIANT: tuples count at the one moment at which they and the sequence numbers of their senders become durable
together; not before, and not twice. `folder_log` and `topic_log` say which moment that is.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headgate.clock import Clock, SystemClock
from headgate.errors import HeadgateError, StoreError
from headgate.ingress.sequence_numbers import Acknowledged, Numbers, Producer, PublishRequest, SequenceNumbers
from headgate.logs import failure

_GROUP = 256


class PublishedSource(Protocol):
    """Where the engine reads what was published."""

    def __call__(self, stream: str) -> tuple[str, dict[str, str]]:
        """The format and the options of the source for a stream."""
        ...


class IngressLog(ABC):
    """One process writes the log, in a thread of its own: requests that arrive together are written together."""

    def __init__(self, store: sqlite3.Connection, clock: Clock | None = None) -> None:
        self._store, self._clock = store, clock or SystemClock()
        self._numbers = SequenceNumbers(store, self._clock)
        self._requests: queue.SimpleQueue[PublishRequest | None] = queue.SimpleQueue()
        self.rows = 0
        self.repeats = 0
        self.removed = 0
        """Files of tuples that were removed because nobody read them."""
        self._thread = threading.Thread(target=self._work, name="ingress log", daemon=True)

    def close(self) -> None:
        """Answers all requests first."""
        self._requests.put(None)
        self._thread.join()
        self._store.close()

    def append(
        self,
        stream: str,
        table: pa.Table,
        producer: Producer,
        sequence: int | None = None,
        *,
        for_ever: bool = False,
    ) -> Future[Acknowledged]:
        """The future is done when the tuples are durable, or fails with the reason why they are not taken. With
        `for_ever` no producer of the stream is forgotten, so that nothing it ever sent is taken again."""
        request = PublishRequest(stream, table, producer, sequence, for_ever)
        self._requests.put(request)
        return request.answer

    @abstractmethod
    def is_full(self, stream: str) -> bool:
        """Whether so much waits for the engine that senders must wait too."""

    @abstractmethod
    def make_room(self, stream: str) -> None:
        """Removes the oldest tuples of a stream that nobody reads."""

    @abstractmethod
    def waiting(self, stream: str) -> int | None:
        """Bytes that the engine has not read, or has read only just. None: not known here."""

    @abstractmethod
    def keep(self, streams: Collection[str]) -> None:
        """Removes what is left of other streams, which were dropped: no stream gets their names again. For the start,
        before anything is published."""

    @abstractmethod
    def _write(self, tables: Mapping[str, Sequence[pa.Table]], last: Numbers) -> None:
        """Makes tables and numbers durable, all or nothing."""

    def _refusals(self, _: AbstractSet[str]) -> Mapping[str, HeadgateError]:
        """The streams of these into which nothing can be written, and why. The numbers of all others are known when
        this returns."""
        return {}

    # The thread -------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (first := self._requests.get()) is not None:
            group, ending = [first], False
            while len(group) < _GROUP and not self._requests.empty():
                request = self._requests.get()
                if request is None:
                    ending = True
                    break
                group.append(request)
            self._take(group)
            if ending:
                return

    def _take(self, group: Sequence[PublishRequest]) -> None:
        answers: dict[PublishRequest, Acknowledged | HeadgateError]
        try:
            answers = self._record(group)
        except HeadgateError as error:
            answers = dict.fromkeys(group, error)
        except Exception as error:
            failure("ingress", "published tuples could not be written", error)
            fault = StoreError("cannot write published tuples", hint="send them again with the same sequence number")
            answers = dict.fromkeys(group, fault)
        for request in group:
            answer = answers[request]
            if isinstance(answer, HeadgateError):
                request.answer.set_exception(answer)
            else:
                request.answer.set_result(answer)

    def _record(self, group: Sequence[PublishRequest]) -> dict[PublishRequest, Acknowledged | HeadgateError]:
        answers: dict[PublishRequest, Acknowledged | HeadgateError] = {}
        tables: dict[str, list[pa.Table]] = {}
        last: Numbers = {}
        refusals = self._refusals({request.stream for request in group})
        for request in group:
            answer = refusals.get(request.stream) or self._numbers.judge(request, last)
            answers[request] = answer
            if isinstance(answer, Acknowledged) and not answer.is_repeat:
                tables.setdefault(request.stream, []).append(request.table)
        self._write(tables, last)
        done = [x for x in answers.values() if isinstance(x, Acknowledged)]
        self.rows += sum(x.rows for x in done if not x.is_repeat)
        self.repeats += sum(x.is_repeat for x in done)
        return answers


def open_store(file: Path, setup: str) -> sqlite3.Connection:
    """The database of a log, for this process alone."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    os.close(descriptor)
    store = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=0.5)
    try:
        store.execute("PRAGMA locking_mode = EXCLUSIVE")
        store.executescript(setup)
    except sqlite3.Error:
        store.close()
        raise StoreError(
            f"cannot open the ingress log in `{file.parent}`: another process uses it, or it is damaged"
        ) from None
    return store
