"""Tuple batches: labelled tuples in columns, from ingress to the operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.model.view import View


@dataclass(frozen=True)
class TupleBatch:
    """Tuples of one stream in order of arrival: times in milliseconds, label numbers, values by column."""

    stream: str
    times: Ints
    labels: Ints
    columns: Mapping[str, pa.Array]
    views: tuple[View, ...] | None = None
    """The views that receive these tuples, which another query made for them; None: all views that may see them."""
    moments: Ints | None = None
    """The moments of the batch at which they arrive; None: each is a moment of its own, after those before it."""


def in_moments(arrivals: Sequence[TupleBatch], first: int = 0) -> list[TupleBatch]:
    """Tuples that come one after the other, each at a moment of its own, in the order given, from the moment `first`
    on."""
    found, count = list[TupleBatch](), first
    for x in arrivals:
        if x.moments is None:
            x = replace(x, moments=np.arange(count, count + len(x.times)))
            count += len(x.times)
        found.append(x)
    return found
