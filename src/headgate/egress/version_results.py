"""What one version has for a reader (a subscriber and a query): all results in one batch, notices before and after it.

Sinks rely on it: a result is known by its place among them, for those who go on reading and for what is delivered
again. Notices have places too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.lexing import quote
from headgate.model.results import ResultBatch

_BEFORE, _AFTER = -(1 << 62), 1 << 62
"""The places of a reader's first notice before, and its first after, the results of a version; the next ones follow.
INVARIANT: no two notices for one reader have one place, so whoever goes on after a notice gets the next one."""


def joined(results: Sequence[ResultBatch]) -> list[ResultBatch]:
    """The same results, those of each reader in one batch, in order; all batches of a query have the same columns.
    Batches stand where the last of their results did."""
    parts: dict[tuple[str, str], tuple[int, ...]] = {}
    for number, batch in enumerate(results):
        for key in _readers(batch):
            parts[key] = (*parts.get(key, ()), number)
    if all(len(x) == 1 for x in parts.values()):
        return list(results)
    readers: dict[tuple[int, ...], list[str]] = {}
    for (name, _), numbers in parts.items():
        readers.setdefault(numbers, []).append(name)
    found: list[list[ResultBatch]] = [[x] if x.word else [] for x in results]
    for numbers, names in readers.items():
        found[numbers[-1]].append(_concatenated([results[x] for x in numbers], tuple(names)))
    return [x for some in found for x in some]


def check_one_each(results: Sequence[ResultBatch]) -> None:
    """INVARIANT: no reader has two batches of results in a version."""
    readers = [key for batch in results for key in _readers(batch)]
    if len(set(readers)) < len(readers):
        raise RuntimeError("a version has two batches of results for one reader")


def placed(results: Sequence[ResultBatch]) -> list[ResultBatch]:
    """The same results; notices have places, and a batch for each group of readers for whom the place is the same.
    Places are given before rights are applied, and saved with the version: they stay the same when it is delivered
    again, although rights may leave less of it by then. A notice that has a place keeps it."""
    if all(x.place is not None for x in results if x.word):
        return list(results)
    found, following = list[ResultBatch](), dict[tuple[str, str], int]()
    for batch in results:
        for key in _readers(batch):
            following[key] = max(_AFTER, following.get(key, _AFTER))
        if not batch.word or batch.place is not None or not is_for_subscriber(batch):
            found.append(batch)
            continue
        together: dict[int, list[str]] = {}
        for name in batch.subscribers:
            place = following.get((name, batch.query), _BEFORE)
            following[name, batch.query] = place + 1
            together.setdefault(place, []).append(name)
        found += [replace(batch, subscribers=tuple(names), place=place) for place, names in together.items()]
    return found


def is_for_subscriber(batch: ResultBatch) -> bool:
    """Whether a batch is for its subscribers; a notice can be for the owner of the stream instead, who must not be
    taken for the subscriber that it is about."""
    out = batch.outgoing
    return out is None or all(x.startswith(f"{quote(out.user)}@{out.level}#") for x in batch.subscribers)


def _readers(batch: ResultBatch) -> list[tuple[str, str]]:
    return [] if batch.word else [(name, batch.query) for name in batch.subscribers]


def _concatenated(parts: Sequence[ResultBatch], subscribers: tuple[str, ...]) -> ResultBatch:
    if len(parts) == 1:
        return parts[0].to(subscribers)
    kinds = tuple(dict.fromkeys(kind for x in parts for kind in x.kinds))
    numbers = {kind: number for number, kind in enumerate(kinds)}
    own = [np.array([numbers[kind] for kind in x.kinds], np.int64) for x in parts]
    return ResultBatch(
        subscribers,
        parts[0].query,
        np.concatenate([x.blocks for x in parts]),
        np.concatenate([x.times for x in parts]),
        tuple(pa.concat_arrays(x) for x in zip(*(x.values for x in parts), strict=True)),
        np.concatenate([numbers_of[x.labels] for numbers_of, x in zip(own, parts, strict=True)]),
        kinds,
    )
