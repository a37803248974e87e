"""The visibility policy: which labels the clearances of a view permit, and which columns are masked for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.labels import PUBLIC, Clearance, Label, Rules
from headgate.model.view import View, reads
from headgate.model.visibility import HIDDEN, Mask
from headgate.plan.queries import QueryBlock
from headgate.plan.secure import Mode


@dataclass(frozen=True)
class _BlockPolicy:
    """How one clearance of a view reads a block, and with which column mask."""

    clearance: Clearance
    mask: int


class VisibilityPolicy:
    """What each view sees under the current rules. A mask is a set of columns that are hidden together; it has a
    number."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.masks: list[Mask] = [frozenset()]
        self._policies: dict[tuple[int, ...], list[tuple[QueryBlock, frozenset[str], list[_BlockPolicy]]]] = {}

    def forget(self, view: View) -> None:
        """Drops the cached policy of a view whose subscribers' rights have changed."""
        self._policies.pop(view.columns, None)

    def restore(self, masks: list[Mask]) -> None:
        self.masks = masks
        self._policies.clear()

    def sees(self, view: View, label: Label, stream: str | None = None) -> list[int]:
        """For each block of a view: HIDDEN, or the mask with which it sees tuples with this label. A cumulative view
        sees every tuple that any of its subscribers may see."""
        if view.columns not in self._policies:
            self._policies[view.columns] = [self._block_policies(view, block) for block in view.running.query.blocks]
        return [
            next((x.mask for x in policies if reads(self.rules, block, label, x.clearance)), HIDDEN)
            if stream is None or stream in streams
            else HIDDEN
            for block, streams, policies in self._policies[view.columns]
        ]

    def open(self, view: View, subscribers: Iterable[str], declared: Mapping[str, Label]) -> dict[str, frozenset[str]]:
        """By subscriber: the streams of a view that it may read tuples of, if they have no other label than the
        `declared` one of the stream. A WEAK stream may also be read for another source that the label of a tuple
        names. No tuple decides about this, so it tells nothing about tuples."""
        clearances = {name: view.clearance(name, self.rules) for name in subscribers}
        found = {x: self._open_to(x, view, declared) for x in set(clearances.values()) if x is not None}
        return {name: frozenset() if x is None else found[x] for name, x in clearances.items()}

    def _open_to(self, clearance: Clearance, view: View, declared: Mapping[str, Label]) -> frozenset[str]:
        return frozenset(
            stream
            for block in view.running.query.blocks
            for stream in block.streams & view.timed
            if self.rules.permits(
                declared.get(stream, PUBLIC), clearance, aggregated=block.aggregated, beside=clearance.sources
            )
        )

    def both(self, before: int, now: int) -> int:
        """The visibility under both: HIDDEN if either is, else the union of both masks. What was lost stays lost."""
        if before == HIDDEN or now == HIDDEN:
            return HIDDEN
        return self._mask(self.masks[before - 1] | self.masks[now - 1])

    def _block_policies(self, view: View, block: QueryBlock) -> tuple[QueryBlock, frozenset[str], list[_BlockPolicy]]:
        """The block, the streams that it reads, and the policy of each distinct clearance of the view."""
        policies = []
        subscribers = () if view.ended else view.clearances
        for clearance in dict.fromkeys(view.clearance(name, self.rules) for name in subscribers):
            if clearance is not None:
                exact = view.running.mode == Mode.EXACT
                mask = self._mask(self._hidden(block, clearance) if exact else frozenset())
                policies.append(_BlockPolicy(clearance, mask))
        return block, block.streams, policies

    def _hidden(self, block: QueryBlock, clearance: Clearance) -> Mask:
        return frozenset(
            (reading.stream.name, name)
            for reading in block.readings
            for name, label in reading.stream.labels
            if not reads(self.rules, block, label, clearance)
        )

    def _mask(self, mask: Mask) -> int:
        if mask not in self.masks:
            self.masks.append(mask)
        return self.masks.index(mask) + 1
