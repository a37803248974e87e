"""The state of one partition of a running plan, and how a batch advances it: the tuples it keeps, and which of them
each view's windows hold.

Views that see the same tuples with the same columns form one view group, which is computed once, however many views and
subscribers it has. A view group splits when its views come to see different tuples, and two merge again when their
states are equal. Views of stateless blocks are not part of this: their tuples are not kept.

A partition does not keep the tuples of tables: it receives them with every batch, and each view has of them what it
sees then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints, in_sequence
from headgate.expressions.limits import Evaluate, limited
from headgate.model.budget import Budget, LimitExceeded, Meter
from headgate.model.times import BEGINNING
from headgate.model.visibility import HIDDEN, Position, Visibility
from headgate.operators.emit import Emitted
from headgate.operators.label_sets import LabelSets
from headgate.operators.program import ARRIVAL, STREAM, TIME, VISIBILITY, Block, Program
from headgate.operators.state_size import changes
from headgate.operators.threads import in_threads
from headgate.operators.tuples import Tuples, VisibleTuples, in_order
from headgate.operators.view_group import ViewRun
from headgate.plan import nodes as n


@dataclass(frozen=True)
class ViewGroup:
    """Views that are computed together.

    views: the numbers of the views
    held: what each window holds for them, as positions in the partition's table, by the window's key; and what some
    windows held at the previous instant of a block that compares with it (`previous_instant.name_of`)
    last: the time of the last instant of each block, by the key of its rows
    """

    views: tuple[int, ...]
    held: Mapping[str, Ints] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionState:
    """The tuples that a partition keeps, and the view groups that hold them.

    INVARIANT: the tuples are in the order of SPEC.md, 4.2.
    """

    table: pa.Table
    classes: tuple[ViewGroup, ...] = ()


@dataclass(frozen=True)
class GroupResults:
    """The results of one block for some views. `tuples` are the tuples whose positions `yielded` contains. If the views
    `exceeded` a limit, this is the reason and there are no results."""

    block: Block
    views: tuple[int, ...]
    yielded: Emitted
    tuples: VisibleTuples
    exceeded: str = ""


def judged(
    block: Block, looking: Sequence[int], yielded: Emitted, tuples: VisibleTuples, meter: Meter, exceeded: str
) -> Iterator[GroupResults]:
    """The results of a block for its views, or the limit that is exceeded: by all of them, or by some."""
    for view, reason in meter.exceeded.items():
        yield GroupResults(block, (view,), NOTHING, tuples, reason)
    left = tuple(view for view in looking if view not in meter.exceeded)
    if left and (exceeded or len(yielded.instant)):
        yield GroupResults(block, left, yielded, tuples, exceeded)


_NONE = np.empty(0, np.int64)
NOTHING = Emitted(_NONE, _NONE, _NONE, False, (_NONE,), (), LabelSets(_NONE, ()))


def advance(
    program: Program,
    partition: PartitionState,
    arriving: pa.Table,
    visibility: Visibility,
    evaluate: Evaluate,
    tables: pa.Table | None = None,
) -> tuple[PartitionState, list[GroupResults]]:
    """Process the next batch: tuples arrive, and times become final. `tables` holds the tuples of tables, in order."""
    tuples, classes, policies = _begun(program, partition, arriving, visibility, tables)
    run = _Batch(program, tuples, visibility, evaluate)
    results = in_threads(run.class_results, classes, _sizes(classes, tuples, visibility))
    after = [moved for moved, _ in results]
    return _kept(tuples, _joined(after, policies), visibility), [x for _, found in results for x in found]


def _sizes(classes: Sequence[ViewGroup], tuples: Tuples, visibility: Visibility) -> list[int]:
    """How many tuples each view group sees."""
    counts = np.bincount(tuples.numbers(VISIBILITY), minlength=len(visibility.table))
    return [int(counts[visibility.visible(class_.views[0])].sum()) for class_ in classes]


def state_changes(
    program: Program,
    partition: PartitionState,
    arriving: pa.Table,
    visibility: Visibility,
    evaluate: Evaluate,
    pushdown: Collection[int],
) -> list[tuple[tuple[int, ...], tuple[Ints, ...]]]:
    """The tuples that the next batch would bring into the windows of these views and take out of them, block by block.
    Nothing is joined or computed, so an exceeded limit is known before it costs anything."""
    tuples, classes, _ = _begun(program, partition, arriving, visibility)
    run = _Batch(program, tuples, visibility, evaluate)
    return [
        x for class_ in classes if not set(pushdown).isdisjoint(class_.views) for x in run.changes(class_, pushdown)
    ]


def _begun(
    program: Program,
    partition: PartitionState,
    arriving: pa.Table,
    visibility: Visibility,
    tables: pa.Table | None = None,
) -> tuple[Tuples, list[ViewGroup], dict[int, bytes]]:
    views = [view for view, target in enumerate(visibility.targets) if target in program.windowed]
    there = [] if tables is None else [_entering(tables, visibility, views)]
    tuples, classes = _ordered(program, there, partition, _entering(arriving, visibility, views))
    policies = _policies(views, visibility, tuples.present)
    return tuples, _refined(with_copied(classes, visibility.copied), policies), policies


def _entering(arriving: pa.Table, visibility: Visibility, views: list[int]) -> pa.Table:
    """The tuples that at least one view of a windowed block sees."""
    seen = (visibility.table[:, views] != HIDDEN).any(axis=1)[arriving.column(VISIBILITY).to_numpy()]
    return arriving if seen.all() else arriving.filter(pa.array(seen))


def _ordered(
    program: Program, tables: list[pa.Table], partition: PartitionState, arriving: pa.Table
) -> tuple[Tuples, tuple[ViewGroup, ...]]:
    """All tuples in the order of SPEC.md, 4.2, and the view groups with their positions in that order."""
    table = pa.concat_tables([x for x in (*tables, partition.table) if x.num_rows] + [arriving])
    first = sum(x.num_rows for x in tables)
    order = in_order(table, len(program.streams))
    tuples = Tuples(program, table, order)
    if order is None and not first:
        return tuples, partition.classes
    place = np.arange(len(tuples))
    if order is not None:
        place[order] = np.arange(len(order))
    return tuples, tuple(
        replace(c, held={key: in_sequence(place[held + first]) for key, held in c.held.items()})
        for c in partition.classes
    )


def _policies(views: list[int], visibility: Visibility, present: Ints) -> dict[int, bytes]:
    """What tells views apart: what they see of the tuples that are there, the bounds of their final times, and their
    cutoff."""
    seen = np.ascontiguousarray(visibility.table[present][:, views].T)
    bounds = np.column_stack([visibility.since[views], visibility.until[views]])
    return {
        view: seen[at].tobytes() + bounds[at].tobytes() + str(visibility.cutoff.get(view, "")).encode()
        for at, view in enumerate(views)
    }


def with_copied(classes: Sequence[ViewGroup], copied: Sequence[tuple[int, int]]) -> tuple[ViewGroup, ...]:
    """Views that begin as copies belong to the view group of the view they were copied from."""
    for new, old in copied:
        classes = [replace(c, views=(*c.views, new)) if old in c.views and new not in c.views else c for c in classes]
    return tuple(classes)


def _refined(classes: Sequence[ViewGroup], policies: Mapping[int, bytes]) -> list[ViewGroup]:
    """Split view groups into views that see the same of the tuples that are there; new views begin with nothing."""
    known = {view for class_ in classes for view in class_.views}
    fresh = ViewGroup(tuple(view for view in policies if view not in known))
    found = []
    for class_ in (*classes, fresh):
        together: dict[bytes, list[int]] = {}
        for view in class_.views:
            if view in policies:
                together.setdefault(policies[view], []).append(view)
        found += [replace(class_, views=tuple(views)) for views in together.values()]
    return found


def _joined(classes: Sequence[ViewGroup], policies: Mapping[int, bytes]) -> list[ViewGroup]:
    together: dict[tuple[object, ...], ViewGroup] = {}
    for class_ in classes:
        held = tuple(sorted((key, places.tobytes()) for key, places in class_.held.items() if len(places)))
        state = policies[class_.views[0]], held, tuple(sorted(class_.last.items()))
        if state in together:
            class_ = replace(class_, views=tuple(sorted((*together[state].views, *class_.views))))
        together[state] = class_
    return list(together.values())


def _kept(tuples: Tuples, classes: Sequence[ViewGroup], visibility: Visibility) -> PartitionState:
    """Keep the tuples that some window still holds, and those that are not final for some view that sees them."""
    needed = np.zeros(len(tuples), np.bool_)
    times, visibilities = tuples.numbers(TIME), tuples.numbers(VISIBILITY)
    for class_ in classes:
        view = class_.views[0]
        open_ = np.searchsorted(times, visibility.until[view])
        needed[open_:] |= visibility.visible(view)[visibilities[open_:]]
        for held in class_.held.values():
            needed[held] = True
    places = np.flatnonzero(needed)
    moved = tuple(
        replace(c, held={key: np.searchsorted(places, held) for key, held in c.held.items()}) for c in classes
    )
    return PartitionState(tuples.taken(places), moved)


class _Batch:
    def __init__(self, program: Program, tuples: Tuples, visibility: Visibility, evaluate: Evaluate) -> None:
        self._program = program
        self._tuples = tuples
        self._visibility = visibility
        self._evaluate = evaluate

    def _run(self, class_: ViewGroup) -> tuple[ViewRun, VisibleTuples, Ints, int]:
        """The run of a view group, its tuples, their positions among all, and how many visible tuples are not final
        yet."""
        view = class_.views[0]
        since, until = int(self._visibility.since[view]), int(self._visibility.until[view])
        seen = self._visibility.visible(view)[self._tuples.numbers(VISIBILITY)]
        held = {key: places[seen[places]] for key, places in class_.held.items()}
        times = self._tuples.numbers(TIME)
        tables, first, last = np.searchsorted(times, [BEGINNING + 1, since, until]).tolist()
        waiting = int(np.count_nonzero(seen[last:]))
        if view in self._visibility.cutoff:
            last, until, waiting = self._before(self._visibility.cutoff[view]), self._visibility.cutoff[view].time, 0
        taken = np.zeros(len(seen), np.bool_)
        taken[:tables] = seen[:tables]
        taken[first:last] = seen[first:last]
        for places in held.values():
            taken[places] = True
        places = np.flatnonzero(taken)
        tuples = VisibleTuples(self._tuples, places if len(places) < len(taken) else None, self._visibility, view)
        run = ViewRun(
            tuples,
            {key: np.searchsorted(places, at) for key, at in held.items()},
            self._evaluate,
            since,
            until,
            class_.last,
        )
        return run, tuples, places, waiting

    def _before(self, position: Position) -> int:
        """How many tuples are before a position."""
        first, end = np.searchsorted(self._tuples.numbers(TIME), [position.time, position.time + 1]).tolist()
        names = zip(*(self._tuples.numbers(x)[first:end].tolist() for x in (STREAM, ARRIVAL)), strict=True)
        return int(first + sum(name < position[1:] for name in names))

    def _looking(self, class_: ViewGroup) -> dict[tuple[str, int], list[int]]:
        """The views of a view group by their target block."""
        looking: dict[tuple[str, int], list[int]] = {}
        for each in class_.views:
            looking.setdefault(self._visibility.targets[each], []).append(each)
        return looking

    def changes(
        self, class_: ViewGroup, pushdown: Collection[int]
    ) -> Iterator[tuple[tuple[int, ...], tuple[Ints, ...]]]:
        """The changes of state for the requested views; a block that exceeds the limits of every view has none."""
        run, tuples, *_ = self._run(class_)
        looking = self._looking(class_)
        for block in (block for block in self._program.blocks if block.target in looking):
            views = tuple(view for view in looking[block.target] if view in pushdown)
            if views:
                found = None
                alone = Meter(
                    {view: Budget(self._visibility.limits.bytes) for view in views}
                )  # charged to a budget of its own: the batch computes it again
                with suppress(LimitExceeded), limited(self._visibility.limits, alone):
                    found = changes(block.top, run.rows, tuples)
                if found is not None:
                    yield views, found

    def class_results(self, class_: ViewGroup) -> tuple[ViewGroup, list[GroupResults]]:
        """The view group after the batch, and the results of its blocks."""
        run, tuples, places, waiting = self._run(class_)
        looking = self._looking(class_)
        found, going_on = list[GroupResults](), list[tuple[Block, ViewRun]]()
        for block in (block for block in self._program.blocks if block.target in looking):
            own, meter = run.alone(block.top), self._visibility.meter(looking[block.target])
            yielded, exceeded = NOTHING, ""
            try:
                with limited(self._visibility.limits, meter):
                    yielded = own.results(block.top)
                    own.fits(block.top, waiting)
                going_on.append((block, own))
            except LimitExceeded as error:
                yielded, exceeded = NOTHING, str(error)
            found += judged(block, looking[block.target], yielded, tuples, meter, exceeded)
        return self._after(class_, going_on, places), found

    def _after(self, class_: ViewGroup, going_on: Sequence[tuple[Block, ViewRun]], places: Ints) -> ViewGroup:
        windows = {node.key: node for block, _ in going_on for node in block.top.walk() if isinstance(node, n.Window)}
        runs = list({id(run): run for _, run in going_on}.values())
        held, last = dict[str, Ints](), dict(class_.last)
        for key, window in windows.items():
            content = [run.content(window) for run in runs if run.evaluated(window)]
            held[key] = content[0] if len(content) == 1 else np.unique(np.concatenate(content))
        for block, run in going_on:
            held |= run.remembers(block.top)
            last |= run.last_instants()
        return ViewGroup(class_.views, {key: places[x] for key, x in held.items()}, last)


def empty(table: pa.Schema) -> PartitionState:
    return PartitionState(table.empty_table())
