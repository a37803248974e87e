"""Messages of the pipeline: to subscribers whose query waits or ends, and to the owners of streams, who find them among
their rejected rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headgate.cql.deadlines import FULL, Version
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot

WAITS = "an input stream is unavailable; the query continues when it can be read"
CONTINUES = "the input stream can be read again"
UNREAD = "an input stream could not be read to its end"
NO_TABLE = "a table that the query reads is unavailable"
"""What subscribers are told. Which stream it is, and why, is only for its owner and the operator."""
LEFT_OUT = "from here on tuples are left out: there is more work than time; windows are without them"
ALL_TAKEN = "from here on all tuples are taken; windows that were open may be without some"
"""Not how many: tuples that a reader may not see count too."""
LATE = "their time had passed when they came, by more than the lateness of the stream; windows are without them"


def of_version(version: Version) -> str:
    """The notice that results are of another QoS version."""
    if version == FULL:
        return "results from here on are of the full version"
    return f"results from here on are of version {version}: there is more work than time"


def limited(found: Sequence[ResultBatch], reason: str, concerned: Collection[tuple[str, str]]) -> list[ResultBatch]:
    """Limits the notice of this reason to the concerned subscribers (by subscriber and query)."""
    told = [x if x.ended != reason else x.to(_of(x, concerned)) for x in found]
    return [x for x in told if x.subscribers]


def concerned_by(snapshot: CatalogSnapshot, unread: Collection[str]) -> set[tuple[str, str]]:
    return {key for stream in unread for key in snapshot.concerned(stream)}


def _of(result_batch: ResultBatch, chosen: Collection[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(name for name in result_batch.subscribers if (name, result_batch.query) in chosen)


def note(stream: str, text: str) -> RejectedRows:
    """A message for the owner of a stream, among the rejected rows."""
    return RejectedRows(stream, text, [{}])
