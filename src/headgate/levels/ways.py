"""How tuples get from the shepherd to the processors: all that the two architectures differ in.

replicated: a copy for each level that dominates the tuple, in the queue of that level.
kernelized: once, in the log of the tuple's own level; the file system decides which processors can read it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from headgate.columns.sorting import Ints
from headgate.errors import Conflict
from headgate.labels import Level, LevelOrder
from headgate.levels.folders import Identity, LevelFolders
from headgate.levels.lane import Lane
from headgate.levels.queues import file_of, sync_folder, write_shared
from headgate.levels.records import Heading, LabelledTuples, Part, parts_of, read_record, write_order, write_tuples
from headgate.levels.restricted import may_read

KEPT_SECONDS = 60.0
"""How long a file of a log is kept. It does not depend on who has read it: that would tell a level how far the levels
above it are."""


class Way(Protocol):
    order: LevelOrder
    copied: int
    """Bytes written."""

    def write(
        self, number: int, heading: Heading, tuples: LabelledTuples, lanes: Sequence[Lane]
    ) -> list[tuple[Lane, frozenset[int]]]:
        """Writes a batch, which counts when its number is committed. Returns the lanes that get something of it, and
        the logs that it is in."""
        ...

    def identity(self, level: Level) -> tuple[Identity, frozenset[int]]:
        """The user of a processor that starts now, and the logs that it may read."""
        ...

    def logs_of(self, record: bytes) -> frozenset[int]: ...

    def elsewhere(self, record: Path) -> int:
        """How many bytes of a record's tuples are in logs."""
        ...

    def clean(self, now: float, lanes: Collection[Lane]) -> None:
        """Deletes what is not kept any longer."""
        ...


class Replicated:
    def __init__(self, places: LevelFolders) -> None:
        self._places = places
        self.order = LevelOrder()
        self.copied = 0

    def write(
        self, number: int, heading: Heading, tuples: LabelledTuples, lanes: Sequence[Lane]
    ) -> list[tuple[Lane, frozenset[int]]]:
        """Levels that see the same tuples get the same bytes."""
        written: dict[tuple[bool, ...], bytes] = {}
        found = list[tuple[Lane, frozenset[int]]]()
        for lane in lanes:
            seen = tuple(may_read(self.order, lane.level, kind) for kind in tuples.kinds)
            if not any(seen):
                continue
            if seen not in written:
                rows = np.flatnonzero(np.array(seen)[tuples.codes])
                written[seen] = write_tuples(heading, tuples if all(seen) else tuples.where(rows))
            lane.queue.write(number, written[seen])
            lane.queue.sync()
            self.copied += len(written[seen])
            found.append((lane, frozenset()))
        return found

    def identity(self, level: Level) -> tuple[Identity, frozenset[int]]:
        return self._places.identity(level), frozenset()

    def logs_of(self, record: bytes) -> frozenset[int]:  # noqa: ARG002
        return frozenset()

    def elsewhere(self, record: Path) -> int:  # noqa: ARG002
        return 0

    def clean(self, now: float, lanes: Collection[Lane]) -> None:
        """Queues are deleted by their lanes."""


class Kernelized:
    def __init__(self, places: LevelFolders) -> None:
        self._places = places
        self.order = LevelOrder()
        self.copied = 0
        self._levels = places.logs()
        """The levels of the tuples in each log."""
        self._written: dict[Part, float] = {}
        """When each file was first looked at."""
        for folder in map(places.log_folder, self._levels):
            self._written |= {Part(int(folder.name), path.name): 0.0 for path in folder.glob("*.arrow")}

    def write(
        self, number: int, heading: Heading, tuples: LabelledTuples, lanes: Sequence[Lane]
    ) -> list[tuple[Lane, frozenset[int]]]:
        logs = [self._log(kind.levels) for kind in tuples.kinds]
        of_tuples = np.array(logs, np.int64)[tuples.codes]
        readable = {x: [lane for lane in lanes if self._may_read(lane.level, x)] for x in sorted(set(logs))}
        parts, sizes = dict[int, Part](), dict[int, int]()
        for x in readable:
            parts[x], sizes[x] = self._part(number, heading, tuples.where(np.flatnonzero(of_tuples == x)), x)
        found = list[tuple[Lane, frozenset[int]]]()
        for lane in lanes:
            own = [x for x, readers in readable.items() if lane in readers]
            if own:
                order = _order(of_tuples, own)
                content = write_order(heading, [parts[x] for x in own], order)
                lane.queue.write(number, content, sum(sizes[x] for x in own))
                lane.queue.sync()
                self.copied += len(content)
                found.append((lane, frozenset(own)))
        return found

    def _part(self, number: int, heading: Heading, tuples: LabelledTuples, log: int) -> tuple[Part, int]:
        """The file that holds these tuples, and its bytes."""
        part, folder = Part(log, file_of(number)), self._places.log_folder(log)
        content = write_tuples(heading, tuples)
        write_shared(folder / part.file, content, lambda path: self._places.close_to_others(path, log=log))
        sync_folder(folder)
        self._written[part] = 0.0
        self.copied += len(content)
        return part, len(content)

    def _log(self, levels: frozenset[Level]) -> int:
        number = self._places.log(levels)
        self._levels[number] = levels
        return number

    def _may_read(self, level: Level, log: int) -> bool:
        return all(self.order.dominates(level, x) for x in self._levels[log])

    def identity(self, level: Level) -> tuple[Identity, frozenset[int]]:
        for name in sorted({"", *self.order.above}):  # before tuples come: a processor that runs cannot get a group
            self._log(frozenset({Level(name)} if name else ()))
        logs = frozenset(x for x in self._levels.copy() if self._may_read(level, x))
        return self._places.identity(level, logs), logs

    def logs_of(self, record: bytes) -> frozenset[int]:
        return frozenset(x.log for x in parts_of(record))

    def elsewhere(self, record: Path) -> int:
        files = (self._places.log_folder(x.log) / x.file for x in parts_of(record.read_bytes()))
        return sum(file.stat().st_size for file in files if file.exists())

    def clean(self, now: float, lanes: Collection[Lane]) -> None:
        """Deletes files after a fixed time. Whatever still waits for one gets a copy of its tuples into its own queue
        first."""
        for part, since in list(self._written.items()):
            if not since:
                self._written[part] = now
        gone = {part for part, since in self._written.items() if since and now - since >= KEPT_SECONDS}
        if not gone:
            return
        for lane in lanes:
            for number in lane.queue.numbers():
                self._copied_out(lane, number, gone)
        for part in gone:
            (self._places.log_folder(part.log) / part.file).unlink(missing_ok=True)
            del self._written[part]

    def _copied_out(self, lane: Lane, number: int, gone: Collection[Part]) -> None:
        try:
            content = lane.queue.read(number)
        except FileNotFoundError:  # taken meanwhile
            return
        if gone and not set(parts_of(content)).isdisjoint(gone):
            heading, tuples = read_record(content, self._read_part)
            lane.queue.rewrite(number, write_tuples(heading, tuples))

    def _read_part(self, part: Part) -> bytes:
        return (self._places.log_folder(part.log) / part.file).read_bytes()


def _order(of_tuples: Ints, logs: Sequence[int]) -> Ints:
    """For each tuple that is in one of these logs, the place of its log among them."""
    places = np.full(int(of_tuples.max()) + 1, -1)
    places[list(logs)] = np.arange(len(logs))
    found = places[of_tuples]
    return np.asarray(found[found >= 0], np.int64)


def make_way(architecture: str, places: LevelFolders) -> Way:
    match architecture:
        case "replicated":
            return Replicated(places)
        case "kernelized":
            return Kernelized(places)
    raise Conflict(f"there is no architecture `{architecture}`")
