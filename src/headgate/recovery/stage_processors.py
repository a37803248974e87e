"""The processors of a query graph: one for each stage, and what they save together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from headgate.execution.executors import Partitions
from headgate.execution.partitions import PartitionName
from headgate.execution.processor import Processor
from headgate.execution.stages import Stages
from headgate.labels import Rules
from headgate.model.view import View
from headgate.visibility.dictionary import Dictionary

Found = TypeVar("Found")


class StageProcessors:
    """`dictionary` numbers the labels, which processors learn here."""

    def __init__(self, stages: Stages, processors: Sequence[Processor], dictionary: Dictionary) -> None:
        self.stages = stages
        self._processors = processors
        self._known = [0] * len(processors)
        """How many labels each processor knows."""
        self._dictionary = dictionary

    def __iter__(self) -> Iterator[Processor]:
        return iter(self._processors)

    def __len__(self) -> int:
        return len(self._processors)

    def of(self, query: str) -> Processor:
        return self._processors[self.stages.running[query].stage]

    @property
    def views(self) -> list[View]:
        return [view for processor in self._processors for view in processor.views]

    def reading(self, stream: str) -> list[Processor]:
        return [x for x in self._processors if stream in x.program.streams]

    # Labels and rules -------------------------------------------------------------------------------------------------

    def add_labels(self) -> None:
        """Tells processors the labels that are new to them."""
        for number, processor in enumerate(self._processors):
            new = self._dictionary.new_since(self._known[number])
            processor.add_labels({x: self._dictionary.labels[x] for x in new})
            self._known[number] = self._dictionary.next

    def set_rules(self, rules: Rules, *, anew: bool) -> None:
        """Applies rules; `anew`: labels have become stricter."""
        for number, processor in enumerate(self._processors):
            if anew:
                processor.add_labels(self._dictionary.labels)
                self._known[number] = self._dictionary.next
            processor.set_rules(rules, anew=anew)

    def forget_labels(self, held: set[int]) -> None:
        """Forgets all labels except these and those of tuples in the state."""
        self.add_labels()
        for processor in self._processors:
            processor.forget_visibilities()
        self._dictionary.forget(held.union(*(x.labels_held for x in self._processors)))
        for processor in self._processors:
            processor.forget_labels(self._dictionary.labels)

    # Saved state ------------------------------------------------------------------------------------------------------

    def saved(
        self, of: Callable[[Processor], tuple[Mapping[PartitionName, Found], dict[str, Any]]]
    ) -> tuple[dict[PartitionName, Found], list[dict[str, Any]]]:
        """What `of` gives of each processor: partitions, named by their stage as well, and the rest as plain values."""
        partitions: dict[PartitionName, Found] = {}
        plain = []
        for number, processor in enumerate(self._processors):
            own, rest = of(processor)
            partitions |= {(f"{number} {group}", x): partition for (group, x), partition in own.items()}
            rest["queries"] = {name: query.meaning for name, query in processor.running.items()}
            plain.append(rest)
        return partitions, plain

    def restore(self, partitions: Partitions, plain: Sequence[Mapping[str, Any]]) -> None:
        """Continues with the state of the same queries. A query whose meaning differs from the saved one of its name
        starts empty."""
        self.add_labels()
        for number, (processor, rest) in enumerate(zip(self._processors, plain, strict=False)):
            means = {name: query.meaning for name, query in processor.running.items()}
            kept = frozenset(name for name, meant in rest["queries"].items() if means.get(name) == meant)
            own: Any = {
                (group.partition(" ")[2], x): c for (group, x), c in partitions.items() if _stage(group) == number
            }
            processor.restore(own, rest, kept)
        for processor in self._processors:
            processor.decide_anew()


def _stage(group: str) -> int:
    return int(group.partition(" ")[0])
