"""Isolation of faults: every subscriber is served except those whose query cannot be run.

Queries that share an engine share computation, so a fault in one of them surfaces in a step that was taken for all. The
step is then tried for fewer subscribers, by halving, until those for whom it fails are known: their queries end, and no
other subscriber notices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from headgate.errors import StoreError
from headgate.labels import Clearance
from headgate.logs import failure
from headgate.model.results import ResultBatch, notice
from headgate.model.snapshot import CatalogSnapshot

CANNOT = "it cannot be run"
"""Followed by the type of the fault, not by its text, which may hold values of tuples."""
MOST_TRIES = 100
"""All subscribers wait during the tries: those still in doubt after so many are left out."""

Key = tuple[str, str]
"""A subscriber and a query."""
Part = TypeVar("Part")
Done = TypeVar("Done")


class Served:
    """`snapshot` is the catalog snapshot restricted to the subscribers who are served."""

    def __init__(self) -> None:
        self.snapshot = CatalogSnapshot()
        self._all = CatalogSnapshot()
        self._barred: dict[Key, str] = {}
        """Subscribers who are no longer served, and why."""
        self._news: list[ResultBatch] = []

    def admit(self, snapshot: CatalogSnapshot) -> None:
        """Takes a new catalog snapshot."""
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
        """Ends the query for these subscribers, and notifies those of them who may see anything there."""
        why = f"{CANNOT} ({type(fault).__name__})"
        for key in sorted(keys):
            clearance, running = self._all.clearances[key], self._all.running[key[1]]
            self._barred[key] = why
            if clearance is not None and self._all.rules.order.dominates(clearance.level, running.level):
                self._news.append(notice(key[:1], key[1], ended=why))
        self._narrow()

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    def news(self) -> list[ResultBatch]:
        """Notices for subscribers whose query ended; each is returned once."""
        news, self._news = self._news, []
        return news

    def isolated(self, act: Callable[[CatalogSnapshot], Done], again: Callable[[CatalogSnapshot], Done]) -> Done:
        """Runs `act` for all subscribers who are served. If that fails, runs `again` for all except those for whom it
        fails, and bars these. A step that fails even without any query is no subscriber's fault, and is raised; so is
        state that cannot be read."""
        snapshot = self.snapshot
        try:
            return act(snapshot)
        except StoreError:
            raise
        except Exception as error:
            fault = error
            failure("pipeline", "a step failed; finding for whom", error)
        done = list[Done]()

        def works(keys: Collection[Key]) -> bool:
            try:
                done[:] = [again(snapshot.only(keys))]
            except StoreError:
                raise
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

    # Saved state ------------------------------------------------------------------------------------------------------

    def plain(self) -> list[list[str]]:
        return [[*key, why] for key, why in self._barred.items()]

    def restore(self, plain: Sequence[Any]) -> None:
        self._barred = {(name, query): why for name, query, why in plain}


def _sound(snapshot: CatalogSnapshot, works: Callable[[Collection[Key]], bool]) -> list[Key]:
    """The subscribers for whom it works: a step may fail with a query, or only for some of its subscribers."""
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
    """The parts with which it works, all together; where some exclude each other, the first. Finds one faulty part
    among many in few tries."""
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
