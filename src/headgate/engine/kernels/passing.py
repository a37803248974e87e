"""Blocks without windows: each tuple that arrives yields its result at once, or none (SPEC.md, 4.2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.engine.kernels.cell import HIDDEN, SIGHT, Block, Found, Program, Seen, Sight
from headgate.engine.kernels.view import Evaluate, Yielded, meets, values_of
from headgate.plan import nodes as n
from headgate.plan.expressions import Expr


def passing(program: Program, arriving: pa.Table, sight: Sight, evaluate: Evaluate) -> list[Found]:
    """The results of all blocks without windows, for tuples in the order of their arrival. Views that see the same of
    them are computed once."""
    found = []
    present = np.unique(arriving.column(SIGHT).to_numpy())
    for block in program.passing:
        together: dict[bytes, list[int]] = {}
        for view, target in enumerate(sight.targets):
            if target == (block.query, block.number):
                together.setdefault(sight.table[present, view].tobytes(), []).append(view)
        for views in together.values():
            yielded = _passed(program, block, arriving, sight, views[0], evaluate)
            if len(yielded.instant):
                found.append(Found(block, tuple(views), yielded, arriving))
    return found


def _passed(program: Program, block: Block, arriving: pa.Table, sight: Sight, view: int, evaluate: Evaluate) -> Yielded:
    items, conditions, stream = _parts(block.top)
    seen = sight.table[arriving.column(SIGHT).to_numpy(), view] != HIDDEN
    everything = Seen(program, arriving, np.arange(arriving.num_rows), sight, view)
    places = np.flatnonzero(seen & everything.of_stream(stream))
    if conditions:
        values = values_of(everything, [stream], (places,), conditions)
        places = places[meets(evaluate, conditions, values, len(places))]
    results = evaluate(items, values_of(everything, [stream], (places,), items), len(places))
    number = np.arange(len(places))
    return Yielded(number, everything.times[places], places + 1, False, (places,), tuple(results), number, places)


def _parts(top: n.Node) -> tuple[list[Expr], frozenset[Expr], str]:
    """The results, conditions and stream of a block."""
    match top:
        case n.Project(input=n.Select(input=n.Source(stream), conditions=conditions)):
            return [expr for _, expr in top.items], conditions, stream
        case n.Project(input=n.Source(stream)):
            return [expr for _, expr in top.items], frozenset(), stream
    raise ValueError(f"{top} has windows")
