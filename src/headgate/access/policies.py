"""What policies grant at this moment: rules and signed statements in the store become roles, grants and levels.

The store keeps what was said, never what follows from it: each process derives that itself, so a statement that is
taken back, a key that is dropped or a lifetime that has passed is gone in the very next decision, in every process.
INVARIANT: a right counts only while the policy's owner could grant it, judged by the rights in the store alone; so no
policy gives more than its owner has, and none builds on what another policy gives. What fails gives nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headgate.access import rows as r
from headgate.access.authorizer import Authorizer
from headgate.access.policy_rights import JUDGED_BY, Basis, Judge
from headgate.access.state import RowTable, State, grant_table
from headgate.clock import Clock
from headgate.errors import HeadgateError
from headgate.labels import Level
from headgate.sendlog.values import Row, canonical

if TYPE_CHECKING:
    from headgate.sendlog.policy import PolicyEngine, Said, StatementPredicate

_DEPENDS = ("policies", "policy_statements", *JUDGED_BY)
_NEVER = float("inf")


@dataclass
class _LoadedPolicy:
    """A policy with its engine, or with the reason why it has none."""

    policy: r.Policy
    engine: PolicyEngine | None
    fault: str = ""


class Policies:
    """INVARIANT: what can be read here is of this moment: each way in begins with `catch_up`."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self.stored = Authorizer(state)
        """What the store alone gives: by this owners of policies are judged."""
        self._judges = Judge(state, self.stored)
        self._engines: dict[str, _LoadedPolicy] = {}
        self._seen: tuple[int, ...] = ()
        self._until = _NEVER
        self._since = 0.0
        self._version = 0
        self._roles: dict[str, dict[str, Basis]] = {}
        self._levels: dict[str, dict[Level, Basis]] = {}
        self._grants: RowTable[r.Grant] = grant_table(lambda *_: None)
        self._current: dict[r.Key, r.Grant] = {}
        self._bases: dict[r.Key, Basis] = {}

    # What holds now -------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Counts changes of what policies give."""
        self.catch_up()
        return self._version

    def roles(self, user: str) -> Mapping[str, Basis]:
        self.catch_up()
        return self._roles.get(user, {})

    def levels(self, user: str) -> Mapping[Level, Basis]:
        self.catch_up()
        return self._levels.get(user, {})

    def grants(self, index: str, key: object) -> Collection[r.Grant]:
        self.catch_up()
        return self._grants.peek(index, key)

    def all_grants(self) -> Iterable[r.Grant]:
        self.catch_up()
        return self._grants

    def basis(self, grant: r.Grant) -> Basis | None:
        """What a grant of a policy rests on; None for a grant of the store."""
        found = self._bases.get(grant.key)
        return found if found is not None and self._grants.get(*grant.key) is grant else None

    def bases(self) -> list[Basis]:
        """All that counts."""
        self.catch_up()
        roles = (basis for one in self._roles.values() for basis in one.values())
        levels = (basis for one in self._levels.values() for basis in one.values())
        return sorted({*self._bases.values(), *roles, *levels})

    def fault(self, policy: str) -> str:
        """Why a policy gives nothing at all."""
        self.catch_up()
        found = self._engines.get(policy)
        return found.fault if found is not None else ""

    def predicates(self, policy: str) -> Mapping[str, StatementPredicate]:
        """The statements that a policy's rules read."""
        self.catch_up()
        found = self._engines.get(policy)
        return found.engine.rules.predicates if found is not None and found.engine is not None else {}

    def derived(self, policy: str) -> int:
        """How many rights a policy derives, whether they count or not."""
        self.catch_up()
        found = self._engines.get(policy)
        return len(found.engine.rights()) if found is not None and found.engine is not None else 0

    def engine(self, policy: str) -> PolicyEngine | None:
        self.catch_up()
        found = self._engines.get(policy)
        return found.engine if found is not None else None

    def until(self, statement: r.PolicyStatement) -> float:
        """When a statement ends."""
        wanted = self.predicates(statement.policy).get(statement.predicate)
        return _NEVER if wanted is None or wanted.lifetime is None else statement.accepted + wanted.lifetime

    # Following the store --------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Derives anew if anything has changed that rights depend on, or a lifetime has passed."""
        if not self._engines and not len(self._state.policies):
            return
        changed = self._state.changed
        seen = tuple([changed[table] for table in _DEPENDS])
        if seen == self._seen and self._since <= (now := self._clock.now()) < self._until:
            return
        now = self._clock.now()
        self._until = _NEVER
        try:
            self._derive(now)
            self._judge()
        except BaseException:  # what is not known to be right must not count
            self._put({}, {}, {})
            raise
        self._seen, self._since = seen, now

    def _derive(self, now: float) -> None:
        for name in [name for name, one in self._engines.items() if self._state.policies.get(name) is not one.policy]:
            del self._engines[name]
        for policy in self._state.policies:
            found = self._engines.get(policy.name)
            if found is None:
                found = self._engines[policy.name] = _started(policy)
            if found.engine is None:
                continue
            try:
                found.engine.hold(self._in_force(policy, found.engine.rules.predicates, now))
                found.fault = ""
            except HeadgateError as error:
                found.fault = error.message
            except Exception as error:  # whatever it is, this policy gives nothing
                found.fault = f"it cannot be evaluated ({type(error).__name__})"

    def _in_force(self, policy: r.Policy, wanted: Mapping[str, StatementPredicate], now: float) -> dict[str, Said]:
        """Statements of users who are not locked, signed by a key they still have, whose lifetime has not passed."""
        from headgate.sendlog.policy import Said

        found: dict[str, Said] = {}
        for x in self._state.policy_statements.peek("policy", policy.name):
            speaker, want = self._state.users.get(x.speaker), wanted.get(x.predicate)
            if speaker is None or speaker.locked or x.signer not in speaker.keys or want is None:
                continue
            if want.lifetime is not None:
                if not x.accepted <= now < x.accepted + want.lifetime:
                    continue
                self._until = min(self._until, x.accepted + want.lifetime)
            found[x.digest] = Said(x.speaker, x.predicate, arguments_of(x))
        return found

    # What counts ------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        roles: dict[str, dict[str, Basis]] = {}
        levels: dict[str, dict[Level, Basis]] = {}
        grants: dict[r.Key, tuple[r.Grant, Basis]] = {}
        self._judges.begin()
        for fact in self._facts():
            right = self._judges.right(self._engines[fact.policy].policy, fact)
            if right is None:
                continue
            if right.grant is not None:
                grants.setdefault(right.grant.key, (right.grant, right.basis))
            elif right.level is not None:
                levels.setdefault(right.user, {}).setdefault(right.level, right.basis)
            else:
                roles.setdefault(right.user, {}).setdefault(right.role, right.basis)
        apart = {user: found for user, found in roles.items() if self._judges.apart(user, frozenset(found))}
        self._put(apart, levels, grants)

    def _facts(self) -> list[Basis]:
        """All that is derived and made of texts, in a fixed order."""
        found = []
        for name, one in self._engines.items():
            if one.engine is not None and not one.fault:
                for right, row in one.engine.rights():
                    texts = tuple([x for x in row if isinstance(x, str)])
                    if len(texts) == len(row):
                        found.append(Basis(name, right, texts))
        return sorted(found)

    def _put(
        self,
        roles: dict[str, dict[str, Basis]],
        levels: dict[str, dict[Level, Basis]],
        grants: dict[r.Key, tuple[r.Grant, Basis]],
    ) -> None:
        bases = {key: basis for key, (_, basis) in grants.items()}
        current, new = self._current, {key: grant for key, (grant, _) in grants.items()}
        if (roles, levels, bases, new) == (self._roles, self._levels, self._bases, current):
            return
        for key in current.keys() - new.keys():
            self._grants.restore(key, None)
        for key, grant in new.items():
            if current.get(key) != grant:
                self._grants.restore(key, grant)
        self._roles, self._levels, self._bases, self._current = roles, levels, bases, new
        self._version += 1

    def counted(self) -> Counter[str]:
        """How many rights of each policy count."""
        return Counter(basis.policy for basis in self.bases())


def arguments_of(statement: r.PolicyStatement) -> Row:
    return _row(statement.arguments)


@lru_cache(maxsize=100_000)
def _row(text: str) -> Row:
    found = canonical(json.loads(text))
    return found if isinstance(found, tuple) else ()


def _started(policy: r.Policy) -> _LoadedPolicy:
    from headgate.sendlog.policy import PolicyEngine, read_rules  # a store without policies starts without it

    try:
        return _LoadedPolicy(policy, PolicyEngine(policy.name, read_rules(policy.rules)))
    except Exception as error:  # rules of another version, or a damaged store
        return _LoadedPolicy(policy, None, f"its rules cannot be read ({type(error).__name__})")
