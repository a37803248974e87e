"""The expected results of each reader, computed from whole arrays, by none of the engines that are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.bench.peers.outcome import Column, Outcome
from headgate.bench.peers.workloads import LAST, LEVELS, NEAR_MICROS, POLICIES, Reader, known, readers_of

Ints = NDArray[np.signedinteger]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Stream:
    """A whole stream, column by column, in time order; `policy` is a position in `POLICIES`."""

    at: Ints
    patient: Ints
    measured: Ints
    lvl: Ints
    policy: Ints

    def __getitem__(self, kept: Flags) -> Stream:
        return Stream(self.at[kept], self.patient[kept], self.measured[kept], self.lvl[kept], self.policy[kept])


def expected(workload: str, streams: Mapping[str, Stream]) -> dict[str, Outcome]:
    """The outcome for every reader of the workload; `streams` has those it needs by their names."""
    results = _RESULTS[known(workload)[:2]]
    return {reader.name: Outcome.of(results(reader, streams)) for reader in readers_of(workload)}


def _seen(reader: Reader, stream: Stream) -> Flags:
    permitted = set(reader.permitted)
    by_code = np.array([text in permitted for text in POLICIES])
    return by_code[stream.policy]


def _selection(reader: Reader, streams: Mapping[str, Stream]) -> list[Column]:
    hr = streams["hr"]
    if reader.above is None:
        raise ValueError("a selection is by a threshold")
    kept = hr[_seen(reader, hr) & (hr.measured > reader.above)]
    return [kept.patient, kept.measured]


def _pairs(reader: Reader, streams: Mapping[str, Stream]) -> list[Column]:
    """Pairs that a reader may see are pairs of tuples that the reader may see: the label of a pair is both labels."""
    hr, bp = (streams[name][_seen(reader, streams[name])] for name in ("hr", "bp"))
    # Patient and time as one number: tuples of one patient that are near in time are adjacent, and apart from other
    # patients.
    apart = int(max(hr.at.max(), bp.at.max())) - int(min(hr.at.min(), bp.at.min())) + 2 * NEAR_MICROS + 1
    first = min(hr.at.min(), bp.at.min())
    of_hr, of_bp = (side.patient.astype(np.int64) * apart + (side.at - first) for side in (hr, bp))
    order = np.argsort(of_bp, kind="stable")
    of_bp = of_bp[order]
    begin = np.searchsorted(of_bp, of_hr - NEAR_MICROS, "left")
    end = np.searchsorted(of_bp, of_hr + NEAR_MICROS, "right")
    count = end - begin
    left = np.repeat(np.arange(len(of_hr)), count)
    within = np.arange(len(left)) - np.repeat(np.cumsum(count) - count, count)
    right = order[np.repeat(begin, count) + within]
    return [hr.patient[left], hr.measured[left], bp.measured[right]]


def _averages(reader: Reader, streams: Mapping[str, Stream]) -> list[Column]:
    hr = streams["hr"]
    seen = hr[_seen(reader, hr)]
    levels, averages = [], []
    for level in range(LEVELS):
        values = seen.measured[seen.lvl == level].astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(values)])
        ends = np.arange(1, len(sums))
        begins = np.maximum(ends - LAST, 0)
        averages.append((sums[ends] - sums[begins]) / (ends - begins))
        levels.append(np.full(len(values), level))
    return [np.concatenate(levels), np.concatenate(averages)]


_RESULTS: Mapping[str, Callable[[Reader, Mapping[str, Stream]], list[Column]]] = {
    "W1": _selection,
    "W2": _selection,
    "W3": _pairs,
    "W4": _averages,
}
