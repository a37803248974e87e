"""Networks as in paper 003, section 7.2.1: a ring for connection, then random links up to the outdegree."""

from __future__ import annotations

from random import Random

from headgate.sendlog.values import Row

Facts = dict[str, list[tuple[str, Row]]]


def topology(nodes: int, degree: int, seed: int) -> tuple[list[str], Facts]:
    """Names, and `neighbor(Z, X, C)` facts at each Z; links go both ways at one cost."""
    random = Random(seed)
    names = [f"n{i}" for i in range(nodes)]
    links = {(i, (i + 1) % nodes) for i in range(nodes)}
    while len(links) < nodes * degree // 2:
        i, j = random.sample(range(nodes), 2)
        if (j, i) not in links:
            links.add((i, j))
    facts: Facts = {name: [] for name in names}
    for i, j in sorted(links):
        cost = random.randint(1, 9)
        facts[names[i]].append(("neighbor", (names[i], names[j], cost)))
        facts[names[j]].append(("neighbor", (names[j], names[i], cost)))
    return names, facts


def costs(names: list[str], facts: Facts) -> list[list[int]]:
    """The same as a matrix; 0 is no link."""
    found = [[0] * len(names) for _ in names]
    for rows in facts.values():
        for _, (a, b, cost) in rows:
            found[names.index(str(a))][names.index(str(b))] = int(str(cost))
    return found
