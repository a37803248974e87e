"""What a version of the state holds of queries with deadlines: their windows, the tuples that wait, the decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from headgate.columns.sorting import distinct
from headgate.execution.partitions import PartitionName
from headgate.labels import Label
from headgate.recovery.live_query import Key, LiveQuery, WaitingTuples, WorkPiece, nothing, of_table
from headgate.recovery.state import StateFolder

PREFIX = "deadline\x1d"
"""Of the names of partition groups that belong to queries with deadlines."""
Partitions = dict[PartitionName, Mapping[str, Any]]


class OwnLabels:
    """The label files of one query, beside those of others in the same version."""

    def __init__(self, states: StateFolder, key: Key) -> None:
        self._states, self._own = states, hashlib.sha256(repr(key).encode()).hexdigest()[:16]

    def name(self, file: str) -> str:
        return f"{file}-{self._own}"

    def save_labels(self, file: str, labels: Mapping[int, Label]) -> None:
        self._states.save_labels(self.name(file), labels)

    def labels(self, file: str) -> dict[int, Label]:
        return self._states.labels(self.name(file))


def group_prefix(key: Key) -> str:
    return f"{PREFIX}{key[0]}\x1d{key[1]}\x1d"


class LiveStates:
    """Saves queries with deadlines; what has not changed since the last version is not written again."""

    def __init__(self, states: StateFolder) -> None:
        self._states = states
        self._known: dict[Key, tuple[Partitions, dict[str, Any]]] = {}

    def save(self, queries: Mapping[Key, LiveQuery], seed: int, version: int) -> tuple[Partitions, dict[str, Any]]:
        """The records of partitions, and the rest as plain values."""
        self._known = {
            key: self._saved(live, version) if live.changed or key not in self._known else self._known[key]
            for key, live in queries.items()
        }
        partitions = {name: x for own, _ in self._known.values() for name, x in own.items()}
        plain = [rest for _, rest in self._known.values()]
        files = sorted({x[1] for rest in plain for x in rest["waiting"] if x[1]})
        labels = [OwnLabels(self._states, tuple(x["key"])).name(file) for x in plain for file in x["labels"]["files"]]
        return partitions, {"seed": seed, "files": files, "labels": labels, "queries": plain} if plain else {}

    def _saved(self, live: LiveQuery, version: int) -> tuple[Partitions, dict[str, Any]]:
        live.changed = False
        waiting = {x.number: x for x in (*live.inbox, *(piece.waiting for piece in live.decided.values()))}
        if live.graph.dictionary.is_forgetting_due:
            tuples = (*(x.tuples for x in waiting.values()), *live.tables.values())
            live.graph.forget_labels({number for x in tuples for number in distinct(x.labels).tolist()})
        own, chain = live.graph.save(self._states.write)
        prefix = group_prefix(live.key)
        rest = {
            "key": list(live.key),
            "meaning": live.query.meaning,
            "chain": chain,
            "labels": live.graph.dictionary.save(OwnLabels(self._states, live.key), version),
            "version": live.version,
            "said": live.said,
            "batches": live.batches,
            "told": [live.leaves_out, live.left_out],
            "waiting": [x.plain() for x in waiting.values()],
            "inbox": [x.number for x in live.inbox],
            "decided": [[x.waiting.number, x.start, x.stop, x.version] for x in live.decided.values()],
        }
        return {(prefix + group, number): x for (group, number), x in own.items()}, rest

    def restore(self, live: LiveQuery, plain: Mapping[str, Any], partitions: Mapping[PartitionName, Any]) -> None:
        """Continues a query that has met its snapshot where it was; pieces that were decided have the numbers below
        zero."""
        prefix = group_prefix(live.key)
        own = {(group.removeprefix(prefix), x): y for (group, x), y in partitions.items() if group.startswith(prefix)}
        live.graph.dictionary.restore(OwnLabels(self._states, live.key), plain["labels"])
        live.restore(plain["version"], plain.get("said", plain["version"]), self._states.stored(own), plain["chain"])
        live.batches = plain["batches"]
        live.leaves_out, live.left_out = plain["told"]
        waiting = {
            number: WaitingTuples(number, file, self._tuples(stream, file), came, floors)
            for number, file, stream, came, floors in plain["waiting"]
        }
        live.inbox = [waiting[number] for number in plain["inbox"]]
        live.decided = {
            -1 - place: WorkPiece(waiting[number], start, stop, version, 0)
            for place, (number, start, stop, version) in enumerate(plain["decided"])
        }

    def _tuples(self, stream: str, file: str) -> Any:
        return of_table(stream, self._states.read(file)) if file else nothing(stream)
