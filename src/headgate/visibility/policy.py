"""How those who look through a view look at tuples: which labels their rights permit, and which columns they hide."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.labels import Clearance, Label, Rules
from headgate.model.view import View, reads
from headgate.model.visibility import HIDDEN, Mask
from headgate.plan.queries import Block
from headgate.plan.secure import Mode


@dataclass(frozen=True)
class _Look:
    """How somebody looks at a block: with which rights, and what mask over the columns."""

    clearance: Clearance
    mask: int


class VisibilityPolicy:
    """What each view sees, under the rules of the moment; columns that are hidden together are a mask, by number."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.masks: list[Mask] = [frozenset()]
        self._policies: dict[tuple[int, ...], list[tuple[Block, frozenset[str], list[_Look]]]] = {}

    def forget(self, view: View) -> None:
        """The rights of those who look through it have changed."""
        self._policies.pop(view.columns, None)

    def restore(self, masks: list[Mask]) -> None:
        self.masks = masks
        self._policies.clear()

    def sees(self, view: View, label: Label, stream: str | None = None) -> list[int]:
        """What each block of a view sees of tuples with this label; a cumulative one sees all that anybody may see."""
        if view.columns not in self._policies:
            self._policies[view.columns] = [self._look(view, block) for block in view.running.query.blocks]
        return [
            next((x.mask for x in policies if reads(self.rules, block, label, x.clearance)), HIDDEN)
            if stream is None or stream in streams
            else HIDDEN
            for block, streams, policies in self._policies[view.columns]
        ]

    def both(self, before: int, now: int) -> int:
        """What was seen before and still is, with everything hidden that ever was."""
        if before == HIDDEN or now == HIDDEN:
            return HIDDEN
        return self._mask(self.masks[before - 1] | self.masks[now - 1])

    def _look(self, view: View, block: Block) -> tuple[Block, frozenset[str], list[_Look]]:
        """What a block reads, and how each of those who look through the view looks at it."""
        policies = []
        looking = () if view.ended else view.clearances
        for clearance in dict.fromkeys(view.clearance(name, self.rules) for name in looking):
            if clearance is not None:
                exact = view.running.mode == Mode.EXACT
                mask = self._mask(self._hidden(block, clearance) if exact else frozenset())
                policies.append(_Look(clearance, mask))
        return block, block.streams, policies

    def _hidden(self, block: Block, clearance: Clearance) -> Mask:
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
