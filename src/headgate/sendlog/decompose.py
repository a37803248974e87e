"""How the data of one context can be dealt out so that every rule finds its tuples in one part.

A predicate is dealt by one of its columns or copied to every part. A rule stays within a part if all its dealt
predicates
have the same variable in their columns. Reachability is dealt by its source and shortest paths by their destination,
with links
copied: a whole recursion then runs in each part without exchanging anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.sendlog.core import Core, CoreRule
from headgate.sendlog.syntax import Var

Dealing = dict[str, int | None]
"""By predicate: the column it is dealt by, or None for one that is copied."""


def dealing(core: Core) -> Dealing | None:
    """The best dealing: as many derived predicates dealt as possible, then as few base predicates copied. None where
    no derived predicate can be dealt, or the program is not one context's."""
    rules = core.rules
    if any(rel.kind != "local" for rule in rules for rel in (rule.rel, *(a.rel for a in rule.atoms()))):
        return None
    arities: dict[str, int] = {}
    for rule in rules:
        arities[rule.rel.name] = len(rule.args)
        arities |= {atom.rel.name: len(atom.args) for atom in rule.atoms()}
    derived = list(dict.fromkeys(rule.rel.name for rule in rules))
    base = [name for name in arities if name not in derived]
    found = max(_dealings(rules, [*derived, *base], arities, {}), key=lambda d: _worth(d, derived), default=None)
    return found if found and any(found[name] is not None for name in derived) else None


def _worth(found: Dealing, derived: list[str]) -> tuple[int, int]:
    return sum(found[name] is not None for name in derived), sum(column is not None for column in found.values())


def _dealings(
    rules: tuple[CoreRule, ...], names: list[str], arities: dict[str, int], chosen: Dealing
) -> Iterator[Dealing]:
    if len(chosen) == len(names):
        yield dict(chosen)
        return
    name = names[len(chosen)]
    for column in (*range(arities[name]), None):
        chosen[name] = column
        if all(_stays(rule, chosen) for rule in rules):
            yield from _dealings(rules, names, arities, chosen)
        del chosen[name]


def _stays(rule: CoreRule, chosen: Dealing) -> bool:
    """Whether a rule stays within one part, as far as its predicates are chosen."""
    dealt = [(a, chosen[a.rel.name]) for a in rule.atoms() if chosen.get(a.rel.name) is not None]
    keys = {a.args[column] for a, column in dealt if column is not None}
    if len(keys) > 1 or any(not isinstance(key, Var) for key in keys):
        return False
    complete = all(a.rel.name in chosen for a in rule.atoms())
    column = chosen.get(rule.rel.name)
    if rule.rel.name not in chosen:
        return True
    if column is None:
        return not keys
    if rule.aggregate is not None:
        width = len(rule.aggregate.over)
        if rule.aggregate.column <= column < rule.aggregate.column + width:
            return False
    if keys:
        return rule.args[column] in keys
    return not complete
