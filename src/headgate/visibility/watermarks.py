"""Watermarks of views (SPEC.md, 4.3): how they move with the tuples of a batch, and which tuples come too late.

A view's watermark is the least over those streams of its query that are open to it. That of a source stream follows the
greatest time that the view has seen on it; that of another query's output is the watermark of the view that makes it,
which is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.model.moments import END, WatermarkTimeline, stopped
from headgate.model.times import NO_TIME
from headgate.model.view import ReaderTime, View
from headgate.plan.secure import Mode
from headgate.visibility.lateness import ArrivalTimes
from headgate.visibility.role_limits import enter as enter
from headgate.visibility.splits import SplitTimes

Missed = tuple[tuple[int, ...], Bools]
"""Columns of the visibility rows, and the tuples of a batch that are hidden from them."""
_ALWAYS = 1 << 62


@dataclass(frozen=True)
class ProducerWatermarks:
    """How the watermarks of the outputs that views read move in this batch. `marks` is by
    view (its identity) and output; `own` is by view, subscriber and output, for views whose subscribers see different
    tuples."""

    marks: dict[int, dict[str, Ints]] = field(default_factory=dict)
    own: dict[tuple[int, str], dict[str, Ints]] = field(default_factory=dict)


@dataclass(frozen=True)
class Moments:
    """The moments of a batch, beside its tuples.

    count: how many moments come before the last: each tuple of a source is one, and so is a change of rights that
        moved a watermark, before all tuples
    first, of_arrivals: the moment of each arrival number from `first` on
    floors: by stream with a declared delay, how far its watermark is after the batch, whatever was seen
    last: whether everything ends with this batch
    known: whether the single moments are known; tasks that read tuples do not tell them
    permits: for a view, one of its subscribers and coming tuples: the kinds that this subscriber may see
    """

    count: int
    first: int = 0
    of_arrivals: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    producers: ProducerWatermarks = field(default_factory=ProducerWatermarks)
    floors: Mapping[str, int] = field(default_factory=dict)
    last: bool = False
    known: bool = True
    permits: Callable[[View, str, Coming], Bools] | None = None


@dataclass(frozen=True)
class Coming:
    """Tuples of one stream that come in a batch. `kinds` are their distinct labels; `visible` says for each kind and
    column of the visibility rows whether the tuples are seen. `derived`: the stream is an output."""

    stream: str
    times: ArrivalTimes | SplitTimes
    moments: Ints
    kinds: Ints
    visible: Bools
    derived: bool

    def seen_by(self, view: View) -> Bools:
        """The kinds that any block of the view sees."""
        return np.asarray(self.visible[:, view.columns[0] : view.columns[-1] + 1].any(axis=1), np.bool_)


def move(view: View, coming: Sequence[Coming], moments: Moments) -> list[list[Missed]]:
    """Moves the watermark of a view with the tuples that it sees. Returns for each part of them what it misses: late
    tuples, and those that come after its end. Tuples that a view cannot see do not move its watermark; tuples cannot be
    late for stateless blocks."""
    missed: list[list[Missed]] = [[] for _ in coming]
    if not (view.windowed or view.charted):
        return missed
    mine = [
        (number, x, seen)
        for number, x in enumerate(coming)
        if x.stream in view.running.streams and (seen := x.seen_by(view)).any()
    ]
    producers = moments.producers.marks.get(id(view), {})
    ahead = view.passed > NO_TIME and view.passed > min(map(view.reached, view.open), default=NO_TIME)
    alone = len(mine) <= 1 and not ahead
    charted, ending = view.charted and moments.known, view.scratch.ends_at is not None
    if charted or producers or ending or not alone or view.scratch.waiting is not None:
        _move_by_moments(view, mine, producers, moments, missed)
    elif mine:
        number, only, own = mine[0]
        late = _move_with(view, only, own)
        if late is not None:
            missed[number].append((tuple(view.windowed), late))
    for stream in (
        view.timed & moments.floors.keys() if not view.scratch.ended_early and view.scratch.ends_at is None else ()
    ):
        view.floors[stream] = max(view.floors.get(stream, NO_TIME), moments.floors[stream])
    return missed


def follow(view: View, output: str, watermark: int) -> None:
    """An output that the view reads has got so far with a batch."""
    if watermark > NO_TIME:
        view.greatest[output] = max(view.greatest.get(output, NO_TIME), watermark)


def _move_with(view: View, coming: Coming, seen: Bools) -> Bools | None:
    """The common case: one stream moves, and nobody asks by which moments. Returns the tuples that are late."""
    stream, times = coming.stream, coming.times
    others = min((view.reached(x) for x in view.open - {stream}), default=_ALWAYS)
    before, lateness = view.greatest.get(stream, NO_TIME), view.running.lateness.get(stream, 0)
    late = times.late(seen, max(before, view.floors.get(stream, NO_TIME) + lateness), lateness, others)
    view.greatest[stream] = max(before, times.latest(seen))
    return late


def _move_by_moments(
    view: View,
    mine: Sequence[tuple[int, Coming, Bools]],
    producers: Mapping[str, Ints],
    moments: Moments,
    missed: list[list[Missed]],
) -> None:
    own = [(coming, seen) for _, coming, seen in mine]
    marks = _marks(view, view, own, producers, moments)
    end = moments.count + 1 if view.scratch.ends_at is None else view.scratch.ends_at + 1
    late = [x.times.below(seen, marks[x.moments]) for x, seen in own]
    if view.scratch.waiting is not None:
        too_many = _too_many(view, own, late, marks, end)
        end = end if too_many is None else too_many
    for (number, x, _), late_ in zip(mine, late, strict=True):
        if view.windowed and late_.any():
            missed[number].append((tuple(view.windowed), late_))
        if end <= moments.count:  # with that moment it ends
            missed[number].append((view.columns, x.moments >= end))
    if view.charted:
        whole = stopped(marks, end) if end <= moments.count else marks
        view.scratch.timeline = WatermarkTimeline(whole, moments.first, moments.of_arrivals)
        _move_readers(view, [x for x, _ in own], moments, end)
    _note(view.greatest, own, producers, end)


def _too_many(
    view: View, coming: Sequence[tuple[Coming, Bools]], late: Sequence[Bools], marks: Ints, end: int
) -> int | None:
    """The moment at which too many tuples wait for their time."""
    if not coming:
        return None
    entering = [
        x.times.those(np.asarray(x.visible[:, view.windowed].any(axis=1), np.bool_)) & ~missed & (x.moments < end)
        for (x, _), missed in zip(coming, late, strict=True)
    ]
    times = np.concatenate([x.times.times for x, _ in coming])
    moments = np.concatenate([x.moments for x, _ in coming])
    return enter(view, times, np.concatenate(entering), moments, marks)


def _move_readers(view: View, coming: Sequence[Coming], moments: Moments, end: int) -> None:
    """The subscribers of a cumulative view see different tuples. To a query that one of them reads its results by, its
    watermark is as far as the tuples have moved it that this subscriber may see."""
    if view.running.mode != Mode.CUMULATIVE or moments.permits is None:
        return
    for name, reader in view.own.items():
        own = [(x, moments.permits(view, name, x)) for x in coming]
        producers = moments.producers.own.get((id(view), name), {})
        marks = _marks(view, reader, own, producers, moments)
        whole = stopped(marks, end) if end <= moments.count else marks
        view.scratch.timelines[name] = WatermarkTimeline(whole, moments.first, moments.of_arrivals)
        _note(reader.greatest, own, producers, end)
        reader.passed = int(whole[-1])


def _marks(
    view: View,
    time: View | ReaderTime,
    coming: Iterable[tuple[Coming, Bools]],
    producers: Mapping[str, Ints],
    moments: Moments,
) -> Ints:
    """The watermark before each moment, and after the last; `time` is how far it had come for the view, or for one of
    its readers. It never falls."""
    known = list(coming)
    found = np.full(moments.count + 2, _ALWAYS)
    for stream in sorted(time.open):
        lateness = view.running.lateness.get(stream, 0)
        before = time.greatest.get(stream, NO_TIME)
        if stream in producers:
            own = np.maximum(producers[stream], before)
        else:
            own = np.full(moments.count + 2, before)
            for x, seen in known:
                if x.stream == stream and not x.derived:
                    np.maximum.at(own, x.moments + 1, x.times.reached(seen))
            own = np.maximum.accumulate(own) - lateness
        own = np.maximum(own, view.floors.get(stream, NO_TIME))
        own[-1] = max(own[-1], moments.floors.get(stream, NO_TIME))
        found = np.minimum(found, own)
    if not time.open:
        found[:] = NO_TIME
    found[0] = time.passed
    if moments.last:
        found[-1] = END
    return np.asarray(np.maximum(found, time.passed), np.int64)


def _note(
    greatest: dict[str, int], coming: Iterable[tuple[Coming, Bools]], producers: Mapping[str, Ints], end: int
) -> None:
    """Notes what was seen, and what producers reported, before the moment `end`."""
    for stream, marks in producers.items():
        if marks[min(end, len(marks) - 1)] > NO_TIME:
            greatest[stream] = max(greatest.get(stream, NO_TIME), int(marks[min(end, len(marks) - 1)]))
    for x, seen in coming:
        reached = int(x.times.reached(seen)[x.moments < end].max(initial=NO_TIME))
        if not x.derived and reached > NO_TIME:
            greatest[x.stream] = max(greatest.get(x.stream, NO_TIME), reached)
