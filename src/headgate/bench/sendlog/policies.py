"""What a policy decision costs: 10,000 facts and 100 rules, beside Cedar's engine on an equivalent policy.

The embedded engine keeps what follows from the facts, so a decision is a lookup, and a changed fact is what costs.
Cedar evaluates the policies at every decision, over entities that are parsed once. All decide the same questions. The
platform's decision is that of its authorizer, with a policy that derives the same rights from 10,000 signed statements.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import TypeVar

from headgate.access import rows as r
from headgate.access.authorizer import SYSTEM_ID, Authorizer, Principal
from headgate.access.definitions import Nothing, StreamDefinition
from headgate.access.permissions import Kind, Permission
from headgate.access.policies import Policies
from headgate.access.state import State
from headgate.clock import SystemClock
from headgate.labels import LEAST
from headgate.sendlog.check import load
from headgate.sendlog.compiled import compile_program
from headgate.sendlog.core import Rel
from headgate.sendlog.engine import Engine
from headgate.sendlog.values import Row

GROUPS = 100
T = TypeVar("T")
_MEMBER, _CONTENT, _MAY = Rel("member"), Rel("content"), Rel("may")


@dataclass(frozen=True)
class Decisions:
    """Medians in microseconds; `cedar` is None where cedarpy is not installed. `statement`: from a new statement
    to the next decision."""

    facts: int
    rules: int
    decide: float
    grant: float
    revoke: float
    platform: float
    statement: float
    cedar: float | None


def measure(people: int, objects: int, questions: int) -> Decisions:
    """`people` members of groups and `objects` in folders; rule i lets group i read folder i."""
    random = Random(4)
    members = [(f"p{i}", f"g{random.randrange(GROUPS)}") for i in range(people)]
    contents = [(f"o{i}", f"f{random.randrange(GROUPS)}") for i in range(objects)]
    rules = [f"r{i} may(P,read,O) :- member(P,g{i}), content(O,f{i})." for i in range(GROUPS)]
    engine = Engine(compile_program(load("\n".join(rules))), "here")
    engine.apply([*((_MEMBER, row) for row in members), *((_CONTENT, row) for row in contents)])
    asked: list[Row] = [(random.choice(members)[0], "read", random.choice(contents)[0]) for _ in range(questions)]
    may = engine.rows(_MAY)
    answers = [row in may for row in asked]
    decide = median(_each(lambda row: row in may, asked))
    changed = [(_MEMBER, (f"new{i}", f"g{i % GROUPS}")) for i in range(200)]
    grant = median(_each(lambda fact: engine.apply([fact]), changed))
    revoke = median(_each(lambda fact: engine.apply(delete=[fact]), changed))
    cedar = _cedar(members, contents, asked, answers)
    return Decisions(
        people + objects, len(rules), decide, grant, revoke, *_platform(members, contents, asked, answers), cedar
    )


def _each(work: Callable[[T], object], items: Sequence[T]) -> list[float]:
    taken = []
    for item in items:
        start = time.perf_counter_ns()
        work(item)
        taken.append((time.perf_counter_ns() - start) / 1000)
    return taken


def _platform(
    members: list[tuple[str, str]], contents: list[tuple[str, str]], asked: list[Row], answers: list[bool]
) -> tuple[float, float]:
    """A decision of the authorizer, and the first decision after a statement."""
    state = _state(members, contents)
    authorizer = Authorizer(state, Policies(state, SystemClock()))
    things = {thing.name: thing for thing in state.objects}

    def decide(row: Row) -> bool:
        user, _, name = map(str, row)
        who = Principal(user, authorizer.assigned(user), LEAST)
        return authorizer.allows(who, Permission.READ_TUPLE, things[name])

    if [decide(row) for row in asked] != answers:
        raise RuntimeError("the platform decides differently")

    def say(i: int) -> None:
        state.policy_statements.put(_said(f"new{i}", "member", f"p{i}", f"g{i % GROUPS}"))
        decide(asked[0])

    return median(_each(decide, asked)), median(_each(say, range(20)))


def _state(members: list[tuple[str, str]], contents: list[tuple[str, str]]) -> State:
    """A catalog with these people and streams, in which `owner` may grant all, and acme says who is in which group and
    what is in which folder."""
    state, least = State(), str(LEAST)
    for name in ("owner", "acme", *(person for person, _ in members)):
        state.users.put(r.User(name, "", least, keys=("key",)))
    for name in ("ADMIN", *(f"g{i}" for i in range(GROUPS))):
        state.roles.put(r.Role(name, "owner"))
    state.objects.put(r.Object(SYSTEM_ID, Kind.SYSTEM, "", least, "SYSTEM", Nothing()))
    for i, (name, _) in enumerate(contents):
        state.objects.put(r.Object(i + 1, Kind.STREAM, "owner", least, name, StreamDefinition(())))
    rules = ["plays(U, G) :- acme says member(U, G)."]
    rules += [f'r{i} may_access(g{i}, "READ TUPLE", O) :- acme says content(O, f{i}).' for i in range(GROUPS)]
    state.policies.put(r.Policy("bench", "owner", "", (), "\n".join(rules)))
    for i, (person, group) in enumerate(members):
        state.policy_statements.put(_said(f"m{i}", "member", person, group))
    for i, (name, folder) in enumerate(contents):
        state.policy_statements.put(_said(f"c{i}", "content", f"STREAM {name}", folder))
    return state


def _said(digest: str, predicate: str, *row: str) -> r.PolicyStatement:
    return r.PolicyStatement("bench", digest, "acme", predicate, json.dumps(row), "key", "", 0.0)


def _cedar(
    members: list[tuple[str, str]], contents: list[tuple[str, str]], asked: list[Row], answers: list[bool]
) -> float | None:
    try:
        import cedarpy
    except ImportError:
        return None
    text = "\n".join(
        f'permit(principal in Group::"g{i}", action == Action::"read", resource in Folder::"f{i}");'
        for i in range(GROUPS)
    )

    def entity(kind: str, name: str, *parents: tuple[str, str]) -> dict[str, object]:
        above = [{"type": t, "id": n} for t, n in parents]
        return {"uid": {"type": kind, "id": name}, "attrs": {}, "parents": above}

    entities = [entity("User", p, ("Group", g)) for p, g in members]
    entities += [entity("Object", o, ("Folder", f)) for o, f in contents]
    entities += [
        entity(kind, f"{letter}{i}") for kind, letter in (("Group", "g"), ("Folder", "f")) for i in range(GROUPS)
    ]
    policies, graph = cedarpy.PolicySet.from_str(text), cedarpy.Entities.from_json_str(json.dumps(entities))
    requests = [
        {"principal": f'User::"{p}"', "action": f'Action::"{a}"', "resource": f'Object::"{o}"', "context": {}}
        for p, a, o in asked
    ]
    found = [cedarpy.is_authorized(request, policies, graph).allowed for request in requests]
    if found != answers:
        raise RuntimeError("Cedar decides differently")
    return median(_each(lambda request: cedarpy.is_authorized(request, policies, graph), requests))
