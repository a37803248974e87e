"""How statements are drawn: from which names, by which choices, and in which words about what exists in the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

from .model import Action, Model
from .model_values import EVERYONE, OPERATORS, Label, Level, Limits, Target

T = TypeVar("T")

ROOT = "root"
USERS = (ROOT, "ann", "bob", "cy")
ROLES = ("ADMIN", EVERYONE, "r1", "r2", "r3", "r4")
LEVELS = ("C", "S", "N")
COMPARTMENTS = ("X", "Y")
NAMES = ("a", "b", "c")
COLUMNS = ("k", "v", "w")
SEMANTICS = ("STRONG", "WEAK", "AGGREGATE")
LABELS = (Label("r1"), Label("r1 AT C", Level("C")), Label("r2 AT S{X}", Level("S", frozenset("X"))))
SEPARATIONS = ("sep1", "sep2", "sep3")
PASSWORDS = ("password one", "password two")
UNKNOWN = "nobody"
KINDS = ("SCHEMA", "STREAM", "QUERY")
LIMITED = [name for name, parameters in OPERATORS.items() if parameters]


@dataclass(frozen=True)
class Statement:
    """One statement as text for the system and as an action for the model."""

    kind: str
    text: str
    action: Action


class Pick:
    """Choices, made by hypothesis."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def one(self, values: Sequence[T]) -> T:
        return values[self._data.draw(st.integers(0, len(values) - 1))]

    def chance(self, percent: int) -> bool:
        return self._data.draw(st.integers(0, 99)) >= 100 - percent

    def name(self, existing: Sequence[str], pool: Sequence[str]) -> str:
        """Mostly something that exists."""
        if existing and not self.chance(15):
            return self.one(sorted(existing))
        return self.one((*pool, UNKNOWN))

    def some(self, draw: Callable[[], T]) -> list[T]:
        """One, seldom two."""
        return [draw() for _ in range(2 if self.chance(20) else 1)]

    def fresh(self, existing: Sequence[str], pool: Sequence[str]) -> str:
        free = [name for name in pool if name not in existing]
        return self.one(free) if free and not self.chance(15) else self.one(pool)


class Words:
    """The words of a statement, about what exists for the most part."""

    def __init__(self, pick: Pick, model: Model, user: str) -> None:
        self.pick = pick
        self.model = model
        self.user = user  # who will run it

    def a_user(self) -> str:
        return self.pick.name(list(self.model.users), USERS)

    def a_role(self) -> str:
        return self.pick.name(list(self.model.roles), ROLES)

    def a_level(self) -> Level:
        known = [name for name in self.model.compartments if self.pick.chance(30)]
        return Level(self.pick.name(["U", *self.model.levels], LEVELS), frozenset(known))

    def level_names(self) -> list[str]:
        return self.pick.some(lambda: self.pick.name(["U", *self.model.levels], LEVELS))

    def an_object(self, *kinds: str) -> Target:
        things = [thing for thing in self.model.things.values() if thing.kind in kinds]
        if not things or self.pick.chance(10):
            return Target(self.pick.one(kinds), self.pick.one(NAMES))
        own = [thing for thing in things if thing.owner == self.user]
        thing = self.pick.one(own if own and self.pick.chance(70) else things)
        return Target(thing.kind, thing.name, thing.owner if self.pick.chance(60) else None)

    def columns(self) -> tuple[str, ...]:
        return tuple(self.pick.some(lambda: self.pick.one(COLUMNS)))

    def limits(self, operator: str) -> Limits:
        """Limits of a grant, or parameters of a use; sometimes none, seldom nonsense."""
        found: dict[str, int | float | tuple[str, ...]] = {}
        for name, kind in OPERATORS.get(operator, {}).items():
            if self.pick.chance(60):
                number = self.pick.one((1, 2, 2.5, 3))
                found[name] = number if kind == "number" else self.pick.one((("x",), ("y",), ("x", "y")))
        if self.pick.chance(5):
            found[self.pick.one(("streams", "functions", "colour"))] = 1 if self.pick.chance(50) else ("x",)
        return found


def limits_text(limits: Limits) -> str:
    def text(limit: object) -> str:
        return "(" + ", ".join(f"'{word}'" for word in limit) + ")" if isinstance(limit, tuple) else str(limit)

    return f"({', '.join(f'{name} = {text(limit)}' for name, limit in limits.items())})" if limits else ""
