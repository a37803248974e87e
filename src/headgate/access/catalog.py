"""The catalog as each principal sees it (the user abstraction layer of paper 000, section 2).

Names belong to their owners (`joe.in1`), so nobody can find out by creating a name whether somebody else has it. A
lookup uses the indexes of the caller's own objects and roles, never those of others. INVARIANT: a hidden object and one
that does not exist take the same steps and give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.access import rows as r
from headgate.access.authorizer import SYSTEM_ID, Authorizer, Principal
from headgate.access.permissions import Kind
from headgate.access.state import State
from headgate.errors import Conflict, NotFound, StoreError
from headgate.lexing import quote


class Catalog:
    def __init__(self, state: State, authorizer: Authorizer) -> None:
        self._state = state
        self._authorizer = authorizer

    @property
    def system(self) -> r.Object:
        found = self._state.objects.get(SYSTEM_ID)
        if found is None:
            raise NotFound("this store is empty", hint="run `headgate init` first")
        return found

    def find(self, principal: Principal, kind: Kind, name: str, owner: str | None = None) -> r.Object:
        """The object this principal means by a name; NotFound for an object that it may not see."""
        if kind == Kind.SYSTEM:
            return self.system
        found = {thing.id: thing for thing in self._candidates(principal, kind, name)}
        if owner is not None:
            found = {thing.id: thing for thing in found.values() if thing.owner == owner}
        if len(found) > 1:
            found = self._closest(principal, found)
        if not found:
            full = f"{quote(owner)}.{quote(name)}" if owner else quote(name)
            raise NotFound(f"there is no {kind.lower()} {full}")
        if len(found) > 1:
            owners = sorted(f"{quote(thing.owner)}.{quote(name)}" for thing in found.values())
            raise Conflict(f"{quote(name)} is ambiguous: {', '.join(owners)}", hint="write the owner before the name")
        return next(iter(found.values()))

    def _candidates(self, principal: Principal, kind: Kind, name: str) -> Iterable[r.Object]:
        """Own objects and those that active roles may view, at levels that may be read."""
        objects, held = self._state.objects, self._authorizer.held
        owner, what = "" if kind == Kind.OPERATOR else principal.user, kind.value
        roles = self._authorizer.effective(principal.roles)
        for level in self._authorizer.visible_levels(principal):
            yield from objects.peek("owned_name", (owner, what, name, level))
            for role in roles:
                for grant in held("viewed_name", (role, what, name, level)):
                    yield self._of(grant)

    def _of(self, grant: r.Grant) -> r.Object:
        found = self._state.objects.get(grant.object)
        if found is None:
            raise StoreError("a grant has no object", hint="restore the store from a backup")
        return found

    def _closest(self, principal: Principal, found: dict[int, r.Object]) -> dict[int, r.Object]:
        """Own objects before those of others; of one owner's objects, those of the principal's level, otherwise the
        highest."""
        found = {i: thing for i, thing in found.items() if thing.owner == principal.user} or found
        if len({thing.owner for thing in found.values()}) > 1:
            return found
        here = {i: thing for i, thing in found.items() if thing.level == str(principal.level)}
        return here or {
            i: thing for i, thing in found.items() if not any(self._above(x, thing) for x in found.values())
        }

    def _above(self, high: r.Object, low: r.Object) -> bool:
        level = self._authorizer.level
        return high.level != low.level and self._authorizer.order.dominates(level(high.level), level(low.level))

    def visible(self, principal: Principal, *kinds: Kind) -> list[r.Object]:
        """All objects that this principal may see, in a fixed order."""
        seen: dict[int, r.Object] = {}
        roles = self._authorizer.effective(principal.roles)
        for level in self._authorizer.visible_levels(principal):
            seen |= {thing.id: thing for thing in self._state.objects.peek("owner_level", (principal.user, level))}
            for role in roles:
                seen |= {g.object: self._of(g) for g in self._authorizer.held("views", (role, level))}
        return sorted((t for t in seen.values() if t.kind in kinds), key=lambda t: (t.kind, t.name, t.owner, t.level))

    def operators(self) -> list[r.Object]:
        return sorted(self._state.objects.peek("kind", Kind.OPERATOR.value), key=lambda t: t.name)
