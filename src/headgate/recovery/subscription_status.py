"""Notices about subscriptions: that one is suspended, waits, continues, has ended or is for another query now. Its
subscriber, the owner of its stream and the operator are notified once for each change, also of changes made while no
engine ran. That one nears a limit is for the owner and the operator alone: they can do something about it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headgate.model.results import Recipient, ResultBatch, notice
from headgate.model.snapshot import CatalogSnapshot, SubscriptionStatus
from headgate.recovery.state import outgoing_of, plain_outgoing

DROPPED = "what it was subscribed to was dropped"
UNSUBSCRIBED = "the subscription was ended"
AGAIN = "results come again"
_YOURS = "your rights "
"""Of whom a reason tells the subscriber; others are told of the subscriber."""
CHANGED = "what it is subscribed to was redefined; results from here on are those of the new definition"

MOST_NOTICES = 1000
"""Kept for the operator until they are read; of more than these only the last."""


@dataclass(frozen=True)
class Notice:
    """One change of one subscription, in words."""

    outgoing: Recipient
    word: str
    why: str

    def __str__(self) -> str:
        is_ = {"suspended": "is suspended", "warned": "nears a limit"}.get(self.word, self.word)
        user = self.outgoing.user
        why = self.why.replace(_YOURS, f"the rights of {user} ")
        return f"the subscription of {user} to {self.outgoing.stream} {is_}: {why}"


class SubscriptionStatuses:
    """The status of each subscription when it was last examined."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], SubscriptionStatus] = {}
        self._new: list[SubscriptionStatus] = []
        self._for_operator: deque[Notice] = deque(maxlen=MOST_NOTICES)
        self._plain: list[list[Any]] | None = None
        """As `plain` gave it, as long as nothing changes: every version stores it."""

    def update(self, snapshot: CatalogSnapshot) -> None:
        """Records what has changed since the last snapshot."""
        now = {(x.name, x.query): x for x in snapshot.standings}
        for key, before in self._known.items():
            if key not in now and before.word not in ("suspended", "ended"):  # without rights: no notice
                why = UNSUBSCRIBED if before.stream in snapshot.streams else DROPPED
                self._new.append(replace(before, word="ended", why=why))
        for key, standing in now.items():
            known = self._known.get(key)
            if standing.word and (known is None or (known.word, known.why) != (standing.word, standing.why)):
                self._new.append(standing)
            elif not standing.word and known is not None and known.revision not in (None, standing.revision):
                self._new.append(replace(standing, word="changed", why=CHANGED))
            elif not standing.word and known is not None and known.word:
                self._new.append(replace(standing, word="continues", why=AGAIN))
            if standing.word and known is not None:  # it is told of a change when it receives results again
                now[key] = replace(standing, revision=known.revision)
        self._known, self._plain = now, None

    @property
    def pending(self) -> bool:
        return bool(self._new)

    def notice(
        self, results: Iterable[ResultBatch] = (), warned: Iterable[tuple[str, str, str]] = ()
    ) -> list[ResultBatch]:
        """The new notices for subscribers and owners; `for_operator` gives those for the operator. When a query ends by
        itself, its subscribers find the notice among these results, and the operator finds it in the counts. `warned`
        are the subscribers, by name and query, whose query nears a limit, each with a warning. Owners do not learn
        which subscriber it is: only administrators see users."""
        new, self._new = self._new, []
        result_batches = [notice((x.name,), x.query, outgoing=x.outgoing, **{x.word: x.why}) for x in new]
        by_itself = [
            replace(self._known[name, x.query], word="ended", why=x.ended)
            for x in results
            for name in (x.subscribers if x.ended else ())
            if (name, x.query) in self._known
        ]
        near = [
            replace(self._known[name, query], word="warned", why=why)
            for name, query, why in warned
            if (name, query) in self._known
        ]
        told = [x for x in (*new, *by_itself, *near) if x.owner and x.word != "changed"]  # the owner has changed it
        owners = {(x.owner, x.outgoing.level, x.outgoing.stream, x.word, x.why): x for x in told}
        for (owner, level, stream, word, why), x in owners.items():
            out = Recipient(owner, level, f"{stream}.subscribers", ())
            told_why = f"for a subscriber: {why.replace(_YOURS, 'its rights ')}"
            result_batches.append(notice((x.name,), x.query, outgoing=out, **{word: told_why}))
        self._for_operator += [Notice(x.outgoing, x.word, x.why) for x in (*new, *near)]
        return result_batches

    def for_operator(self) -> list[Notice]:
        """The notices since the last call."""
        found = list(self._for_operator)
        self._for_operator.clear()
        return found

    def plain(self) -> list[list[Any]]:
        if self._plain is None:
            self._plain = [
                [x.name, x.query, x.stream, plain_outgoing(x.outgoing), x.owner, x.word, x.why, x.revision]
                for x in self._known.values()
            ]
        return self._plain

    def restore(self, plain: Sequence[Sequence[Any]]) -> None:
        self._plain = None
        self._known = {
            (name, query): SubscriptionStatus(name, query, stream, outgoing_of(out), owner, word, why, *revision)
            for name, query, stream, out, owner, word, why, *revision in plain
        }
