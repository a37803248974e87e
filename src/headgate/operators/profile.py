"""What the steps of a plan did for one view group: tuples in and out, what is kept, and processor time.

The operators themselves count, whatever the planner meant them to do, so EXPLAIN ANALYZE shows what ran. Steps have the
names of `plan.steps`. Counting takes less than a microsecond for each step and batch, reading the processor's clock two
or three: where a batch has many steps, they are timed in one batch of several.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass
class Step:
    """What one step did.

    taken: tuples, rows or changes that came in, as many as if the view were alone
    read: how many of these it looked at; fewer than `taken` if it was computed from another step
    given: how many came out
    held: how many it keeps now: tuples, rows or groups
    nanoseconds: processor time, without that of the steps it called
    base: the step of the selection that it was computed from; empty if there was none
    """

    taken: int = 0
    read: int = 0
    given: int = 0
    held: int = 0
    nanoseconds: int = 0
    base: str = ""

    def count(self, taken: int, given: int, read: int | None = None) -> None:
        self.taken += taken
        self.given += given
        self.read += taken if read is None else read

    def plus(self, other: Step) -> Step:
        """This step continued by a later one."""
        return Step(
            self.taken + other.taken, self.read + other.read, self.given + other.given, other.held,
            self.nanoseconds + other.nanoseconds, other.base,
        )  # fmt: skip

    def less(self, other: Step) -> Step:
        """This step without what it had done before."""
        return Step(
            self.taken - other.taken, self.read - other.read, self.given - other.given, self.held,
            self.nanoseconds - other.nanoseconds, self.base,
        )  # fmt: skip


_NOTHING = Step()
MANY, SELDOM = 32, 16
"""How many steps are many in a batch, and in which of so many batches they are timed."""


@dataclass(frozen=True)
class Counted:
    """What was counted at one moment: for each view what was done before, and what its view groups did since."""

    earlier: Mapping[int, Mapping[str, Step]]
    groups: Sequence[tuple[tuple[int, ...], Mapping[str, Step]]]

    def of(self, view: int) -> dict[str, Step]:
        found = dict(self.earlier.get(view, {}))
        for views, steps in self.groups:
            if view in views:
                found = added(found, steps)
        return found


class Profile:
    """The steps of one view group, by name."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self._inside: list[int] = []
        self._batches = 0
        self._stands_for = 1

    def begin_batch(self, steps: int) -> None:
        """A batch begins, with so many steps. Of MANY and more, the first batch is timed, and from then on the last of
        each SELDOM: its times stand for all of them."""
        self._stands_for = 1
        if steps >= MANY and self._batches:
            self._stands_for = 0 if self._batches % SELDOM else SELDOM
        self._batches += 1

    def begin_anew(self) -> None:
        """Count from zero; what is held stays."""
        self.steps = {name: Step(held=step.held, base=step.base) for name, step in self.steps.items()}

    def copy(self) -> dict[str, Step]:
        return {name: step.less(_NOTHING) for name, step in self.steps.items()}

    def running(self, name: str) -> TimedStep:
        """Measure the code inside as this step."""
        step = self.steps.get(name)
        if step is None:
            step = self.steps[name] = Step()
        return TimedStep(step, self._inside, self._stands_for)


class TimedStep:
    """A context: the time of the code inside is that of a step, without that of the steps that run inside it. It counts
    `times`."""

    def __init__(self, step: Step, inside: list[int], times: int) -> None:
        self._step = step
        self._inside = inside
        self._times = times

    def __enter__(self) -> Step:
        if self._times:
            self._inside.append(0)
            self._begin = time.thread_time_ns()
        return self._step

    def __exit__(self, *_: object) -> None:
        if self._times:
            spent = time.thread_time_ns() - self._begin
            self._step.nanoseconds += self._times * (spent - self._inside.pop())
            if self._inside:
                self._inside[-1] += spent


def side_by_side(parts: Iterable[Mapping[str, Step]]) -> dict[str, Step]:
    """The steps of several partitions together."""
    found = dict[str, Step]()
    for part in parts:
        for name, step in part.items():
            held = step.held + (found[name].held if name in found else 0)
            found[name] = replace(found.get(name, Step()).plus(step), held=held)
    return found


def added(before: Mapping[str, Step], after: Mapping[str, Step]) -> dict[str, Step]:
    """Steps continued by later ones. A step that is not among the later ones keeps nothing any more."""
    return {
        name: before.get(name, Step()).plus(after.get(name, Step())) for name in sorted(before.keys() | after.keys())
    }


def continued(before: Mapping[str, Step], now: Mapping[str, Step]) -> dict[str, Step]:
    """Steps that went on; while nothing came, what was held is held."""
    return added(before, now) if now else dict(before)


def since(before: Mapping[str, Step], after: Mapping[str, Step]) -> dict[str, Step]:
    """What steps did after they had done so much; what they hold is what they hold now."""
    return {name: step.less(before.get(name, Step())) for name, step in after.items()}
