"""The inputs of windows in one batch: which tuples pass the conditions before them.

A selection is evaluated once for all windows over it, and only over the tuples that passed the weaker selection that
the plan computes it from. Each reader is charged as if its selection were evaluated over all tuples, so what others run
changes nothing in anybody's budget.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.limits import cost_of
from headgate.model.budget import Remembered, charge
from headgate.operators.reading import stream_of
from headgate.operators.visible import Reader
from headgate.plan import nodes as n
from headgate.plan import steps
from headgate.plan.merged import is_derivable, residue


class Inputs:
    """`tuples` are all that become final; `bases` gives by key the selection that each selection is computed from."""

    def __init__(self, tuples: Ints, bases: Mapping[str, n.Select | None], reader: Reader) -> None:
        self._tuples = tuples
        self._bases = bases
        self._reader = reader
        self._known = Remembered()
        self._passed: dict[str, Bools] = {}

    def entering(self, node: n.Node) -> Bools:
        """Which tuples a stream or a selection of it lets through."""
        match node:
            case n.Source():
                return self._of_stream(node)
            case n.Select(input=n.Source() as source):
                whole = self._of_stream(source)
                return self._known.once(node.key, lambda: self._selected(node, whole))
        raise ValueError(f"{node} cannot stand below a window")

    def _of_stream(self, source: n.Source) -> Bools:
        if source.key not in self._passed:
            with self._reader.profile.running(steps.reading(source)) as step:
                found = self._passed[source.key] = self._reader.tuples.of_stream(source.stream, self._tuples)
                step.count(len(found), int(np.count_nonzero(found)))
        return self._passed[source.key]

    def _selected(self, select: n.Select, whole: Bools) -> Bools:
        base = self._bases.get(select.key)
        while base is not None and base.key not in self._passed:  # those who read it have exceeded their limits
            base = self._bases[base.key]
        start = whole if base is None else self._passed[base.key]
        with self._reader.profile.running(steps.reading(select)) as step:
            places, size = np.flatnonzero(start), int(np.count_nonzero(whole))
            found = np.zeros(len(whole), np.bool_)
            if is_derivable(select):
                charge(cost_of(select.conditions, {}, size))
                found[places] = self._reader.derived(stream_of(select), self._tuples[places], residue(select, base))
            else:
                found[places] = self._reader.meets([stream_of(select)], (self._tuples[places],), select.conditions)
            step.base = "" if base is None else steps.reading(base)
            step.count(size, int(np.count_nonzero(found)), len(places))
        self._passed[select.key] = found
        return found
