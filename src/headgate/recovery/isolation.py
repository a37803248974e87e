"""Who is served: all who want something, but for those for whom that cannot be done.

Queries that share an engine share what they compute, so a fault in one of them, whatever it is, comes up in a step that
was taken for all. Then the step is tried for fewer, by halving, until it is known for whom it fails: for these it ends,
and nobody else notices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from headgate.labels import Clearance
from headgate.model.results import ResultBatch, notice
from headgate.model.snapshot import CatalogSnapshot

CANNOT = "it cannot be run"
"""With the kind of the fault, and not its text, which may hold values of tuples."""
MOST_TRIES = 100
"""Everybody waits meanwhile: whoever is still in doubt after so many is left out."""

Key = tuple[str, str]
"""A subscriber and a query."""
Part = TypeVar("Part")
Done = TypeVar("Done")


class Served:
    """`demand` is what is wanted by those who are served."""

    def __init__(self) -> None:
        self.snapshot = CatalogSnapshot()
        self._all = CatalogSnapshot()
        self._barred: dict[Key, str] = {}
        """Who is served no more, and why."""
        self._news: list[ResultBatch] = []

    def admit(self, snapshot: CatalogSnapshot) -> None:
        """This is wanted now."""
        self._all = snapshot
        self._barred = {key: why for key, why in self._barred.items() if key in snapshot.clearances}
        for key in sorted(snapshot.unfit.keys() - self._barred.keys()):
            self._barred[key] = snapshot.unfit[key]
            self._news.append(notice(key[:1], key[1], ended=snapshot.unfit[key]))
        self._narrow()

    def _narrow(self) -> None:
        keys = self._all.clearances.keys()
        self.snapshot = self._all.only(keys - self._barred.keys()) if self._barred else self._all

    def bar(self, keys: Collection[Key], fault: Exception) -> None:
        """For these it ends, and those of them who may see anything there are told so."""
        why = f"{CANNOT} ({type(fault).__name__})"
        for key in sorted(keys):
            clearance, running = self._all.clearances[key], self._all.running[key[1]]
            self._barred[key] = why
            if clearance is not None and self._all.rules.order.dominates(clearance.level, running.level):
                self._news.append(notice(key[:1], key[1], ended=why))
        self._narrow()

    def has_news(self, snapshot: CatalogSnapshot) -> bool:
        return bool(self._news or snapshot.unfit.keys() - self._barred.keys())

    def news(self) -> list[ResultBatch]:
        """What those are told for whom it ended; once."""
        news, self._news = self._news, []
        return news

    def isolated(self, act: Callable[[CatalogSnapshot], Done], again: Callable[[CatalogSnapshot], Done]) -> Done:
        """Does something for all who are served; if that fails, `again` for all but those for whom it fails, whom it
        bars. What fails with no query at all is nobody's fault here."""
        snapshot = self.snapshot
        try:
            return act(snapshot)
        except Exception as error:
            fault = error
        done = list[Done]()

        def works(keys: Collection[Key]) -> bool:
            try:
                done[:] = [again(snapshot.only(keys))]
            except Exception:
                return False
            return True

        if not works(()):
            raise fault
        kept = _sound(snapshot, works)
        if not works(kept):
            raise fault
        self.bar(snapshot.clearances.keys() - set(kept), fault)
        return done[0]

    # To go on later ---------------------------------------------------------------------------------------------------

    def plain(self) -> list[list[str]]:
        return [[*key, why] for key, why in self._barred.items()]

    def restore(self, plain: Sequence[Any]) -> None:
        self._barred = {(name, query): why for name, query, why in plain}


def _sound(snapshot: CatalogSnapshot, works: Callable[[Collection[Key]], bool]) -> list[Key]:
    """All for whom it works: it may fail with a query, or only for some who look at it."""
    queries: dict[str, list[Key]] = {}
    for x in snapshot.subscribers:
        queries.setdefault(x.query, []).append((x.name, x.query))
    groups = without_faulty(list(queries.values()), lambda some: works([key for group in some for key in group]))
    kept = [key for group in groups for key in group]
    for group in (group for group in queries.values() if group not in groups):
        alike: dict[Clearance | None, list[Key]] = {}
        for key in group:
            alike.setdefault(snapshot.clearances[key], []).append(key)
        if len(alike) > 1:
            before = tuple(kept)
            found = without_faulty(
                list(alike.values()),
                lambda some, before=before: works([*before, *(key for x in some for key in x)]),  # type: ignore[misc]
            )
            kept += [key for x in found for key in x]
    return kept


def without_faulty(parts: Sequence[Part], works: Callable[[Sequence[Part]], bool]) -> list[Part]:
    """Those with which it works, all together; where some do not go together, the first. One among many is found by few
    tries."""
    left = MOST_TRIES

    def sound(kept: list[Part], some: Sequence[Part]) -> list[Part]:
        nonlocal left
        if not some or not left:
            return kept
        left -= 1
        if works([*kept, *some]):
            return [*kept, *some]
        if len(some) == 1:
            return kept
        half = len(some) // 2
        return sound(sound(kept, some[:half]), some[half:])

    return sound([], parts)
