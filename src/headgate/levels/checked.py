"""What a processor hands over is checked before anything is done with it: it may be wrong, or meant to harm.

INVARIANT: results of the processor of a level go to subscriptions of that level, whatever the processor says. The
labels that it claims can only restrict this further, and every label has at least the level of its query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headgate.egress.log_records import decode
from headgate.egress.version_results import check_one_each
from headgate.expressions.sql.types import ARROW
from headgate.labels import Label, Level
from headgate.levels.wire import Message
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.recovery.messages import LATE


class NotAsAgreed(Exception):
    """A processor has sent what no processor of ours sends."""


def results_in(message: Message, level: Level, snapshot: CatalogSnapshot) -> list[ResultBatch]:
    """The results of a message, as far as they are for subscriptions of this level. `snapshot` is that of the level."""
    try:
        found = [decode(part) for part in message.parts]
        checked = [x for batch in found for x in _checked(batch, level, snapshot)]
        check_one_each(checked)
        return checked
    except NotAsAgreed:
        raise
    except Exception as error:
        raise NotAsAgreed(type(error).__name__) from None


def _checked(batch: ResultBatch, level: Level, snapshot: CatalogSnapshot) -> Iterator[ResultBatch]:
    if batch.word and (len(batch) or batch.values):
        raise NotAsAgreed("a notice with results")
    if batch.outgoing is not None:
        if batch.outgoing.level != str(level) or not batch.word:
            raise NotAsAgreed("a recipient of another level")
        yield batch
        return
    query = snapshot.running.get(batch.query)
    names = tuple(x for x in batch.subscribers if (x, batch.query) in snapshot.clearances)
    if not names or (query is None and not batch.word):
        return  # they left meanwhile
    if batch.word or query is None:
        yield batch.to(names)
        return
    types = [ARROW[type_] for _, type_ in query.query.columns]
    if len(types) != len(batch.values) or not all(len(x) == len(batch) for x in batch.values):
        raise NotAsAgreed("columns that the query does not have")
    for column, type_ in zip(batch.values, types, strict=True):
        column.validate(full=True)
        if column.type != type_:
            column.cast(type_)  # raises if it is of another kind
    if len(batch) and not (int(batch.labels.min()) >= 0 and int(batch.labels.max()) < len(batch.kinds)):
        raise NotAsAgreed("a label that is not there")
    if len(batch) and not (int(batch.blocks.min()) >= 0 and int(batch.blocks.max()) < len(query.query.blocks)):
        raise NotAsAgreed("a block that is not there")
    least = Label(levels=frozenset({query.level}))
    kinds = tuple(snapshot.rules.combine(x, least) for x in batch.kinds)
    yield replace(batch, subscribers=names, kinds=kinds, places=None)


def late_in(message: Message, level: Level, levels: Mapping[str, Level]) -> list[RejectedRows]:
    """What owners are told of late tuples: by the processor of the stream's own level alone, because the owner is told
    at that level."""
    try:
        pairs: Sequence[Any] = message.facts["late"]
        known = [(stream, why) for stream, why in pairs if levels.get(stream) == level and _is_late(why)]
    except (TypeError, ValueError, KeyError):
        raise NotAsAgreed("what came late") from None
    return [RejectedRows(stream, why, [{}]) for stream, why in known]


def _is_late(why: object) -> bool:
    return isinstance(why, str) and why.startswith(LATE) and len(why) < len(LATE) + 40


def whole_number(value: object) -> int:
    if type(value) is not int or not -1 <= value < np.iinfo(np.int64).max:
        raise NotAsAgreed("a number that is none")
    return value
