"""One request of one principal: what handlers of statements work with, and the record of its decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

from headgate.access import objects
from headgate.access import rows as r
from headgate.access.audit import AuditRecord
from headgate.access.authorizer import Authorizer, Principal, known_level, named, shown
from headgate.access.catalog import Catalog
from headgate.access.definitions import Definition
from headgate.access.duties import Duties
from headgate.access.evidence import NAMED, digest, proof_text
from headgate.access.passwords import Passwords
from headgate.access.permissions import Kind, Permission
from headgate.access.policies import Policies
from headgate.access.policy_rights import Basis
from headgate.access.sessions import NOBODY, Sessions
from headgate.access.state import State
from headgate.access.subscriptions import Subscriptions
from headgate.cql.names import Limit, Name, Target
from headgate.errors import AccessDenied, Conflict, HeadgateError, LabelError, NotFound
from headgate.labels import Label, Level
from headgate.labels.text import MAX_TEXT
from headgate.lexing import quote

if TYPE_CHECKING:
    from headgate.access.running import Running
    from headgate.plan.analysis import LiveEngine


@dataclass(frozen=True)
class Result:
    """The answer to a statement: a text or a table, possibly with a picture."""

    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    draw: Callable[[], str] = field(default=str, compare=False)

    @property
    def picture(self) -> str:
        """An SVG, drawn when somebody asks for it: drawing takes longer than everything else."""
        return self.draw()

    def finished(self) -> Result:
        return self


@dataclass(frozen=True)
class Unfinished(Result):
    """An answer whose content is fixed but slow to write: it is written after the lock is released. `write` uses values
    only, nothing that may change meanwhile; only EXPLAIN ANALYZE asks the engine for numbers then."""

    write: Callable[[], Result] = field(kw_only=True)

    def finished(self) -> Result:
        return self.write()


MOST_HASHES = 3
MOST_GIVEN = 1000


class Work(Protocol):
    """What the running transaction offers (see store.Transaction)."""

    def new_object_id(self) -> int: ...

    def audit_count(self) -> int: ...

    def keep_proof(self, digest: str, content: str) -> None: ...

    def proof(self, prefix: str) -> list[tuple[str, str]]: ...

    def audit_levels(self) -> list[str]: ...

    def audit_records(
        self,
        newest: int,
        levels: list[str],
        user: str | None,
        objects: list[str],
        since: int,
        *,
        by: str | None = None,
        about: list[str] | None = None,
    ) -> list[AuditRecord]: ...


Handler = Callable[["Request", Any], Result]


@dataclass
class Request:
    """The parts are the system's; `principal` and `session` are the caller's; `reasons` collects each reason once."""

    state: State
    authorizer: Authorizer
    catalog: Catalog
    duties: Duties
    sessions: Sessions
    subscriptions: Subscriptions
    passwords: Passwords
    plans: Callable[[], Running]
    policies: Policies
    work: Work
    session: r.Session
    now: float
    engine: LiveEngine | None = None
    subject: str = ""
    given: list[tuple[str, str]] = field(default_factory=list)
    hashed: int = 0
    explained: int = 0
    reasons: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    """Roles that a policy names and that do not exist yet."""

    @property
    def principal(self) -> Principal:
        """Computed anew each time: a script can change its own rights."""
        return self.authorizer.principal(self.session)

    @property
    def user(self) -> str:
        return self.session.user

    def about(self, subject: str) -> None:
        """Sets what this statement was about, for the audit trail."""
        self.subject = subject

    def gives(self, what: str, to_whom: str) -> None:
        """Records what is granted or revoked, one record for each recipient, so that nobody disappears in a long
        list."""
        self.given.append((what, to_whom))
        if len(self.given) > MOST_GIVEN:
            raise Conflict(f"a statement must not name more than {MOST_GIVEN} receivers")

    # Permissions ------------------------------------------------------------------------------------------------------

    def may(self, permission: Permission, thing: r.Object) -> bool:
        return self.authorizer.allows(self.principal, permission, thing)

    def need(
        self,
        permission: Permission,
        thing: r.Object,
        parameters: Mapping[str, Limit] | None = None,
        principal: Principal | None = None,
    ) -> None:
        """Raises unless the caller, or a narrower principal it acts as (`AS role, ...`), has the permission."""
        roles, hint = "no active role", ""
        if principal is not None and principal.roles != self.principal.roles:
            named = ", ".join(map(quote, sorted(principal.roles)))
            roles, hint = f"none of the roles after AS ({named})", "a query has the rights of these roles only"
        granted, reason = self.authorizer.judge(principal or self.principal, permission, thing, parameters, roles)
        if not granted:
            raise AccessDenied(f"{permission} on {shown(thing)} is denied: {reason}", hint=hint)
        self.reasons[reason] = None
        for basis in self.authorizer.bases(principal or self.principal, permission, thing):
            self.reasons[self.proved(basis)] = None

    def proved(self, basis: Basis) -> str:
        """A link from an audit record to the proof of what a policy gives, which is kept."""
        text = proof_text(self.state, self.policies, basis)
        if text is None:
            return f"policy {quote(basis.policy)}, without a proof"
        name = digest(text)
        self.work.keep_proof(name, text)
        return f"policy {quote(basis.policy)}, proof {name[:NAMED]}"

    def need_system(self, permission: Permission) -> None:
        self.need(permission, self.catalog.system)

    def need_owner(self, thing: r.Object) -> None:
        """Only the owner changes or drops an object, and only at the object's own level."""
        self.about(shown(thing))
        if thing.owner != self.user:
            raise AccessDenied(f"only its owner may change {shown(thing)}")
        if self.authorizer.level(thing.level) != self.principal.level:
            raise AccessDenied(f"{shown(thing)} has level {thing.level}", hint="log in at that level to change it")
        self.reasons["owner"] = None

    def need_person(self, what: str) -> None:
        """Whoever has a stolen API key must not be able to make it last, or to make more of it."""
        if self.session.name:
            raise AccessDenied(f"an API key cannot {what}", hint="log in with a password to do that")

    def may_administer(self) -> bool:
        return self.may(Permission.CHANGE_SYSTEM, self.catalog.system)

    def hash_password(self, password: str) -> str:
        """Hashing is slow, and every other request waits: only administrators may do it often."""
        self.hashed += 1
        if self.hashed > MOST_HASHES and not self.may_administer():
            raise AccessDenied(f"a script may set at most {MOST_HASHES} passwords")
        return self.passwords.hash(password)

    def add(self, kind: Kind, name: str, definition: Definition) -> r.Object:
        """Creates an object of the caller's."""
        thing = objects.create(self.state, self.work.new_object_id(), kind, name, self.principal, definition)
        self.about(shown(thing))
        return thing

    # Lookups ----------------------------------------------------------------------------------------------------------

    def find(self, target: Target) -> r.Object:
        try:
            thing = self.catalog.find(self.principal, Kind(target.kind), target.name, target.owner)
        except HeadgateError as error:
            self.about(named(Kind(target.kind), target.name, target.owner))
            if isinstance(error, NotFound) and not error.hint:
                error.hint = self._meant(target)
            raise error.at(target.position) from None
        self.about(shown(thing))
        return thing

    def _meant(self, target: Target) -> str:
        """What a name may be a slip of, among what the caller may see."""
        known = {x.name: x for x in self.catalog.visible(self.principal, Kind(target.kind))}
        alike = [name for name in known if name.casefold() == target.name.casefold()]
        alike = alike or get_close_matches(target.name, sorted(known), 1, 0.75)
        if not alike:
            return ""
        found = known[alike[0]]
        owner = "" if found.owner == self.user else f"{quote(found.owner)}."
        exact = "; names are exact" if found.name.casefold() == target.name.casefold() else ""
        return f"did you mean {owner}{quote(found.name)}?{exact}"

    def find_user(self, name: Name) -> r.User:
        found = self.state.users.get(name.text)
        if found is None or name.text == NOBODY:
            raise NotFound(f"there is no user `{name.text}`", position=name.position)
        return found

    def find_role(self, name: Name) -> r.Role:
        found = self.state.roles.get(name.text)
        if found is None:
            hint = ""
            if self.state.users.get(name.text) is not None and (self.may_administer() or name.text == self.user):
                hint = f"{quote(name.text)} is a user: rights are granted to roles, and roles to users"
            raise NotFound(f"there is no role `{name.text}`", position=name.position, hint=hint)
        return found

    def check_level(self, level: Level) -> None:
        known_level(self.authorizer.order, frozenset(c.name for c in self.state.compartments), level)

    def check_label(self, label: Label) -> Label:
        for level in sorted(label.levels, key=str):
            self.check_level(level)
        if len(str(label)) > MAX_TEXT:
            raise LabelError(f"the minimal form of a label must not be longer than {MAX_TEXT} characters")
        if label.sources:
            raise LabelError("a policy does not name sources: the streams themselves are the sources")
        self.unknown |= {role: None for role in sorted(label.roles.names) if self.state.roles.get(role) is None}
        return label

    def done(self, text: str) -> Result:
        """An answer, with a hint about roles that do not exist: most often their names are misspelt."""
        unknown, self.unknown = self.unknown, {}
        if unknown:
            text += f"; there is no role called {' or '.join(map(quote, unknown))} yet, so nobody has it"
        return Result(text)
