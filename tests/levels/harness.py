"""A shepherd over streams and queries written as text, with real processors or with processors in threads."""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from worlds.harness import RULES, Bench, Row

from headgate.egress.sinks import Sink, Verify
from headgate.labels import Level
from headgate.levels.child import ProcessChild, Resources, Start
from headgate.levels.folders import Identity
from headgate.levels.processor import serve
from headgate.levels.shepherd import LevelsSetting, Shepherd
from headgate.levels.wire import Channel, Message
from headgate.model.results import ResultBatch, delivered_results
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.plan.queries import Stream


class ThreadChild:
    """The program of a processor in a thread: the same messages and files, without an own user."""

    missing: Sequence[str] = ()

    def __init__(self, folder: Path, identity: Identity, share: Resources) -> None:  # noqa: ARG002
        (theirs, to_them), (ours, to_us) = os.pipe(), os.pipe()
        self.channel = Channel(os.fdopen(ours, "rb"), os.fdopen(to_them, "wb"))
        other = Channel(os.fdopen(theirs, "rb"), os.fdopen(to_us, "wb"))
        self._thread = threading.Thread(target=self._run, args=(other, folder), daemon=True)
        self._thread.start()

    @staticmethod
    def _run(channel: Channel, folder: Path) -> None:
        try:
            serve(channel, folder)
        finally:
            channel.close()

    def kill(self) -> None:
        """Its channel ends, so it ends with its next message."""
        self.channel.close()
        self._thread.join()


class Dying:
    """Starts processors in threads that die in the middle of their work: after some messages to the server."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"deaths {seed}")
        self.deaths = 0

    def __call__(self, folder: Path, identity: Identity, share: Resources) -> ThreadChild:
        child, left = ThreadChild(folder, identity, share), self._rng.choice((2, 3, 4, 5, 6, 8, 12, 100))
        receive = child.channel.receive

        def counted() -> Message:
            nonlocal left
            left -= 1
            if left < 0:
                self.deaths += 1
                child.channel.close()
            return receive()

        child.channel.receive = counted  # type: ignore[method-assign]
        return child


class Kept(Sink):
    """Keeps what was delivered, in order."""

    name = "kept"
    keeps = False

    def __init__(self) -> None:
        self.found: list[ResultBatch] = []
        self._ready: Sequence[ResultBatch] = ()

    def state(self, *_: object) -> dict[str, int]:
        return {self.name: len(self.found)}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        if not out and self.name in states:
            del self.found[states[self.name] :]

    def stage(self, *_: object) -> None:
        pass

    def staged(self, *_: object) -> list[ResultBatch]:
        return []

    def prepare(self, results: Sequence[ResultBatch], *_: object, **__: object) -> None:
        self._ready = results

    def publish(self, verify: Verify) -> None:
        verify()
        self.found += self._ready
        self._ready = ()

    def retain(self, *_: object) -> None:
        pass


class Levels(Bench):
    """A bench whose engine is a shepherd with its processors. A subscription has the level of its clearance."""

    def __init__(
        self, home: Path, *streams: Stream, architecture: str = "replicated", start: Start = ThreadChild
    ) -> None:
        super().__init__(home, *streams)
        self.setting = LevelsSetting(architecture, start, lambda *_: Resources(), apart=start is ProcessChild)
        self.sinks: dict[Level | None, Kept] = {}
        self.shepherd: Shepherd | None = None

    def subscribed(self, **who: tuple[str, str] | tuple[str, str, str] | None) -> None:
        super().subscribed(**who)
        self.now = replace(self.now, subscribers=tuple(map(_with_level, self.now.subscribers)))

    def open_up(self) -> Shepherd:
        self.shepherd = Shepherd(
            self.home, self, lambda level: [self.sinks.setdefault(level, Kept())], self.clock, self.setting, self.limits
        )
        return self.shepherd

    def take(self, name: str, *rows: Row, times: Sequence[dt.datetime | None] | None = None) -> None:
        shepherd = self.shepherd or self.open_up()
        self._numbers[name] = self._numbers.get(name, -1) + 1
        shepherd.take(name, self._numbers[name], self.table(name, rows, times))

    def received(self, who: str, query: str) -> list[Row]:
        found = [x for sink in self.sinks.values() for x in delivered_results(sink.found)]
        return [x.values for x in found if (x.subscriber, x.query) == (who, query)]


def _with_level(subscriber: Subscriber) -> Subscriber:
    assert subscriber.clearance is not None
    return replace(subscriber, level=str(subscriber.clearance.level))


Some = TypeVar("Some", bound=Levels)


@contextmanager
def closing(levels: Some) -> Iterator[Some]:
    try:
        yield levels
    finally:
        if levels.shepherd is not None:
            levels.shepherd.close()


__all__ = ["RULES", "CatalogSnapshot", "Kept", "Levels", "ProcessChild", "ThreadChild", "closing"]
