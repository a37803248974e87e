"""The subscribers of a query, and what labels permit them to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headgate.labels import PUBLIC, Clearance, Label, Level, Rules
from headgate.plan.queries import Query, QueryBlock, Stream
from headgate.testing.oracle.tuples import Tuple

Subscribers = Mapping[str, Clearance | None]


@dataclass(frozen=True)
class Setting:
    """`masking`: columns that may not be read are NULL (exact), not a part of the result's label (cumulative).
    `outputs` are those streams that are made by queries: their watermarks arrive with them. `delay` is by stream, in
    milliseconds: how long its tuples take to arrive, where that is declared. `declared` is by stream: the label that
    all its tuples have at least, with the stream as a source."""

    query: Query
    tables: tuple[Tuple, ...]
    rules: Rules
    lateness: Mapping[str, int]
    level: Level
    masking: bool
    outputs: frozenset[str] = frozenset()
    delay: Mapping[str, int] = field(default_factory=dict)
    declared: Mapping[str, Label] = field(default_factory=dict)


@dataclass(frozen=True)
class Rights:
    """The subscribers of a view. All read at the level of the query; a subscriber who cannot log in there sees
    nothing."""

    setting: Setting
    subscribers: Subscribers

    def of(self, name: str) -> Clearance | None:
        clearance, level = self.subscribers[name], self.setting.level
        if clearance is None or not self.setting.rules.order.dominates(clearance.level, level):
            return None
        return replace(clearance, level=level)

    def permit(self, label: Label, block: QueryBlock) -> list[str]:
        """The subscribers whom the label of a tuple that a block reads permits. Blocks with aggregates also read what
        may be read only in aggregates; a join reads a WEAK stream for a subscriber who may read another of its
        streams."""
        found = ((name, self.of(name)) for name in self.subscribers)
        rules, how = self.setting.rules, block.aggregated
        return [
            name for name, x in found if x is not None and rules.permits(label, x, aggregated=how, beside=block.streams)
        ]

    def open(self, stream: Stream, block: QueryBlock) -> list[str]:
        """The subscribers to whom a stream is open: who may read tuples of it in a block that have no other label than
        the declared one. This follows from grants and declarations, never from tuples. A WEAK stream may also be read
        for another source that the label of a tuple names."""
        rules, least = self.setting.rules, self.setting.declared.get(stream.name, PUBLIC)
        found = ((name, self.of(name)) for name in self.subscribers)
        return [
            name
            for name, x in found
            if x is not None and rules.permits(least, x, aggregated=block.aggregated, beside=x.sources)
        ]

    def hide(self, stream: Stream, block: QueryBlock) -> frozenset[str]:
        if not self.setting.masking:
            return frozenset()
        return frozenset(name for name, label in stream.labels if not self.permit(label, block))
