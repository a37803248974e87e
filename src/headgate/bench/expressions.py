"""Role expressions for the label bench, in the part of the grammar that Headgate and accumulo-access share.

Names are plain, and `&` within `|` is in parentheses, because accumulo-access requires them. Half of the expressions
permit the reader: one alternative has only roles that the reader holds, every other has one that it does not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

HELD = [f"held{number}" for number in range(500)]
NOT_HELD = [f"other{number}" for number in range(500)]


@dataclass(frozen=True)
class Expressions:
    """Distinct texts of `roles` roles in `terms` alternatives, and which of them permit a reader who holds HELD.

    Plain is `(r1&r2)|(r3&r4)`; nested is `((r1&r2)|(r3&r4))&r5`, which only the full grammar can parse.
    """

    roles: int
    terms: int
    nested: bool
    texts: list[str]
    permitted: list[bool]


def expressions(roles: int, terms: int, count: int, *, nested: bool = False) -> Expressions:
    rng = random.Random(roles * 1000 + terms)
    made: dict[str, bool] = {}
    while len(made) < count:
        permit = len(made) % 2 == 0
        made.setdefault(_text(_split(roles, terms, permit, rng), nested, rng), permit)
    return Expressions(roles, terms, nested, list(made), list(made.values()))


def _split(roles: int, terms: int, permit: bool, rng: random.Random) -> list[list[str]]:
    """Divides roles among the alternatives; the first of each is not held, except one if the expression shall
    permit."""
    firsts = rng.sample(NOT_HELD, terms)
    rest = rng.sample(HELD, roles - terms + 1)
    if permit:
        firsts[rng.randrange(terms)] = rest.pop()
    return [[first, *rest[i : roles - terms : terms]] for i, first in enumerate(firsts)]


def _text(split: list[list[str]], nested: bool, rng: random.Random) -> str:
    for term in split:
        rng.shuffle(term)
    shown = ["&".join(term) for term in split]
    text = shown[0] if len(shown) == 1 else "|".join(f"({t})" if "&" in t else t for t in shown)
    return f"({text})&{rng.choice(HELD)}" if nested else text
