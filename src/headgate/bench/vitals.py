"""The streams of the engine's benches: heart rates, blood pressures and temperatures, with role expressions.

All are drawn from one seed. Rates are in hundredths of a beat, so that a thousand users can have different alarms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa

from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream

ROLES = ("doctor", "nurse", "researcher", "auditor")
LABELS = tuple(" | ".join(chosen) for size in range(1, 5) for chosen in combinations(ROLES, size))
"""All fifteen: each role may see eight of them."""

STREAMS: Mapping[str, Stream] = {
    name: Stream(name, (("patient", Type.INT), (name, Type.INT), ("ward", Type.INT))) for name in ("bp", "hr", "temp")
}
_TIME, _ROLES = "at", "roles"
_MEAN, _SPREAD = {"bp": 120, "hr": 8_000, "temp": 370}, {"bp": 15, "hr": 1_500, "temp": 6}


def snapshot(
    queries: Sequence[ContinuousQuery], subscribers: Sequence[Subscriber], *, labelled: bool = True
) -> CatalogSnapshot:
    """These queries over the streams; tuples have role expressions, or (not `labelled`) are for everybody."""
    labels = {"ROLES": _ROLES} if labelled else {}
    descriptors = {x.name: StreamDescriptor(x.name, x.columns, _TIME, labels) for x in STREAMS.values()}
    return CatalogSnapshot(descriptors=descriptors, queries=tuple(queries), subscribers=tuple(subscribers))


class Vitals:
    """Tuples of the streams, one a millisecond each, batch after batch."""

    def __init__(self, patients: int = 1_000, wards: int = 8, labels: Sequence[str] = LABELS) -> None:
        self._drawn = np.random.default_rng(1)
        self._patients = patients
        self._wards = wards
        self._labels = pa.array(labels)
        self._now = 0

    def batch(self, size: int, streams: Sequence[str] = ("hr",)) -> dict[str, pa.Table]:
        """The next `size` tuples of each of these streams."""
        found = {stream: self._table(stream, size) for stream in streams}
        self._now += size
        return found

    def _table(self, stream: str, size: int) -> pa.Table:
        drawn = self._drawn
        labels = drawn.integers(0, len(self._labels), size)
        return pa.table(
            {
                _TIME: pa.array(self._now + np.arange(size), pa.timestamp("ms", "UTC")),
                "patient": pa.array(drawn.integers(0, self._patients, size), pa.int32()),
                stream: pa.array(drawn.normal(_MEAN[stream], _SPREAD[stream], size).astype(np.int32)),
                "ward": pa.array(drawn.integers(0, self._wards, size), pa.int32()),
                _ROLES: self._labels.take(pa.array(labels)),
            }
        )
