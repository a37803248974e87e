"""SHOW: the caller's view of the catalog. INVARIANT: an object that the caller may not see is not counted, not named,
and does not affect the response time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headgate.access import parameters
from headgate.access import rows as r
from headgate.access.authorizer import EVERYONE, kind_word, named, shown
from headgate.access.definitions import Damaged
from headgate.access.derived import DerivedStreams
from headgate.access.limits import exceeded
from headgate.access.objects import queries
from headgate.access.permissions import OPERATORS, Kind, Permission
from headgate.access.policies import arguments_of
from headgate.access.request import Handler, Request, Result
from headgate.access.statements.describe import DAMAGED, clauses, status, text
from headgate.access.statements.objects import column_text
from headgate.cql import statements as s
from headgate.cql.names import Target
from headgate.errors import StoreError
from headgate.labels.levels import LEAST
from headgate.lexing import quote
from headgate.sendlog.values import shown_fact

if TYPE_CHECKING:
    from headgate.plan.analysis import DeadlineCounts

Rows = Iterable[tuple[str, ...]]
_NEWEST = 50
_EVERYTHING = (Kind.SCHEMA, Kind.STREAM, Kind.QUERY)


def _show(q: Request, x: s.Show) -> Result:
    if x.what == "GRANTS":
        return _table("GRANTS", ("object", "permission", "role", "limits", "granted by"), _grants(q, x.target))
    if x.what == "AUDIT":
        return _table("AUDIT", _AUDIT, _audit(q, x))
    columns, rows = _SHOWN[x.what]
    return _table(x.what, columns, rows(q))


def _table(what: str, columns: tuple[str, ...], rows: Rows) -> Result:
    return Result(what.lower(), columns, tuple(rows))


def _visible(q: Request, *kinds: Kind) -> list[r.Object]:
    q.need_system(Permission.VIEW_CATALOG)
    return q.catalog.visible(q.principal, *kinds)


def _named(thing: r.Object) -> tuple[str, ...]:
    return thing.name, thing.owner, thing.level


def _catalog(q: Request) -> Rows:
    return [(kind_word(thing), *_named(thing)) for thing in _visible(q, *_EVERYTHING)]


def _schemas(q: Request) -> Rows:
    for thing in _visible(q, Kind.SCHEMA):
        damaged = isinstance(thing.definition, Damaged)
        yield *_named(thing), DAMAGED if damaged else ", ".join(map(column_text, thing.schema.columns))


def _streams(q: Request) -> Rows:
    for thing in _visible(q, Kind.STREAM):
        if isinstance(thing.definition, Damaged):
            yield *_named(thing), DAMAGED, ""
            continue
        defined = "; ".join(f"{word} {value}" for word, value in clauses(q, thing))
        yield *_named(thing), ", ".join(map(column_text, thing.stream.columns)), defined


def _queries(q: Request) -> Rows:
    """Inputs and outputs are named only where the caller may see them as well."""
    seen = {thing.id: thing for thing in _visible(q, *_EVERYTHING)}
    for thing in seen.values():
        if thing.kind == Kind.QUERY and isinstance(thing.definition, Damaged):
            yield *_named(thing), "", "", "", "", DAMAGED
        elif thing.kind == Kind.QUERY:
            d = thing.query
            inputs = ", ".join(quote(seen[i].name) for i in d.inputs if i in seen)
            output = quote(seen[d.output].name) if d.output in seen else ""
            operators = ", ".join(dict.fromkeys(name for name, _ in d.operators))
            yield *_named(thing), inputs, operators, output, text(q, thing) if d.text else "", status(thing)


def _operators(q: Request) -> Rows:
    for thing in q.catalog.operators():
        grants = [
            grant
            for role in q.authorizer.effective(q.principal.roles)
            if (grant := q.state.grants.get(thing.id, Permission.USE, role))
        ]
        free = any(not exceeded(grant.limits, {}) for grant in grants)
        allowed = "freely" if free else " or ".join(sorted({_limits(grant) for grant in grants})) or "no"
        yield thing.name, ", ".join(OPERATORS.get(thing.name, {})), allowed


def _limits(grant: r.Grant) -> str:
    return ", ".join(f"{k} = {' '.join(v) if isinstance(v, tuple) else v}" for k, v in grant.limits)


def _users(q: Request) -> Rows:
    everyone = q.may_administer()
    for user in sorted(q.state.users, key=lambda u: u.name):
        if user.name and (everyone or user.name == q.user):
            given, cleared = q.policies.roles(user.name), q.policies.levels(user.name)
            roles = [quote(m.role) for m in q.state.memberships.peek("user", user.name)]
            roles += [f"{quote(role)} (policy {quote(basis.policy)})" for role, basis in given.items()]
            levels = [user.clearance, *(f"{x} (policy {quote(basis.policy)})" for x, basis in cleared.items())]
            locked = "locked" if user.locked or q.now < user.locked_until else ""
            yield user.name, ", ".join(sorted(roles)), ", ".join(levels), str(len(user.keys)), locked


def _seen_policies(q: Request) -> list[r.Policy]:
    """Administrators and auditors see all policies, others their own."""
    everyone = q.may_administer() or q.may(Permission.VIEW_AUDIT, q.catalog.system)
    return sorted((x for x in q.state.policies if everyone or x.owner == q.user), key=lambda x: x.name)


def _policies(q: Request) -> Rows:
    counted = q.policies.counted()
    for policy in _seen_policies(q):
        statements = len(q.state.policy_statements.peek("policy", policy.name))
        derived, fault = q.policies.derived(policy.name), q.policies.fault(policy.name)
        state = fault or ("" if counted[policy.name] == derived else "its owner could not grant all it derives")
        rights = f"{counted[policy.name]} of {derived}"
        yield policy.name, policy.owner, policy.address, str(statements), rights, state


def _statements(q: Request) -> Rows:
    for policy in _seen_policies(q):
        for x in sorted(q.state.policy_statements.peek("policy", policy.name), key=lambda x: (x.speaker, x.digest)):
            end = q.policies.until(x)
            until = "" if end == float("inf") else "passed" if end <= q.now else _time(end)
            said = shown_fact(x.predicate, arguments_of(x))
            yield policy.name, x.speaker, said, _time(x.accepted), until


def _roles(q: Request) -> Rows:
    """Roles are public words: the author of a policy has to know them."""
    mine, active = q.authorizer.authorised(q.user), q.principal.roles
    for role in sorted(q.state.roles, key=lambda x: x.name):
        inherits = ", ".join(sorted(quote(e.junior) for e in q.state.inheritances.peek("senior", role.name)))
        limits = ("" if x is None else str(x) for x in (role.max_queries, role.max_state, role.max_results))
        held = "active" if role.name in active or role.name == EVERYONE else "yours" if role.name in mine else ""
        yield role.name, inherits, *limits, held


def _separations(q: Request) -> Rows:
    for x in sorted(q.state.separations, key=lambda x: x.name):
        yield x.name, "dynamic" if x.dynamic else "static", ", ".join(map(quote, x.roles)), str(x.at_most)


def _levels(q: Request) -> Rows:
    yield str(LEAST), ""
    for level in sorted((x for x in q.state.levels if not x.retired), key=lambda x: x.name):
        yield level.name, ", ".join(map(quote, level.above)) or str(LEAST)


def _compartments(q: Request) -> Rows:
    return [(x.name,) for x in sorted(q.state.compartments, key=lambda x: x.name)]


def _seen_grants(q: Request) -> list[tuple[r.Grant, r.Object]]:
    """Auditors review all grants; others see those on their own objects, and what their roles may view."""
    if q.may(Permission.VIEW_AUDIT, q.catalog.system):
        every = (*q.state.grants, *q.policies.all_grants())
        pairs = [(grant, q.state.objects.get(grant.object)) for grant in every]
    else:
        things = _visible(q, *_EVERYTHING)
        roles = q.authorizer.effective(q.principal.roles)
        pairs = [
            (grant, thing)
            for thing in (q.catalog.system, *things)
            for grant in q.authorizer.held("object", thing.id)
            if grant.role in roles or thing.owner == q.user
        ]
    levels = set(q.authorizer.visible_levels(q.principal))
    seen = [(g, thing) for g, thing in pairs if thing is not None and thing.level in levels]
    return sorted(seen, key=lambda p: (p[1].kind, p[1].name, p[1].owner, p[1].level, p[0].permission, p[0].role))


def _grants(q: Request, target: Target | None) -> Rows:
    if target is not None:
        thing = q.find(target)
        mine = thing.owner == q.user or q.may(Permission.CHANGE_PERM, thing)
        roles = q.authorizer.effective(q.principal.roles)
        found = [(g, thing) for g in q.authorizer.held("object", thing.id) if mine or g.role in roles]
        found.sort(key=lambda p: (p[0].permission, p[0].role))
    else:
        found = _seen_grants(q)
    for grant, thing in found:
        yield shown(thing), grant.permission, grant.role, _limits(grant), _grantor(q, grant)


def _grantor(q: Request, grant: r.Grant) -> str:
    return q.authorizer.grantor(grant) if q.policies.basis(grant) else grant.grantor or "the system"


def _permissions(q: Request) -> Rows:
    """The simplified tables of paper 000, Figures 8-10: for each role the objects it has any right on."""
    by_role: dict[str, list[str]] = {}
    for grant, thing in _seen_grants(q):
        name = "system" if thing.kind == Kind.SYSTEM else thing.name
        if thing.kind != Kind.OPERATOR and name not in by_role.setdefault(grant.role, []):
            by_role[grant.role].append(name)
    return [(role, ", ".join(map(quote, sorted(names)))) for role, names in sorted(by_role.items()) if names]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _session_row(q: Request, x: r.Session) -> tuple[str, ...]:
    roles = ", ".join(map(quote, sorted(q.authorizer.principal(x).roles)))
    return x.id, x.user, roles, x.level, _time(x.created), _time(x.expires), x.name


def _session(q: Request) -> Rows:
    return [_session_row(q, q.session)]


def _sessions(q: Request) -> Rows:
    everyone = q.may_administer()
    for x in sorted(q.state.sessions, key=lambda x: (x.user, x.created, x.id)):
        readable = q.authorizer.order.dominates(q.principal.level, q.authorizer.level(x.level))
        if readable and (everyone or x.user == q.user):
            yield _session_row(q, x)


def _subscriptions(q: Request) -> Rows:
    """The caller's subscriptions at its level. A stream that it may no longer see is not listed; nothing is delivered
    from it either."""
    seen = {thing.id: thing for thing in _visible(q, Kind.STREAM)}
    mine = [(seen[x.stream], x) for x in q.subscriptions.here(q.principal) if x.stream in seen]
    for stream, x in sorted(mine, key=lambda pair: _named(pair[0])):
        yield *_named(stream), ", ".join(map(quote, x.roles)), _status(q, x, stream)


def _status(q: Request, x: r.Subscription, stream: r.Object) -> str:
    try:
        if DerivedStreams(q.state, q.authorizer, q.plans()).is_suspended(q.subscriptions.principal(x), stream):
            return "suspended"
    except StoreError:  # of this subscription only
        return DAMAGED
    makers = [d for _, d in queries(q.state, stream.owner) if d.output == stream.id]
    return "stopped" if makers and not makers[0].running else ""


def _deadlines(q: Request) -> Rows:
    """Queries that have a deadline. How they do is shown to sessions with CHANGE SYSTEM, of levels up to their own: the
    numbers depend on tuples of all readers of a level. Without an engine in this process, nothing is known of it."""
    known: dict[str, list[DeadlineCounts]] = {}
    if q.engine is not None and q.may_administer():
        for x in q.engine.due()[0]:
            known.setdefault(x.query, []).append(x)
    for thing in _visible(q, Kind.QUERY):
        if isinstance(thing.definition, Damaged) or thing.query.deadline is None:
            continue
        seen = [x for x in known.get(str(thing.id), ()) if _dominates(q, x.level)]
        about = *_named(thing), str(thing.query.deadline)
        if not seen:
            yield *about, *("",) * 6
        for x in seen:
            yield *about, x.level, x.version, *map(str, (x.admitted, x.rejected, x.timely, x.missed))


def _dominates(q: Request, level: str) -> bool:
    return q.authorizer.order.dominates(q.principal.level, q.authorizer.level(level))


def _system(q: Request) -> Rows:
    return [(name, parameters.read(q.state, name)) for name in parameters.DEFAULTS]


def _audit(q: Request, x: s.Show) -> Rows:
    """Auditors read every record; others read their own and those about their objects. Nobody reads above their level.
    Records have no numbers here: gaps would reveal how many are hidden."""
    order, level = q.authorizer.order, q.authorizer.level
    levels = [text for text in q.work.audit_levels() if order.dominates(q.principal.level, level(text))]
    auditor = q.may(Permission.VIEW_AUDIT, q.catalog.system)
    me = q.state.users.get(q.user)
    since = 0 if auditor or me is None else me.since  # another person may have had the name before
    objects = [shown(thing) for thing in q.catalog.visible(q.principal, *_EVERYTHING) if thing.owner == q.user]
    newest, by = _NEWEST if x.limit is None else x.limit, x.user.text if x.user else None
    about = None
    if x.target is not None:  # it may be gone: records stay
        kind = Kind(x.target.kind)
        owner = None if kind in (Kind.SYSTEM, Kind.OPERATOR) else x.target.owner or q.user
        words = ("stream", "table") if kind == Kind.STREAM else (kind.lower(),)
        name = named(kind, x.target.name, owner).partition(" ")[2]
        about = ["system"] if kind == Kind.SYSTEM else [f"{word} {name}" for word in words]
    mine = None if auditor else q.user
    for record in q.work.audit_records(newest, levels, mine, objects, since, by=by, about=about):
        e = record.event
        outcome = "granted" if e.granted else "denied"
        yield _time(record.time), e.user, e.session, e.level, e.action, e.object, outcome, e.reason


_OBJECT = ("name", "owner", "level")
_AUDIT = ("time", "user", "session", "level", "action", "object", "outcome", "reason")
_SESSION = ("session", "user", "active roles", "level", "since", "until", "API key")
_SHOWN: dict[str, tuple[tuple[str, ...], Callable[[Request], Rows]]] = {
    "CATALOG": (("kind", *_OBJECT), _catalog),
    "SCHEMAS": ((*_OBJECT, "columns"), _schemas),
    "STREAMS": ((*_OBJECT, "columns", "defined by"), _streams),
    "QUERIES": ((*_OBJECT, "inputs", "operators", "output", "text", "status"), _queries),
    "OPERATORS": (("operator", "parameters", "you may use it"), _operators),
    "USERS": (("user", "roles", "clearance", "keys", "state"), _users),
    "ROLES": (("role", "inherits", "most queries", "most state", "most results", "yours"), _roles),
    "SEPARATIONS": (("separation", "kind", "roles", "at most"), _separations),
    "LEVELS": (("level", "above"), _levels),
    "COMPARTMENTS": (("compartment",), _compartments),
    "PERMISSIONS": (("role", "objects"), _permissions),
    "POLICIES": (("policy", "owner", "address", "statements", "rights", "state"), _policies),
    "STATEMENTS": (("policy", "speaker", "statement", "accepted", "until"), _statements),
    "SESSION": (_SESSION, _session),
    "SESSIONS": (_SESSION, _sessions),
    "SUBSCRIPTIONS": ((*_OBJECT, "roles", "state"), _subscriptions),
    "DEADLINES": (
        (*_OBJECT, "deadline", "readers at", "version", "admitted", "not admitted", "in time", "missed"),
        _deadlines,
    ),
    "SYSTEM": (("parameter", "value"), _system),
}

HANDLERS: dict[type[s.Statement], Handler] = {s.Show: _show}
