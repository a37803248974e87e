"""What operators counted for each subscriber of a query, also before their processors were made anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headgate.execution.stages import first_subscriber
from headgate.model.query import ContinuousQuery
from headgate.model.view import View
from headgate.operators.profile import Step, continued
from headgate.plan.analysis import StepCounts, ViewCounts
from headgate.recovery.saved_counts import Key, SavedCounts
from headgate.recovery.stage_processors import StageProcessors


class OperatorCounts:
    def __init__(self) -> None:
        self._before: dict[Key, dict[str, Step]] = {}
        """What earlier processors counted."""
        self._saved = SavedCounts()

    def view_counts(self, keys: Sequence[Key], now: Mapping[str, Step]) -> ViewCounts:
        """The counts of the view of these subscribers. A consumer is named as the subscriber it reads for."""
        steps = continued(self._before.get(keys[0], {}), now)
        names = dict.fromkeys(first_subscriber(name) for name, _ in keys)
        return ViewCounts(
            tuple(names), {x: StepCounts(y.taken, y.given, y.held, y.nanoseconds) for x, y in steps.items()}
        )

    def start_at(self, keys: Iterable[Key], counted: Mapping[str, Step]) -> None:
        """The counts of these subscribers start at zero although so much was counted for their view."""
        for key in keys:
            self._before[key] = {x: Step().less(step) for x, step in counted.items()}

    def save(self, processors: StageProcessors, views: Mapping[Key, View]) -> None:
        """The state is saved."""
        before = {key: steps for key, steps in self._before.items() if key in views}
        counted = [processor.counted() for processor in processors]
        self._saved = SavedCounts(before, counted, dict(views), processors.stages.running)

    def go_on(self, running: Mapping[str, ContinuousQuery]) -> None:
        """Processors were made anew for these queries."""
        self._before = self._saved.for_queries(running)
