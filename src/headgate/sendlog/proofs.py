"""One proof of a derived tuple: the steps that lead from facts and statements to it, each tuple once.

A derivation graph may be cyclic, and its tree may be exponentially larger than the graph. A proof is found forwards,
from what needs no rule, so it is never circular, and it is kept as a list of steps in which each step only uses earlier
ones (paper 003, section 6: provenance; here reduced to one derivation, for the audit trail).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.sendlog.derivations import Derivation, Fact
from headgate.sendlog.engine import Engine
from headgate.sendlog.provenance import Tree, Use
from headgate.sendlog.values import Row, ValueFault, canonical

AS_ABOVE = "as above"
MAX_STEPS = 10_000


@dataclass(frozen=True)
class Step:
    """A tuple: said by its first column (`said`), a fact of the policy (no rule), or derived from earlier steps."""

    said: bool
    name: str
    row: Row
    rule: str = ""
    body: tuple[int, ...] = ()

    def listed(self) -> list[Any]:
        return [int(self.said), self.name, self.row, self.rule, self.body]

    @classmethod
    def of(cls, data: Any) -> Step:
        said, name, row, rule, body = data
        values = canonical(row)
        if not isinstance(values, tuple) or not all(isinstance(x, str) for x in (name, rule)):
            raise ValueFault("this is no proof")
        return cls(bool(said), name, values, rule, tuple([int(i) for i in body]))


def prove(engine: Engine, fact: Fact) -> list[Step]:
    """The steps of one proof, the tuple itself last; none if the engine does not hold it, or keeps no derivations."""
    chosen = _chosen(engine, fact)
    if fact not in chosen:
        return []
    steps: list[Step] = []
    places: dict[Fact, int] = {}
    waiting = [(fact, False)]
    while waiting:
        one, ready = waiting.pop()
        if one in places:
            continue
        rule, body = chosen[one]
        used = list(dict.fromkeys(_tuples(body, chosen)))
        if not ready:
            waiting.append((one, True))
            waiting += [(x, False) for x in reversed(used) if x not in places]
            continue
        rel, row = one
        places[one] = len(steps)
        steps.append(Step(rel.kind == "said", rel.name, row, rule, tuple([places[x] for x in used])))
        if len(steps) > MAX_STEPS:
            return []
    return steps


def _tuples(body: tuple[Fact, ...], chosen: Mapping[Fact, Derivation]) -> list[Fact]:
    """Solutions of an aggregate's body are no tuples of anybody's: the tuples behind them are."""
    return [x for one in body for x in (chosen[one][1] if one[0].kind == "body" else (one,))]


def _chosen(engine: Engine, fact: Fact) -> dict[Fact, Derivation]:
    """For each tuple behind this one the first derivation that is complete, in the order in which they become so."""
    users: dict[Fact, list[tuple[Fact, Derivation, set[Fact]]]] = {}
    chosen: dict[Fact, Derivation] = {}
    ready: deque[Fact] = deque()
    seen, waiting = {fact}, [fact]
    while waiting:
        one = waiting.pop()
        rel, row = one
        if rel.kind == "said" or row in engine.base.get(rel, ()):
            if row in engine.rows(rel):
                chosen[one] = ("", ())
                ready.append(one)
            continue
        for derivation in engine.derivations.of(one) if engine.derivations is not None else ():
            missing = set(derivation[1])
            for used in missing:
                users.setdefault(used, []).append((one, derivation, missing))
                if used not in seen:
                    seen.add(used)
                    waiting.append(used)
            if not missing and one not in chosen:
                chosen[one] = derivation
                ready.append(one)
    while ready and fact not in chosen:
        used = ready.popleft()
        for one, derivation, missing in users.get(used, ()):
            missing.discard(used)
            if not missing and one not in chosen:
                chosen[one] = derivation
                ready.append(one)
    return chosen


def as_tree(steps: Sequence[Step], at: str, verified: Mapping[int, bool]) -> Tree:
    """The proof as a tree; a tuple that was proved further up is not proved again."""
    seen: set[int] = set()

    def tree(place: int) -> Tree:
        step = steps[place]
        if step.said:
            return Tree(at, step.name, step.row[1:], str(step.row[0]), (), verified.get(place, False))
        if not step.rule:
            return Tree(at, step.name, step.row)
        if place in seen:
            return Tree(at, step.name, step.row, "", (Use(AS_ABOVE, ()),))
        seen.add(place)
        return Tree(at, step.name, step.row, "", (Use(step.rule, tuple([tree(i) for i in step.body])),))

    if any(i >= place for place, step in enumerate(steps) for i in step.body):
        raise ValueFault("this is no proof")
    return tree(len(steps) - 1)
