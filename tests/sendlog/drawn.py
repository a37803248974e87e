"""Random programs and facts: layers of rules with joins, recursion, negation, aggregates and exports."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headgate.errors import HeadgateError
from headgate.sendlog.check import load
from headgate.sendlog.core import Core, Rel
from headgate.sendlog.values import Row

PEOPLE = ("a", "b", "c")
BASE = ("e", "f")
Facts = set[tuple[str, Rel, Row]]


def draw_program(random: Random) -> tuple[str, Core]:
    """A program that passes the checks; what does not is drawn again."""
    while True:
        text = "\n".join(_rules(random))
        try:
            return text, load(text)
        except HeadgateError:
            continue


def _rules(random: Random) -> list[str]:
    rules = ["At N,"]
    known = list(BASE)
    said: list[str] = []
    for layer in range(random.randint(1, 4)):
        name = f"p{layer}"
        rules += [_plain(random, name, known, said) for _ in range(random.randint(1, 3))]
        if random.random() < 0.5:
            rules.append(f"s{layer}(X,Y)@P :- peer(P), {random.choice([*known, name])}(X,Y).")
            said.append(f"s{layer}")
        if random.random() < 0.35:
            aggregate = random.choice(["count<Y>", "sum<Y>", "min<Y>", "max<Y>", "count<*>"])
            rules.append(f"g{layer}(X,{aggregate}) :- {random.choice(known)}(X,Y).")
            known.append(f"g{layer}")
        if random.random() < 0.3:
            lower = random.choice(known)
            rules.append(f"d{layer}(X,Y,min<C>) :- {lower}(X,Y), C = 1.")
            rules.append(f"d{layer}(X,Y,min<C>) :- {lower}(X,Z), d{layer}(Z,Y,D), C = D + {random.choice([1, 2])}.")
            rules.append(f"q{layer}(X,Y) :- d{layer}(X,Y,C), C > 1.")
            known.append(f"q{layer}")
        known.append(name)
    return rules


def _plain(random: Random, name: str, known: list[str], said: list[str]) -> str:
    names = [*known, name]

    def atom(x: str, y: str) -> str:
        if said and random.random() < 0.3:
            return f"{random.choice(['Q', 'Q', random.choice(PEOPLE)])} says {random.choice(said)}({x},{y})"
        return f"{random.choice(names)}({x},{y})"

    bodies: list[Callable[[], list[str]]] = [
        lambda: [atom("X", "Y")],
        lambda: [atom("Y", "X")],
        lambda: [atom("X", "Z"), atom("Z", "Y")],
        lambda: [atom("X", "Z"), atom("Y", "Z")],
        lambda: [atom("X", "Y"), atom("Y", "X")],
        lambda: [atom("X", "Z"), "Y = Z + 1", "Y < 5"],
        lambda: [atom("X", str(random.randrange(4))), atom("X", "Y")],
    ]
    body = random.choice(bodies)()
    if random.random() < 0.4:
        body.append(random.choice([f"not {random.choice(known)}(X,Y)", f"not {random.choice(known)}(Y,_)"]))
    if random.random() < 0.3:
        body.append(random.choice(["X != Y", "X <= Y", "X + 1 >= Y"]))
    random.shuffle(body)
    return f"{name}(X,Y) :- {', '.join(body)}."


def draw_fact(random: Random) -> tuple[str, Rel, Row]:
    who = random.choice(PEOPLE)
    if random.random() < 0.2:
        return who, Rel("peer"), (random.choice(PEOPLE),)
    return who, Rel(random.choice(BASE)), (random.randrange(4), random.randrange(4))
