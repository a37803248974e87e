"""A conjunction of role expressions: the protection of a result that combines tuples of different policies.

A decision checks expression by expression and never multiplies them out: ten policies with three alternatives each have
59,049 products. The minimal form is for people: it is computed when it is shown, and only while it is short. No
conjunction becomes "for nobody" because of its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import cached_property
from math import prod

from headgate.errors import LabelError
from headgate.labels.roles import FALSE, TRUE, RoleExpression

MAX_SHOWN_PRODUCTS = 16
MAX_SHOWN = 8
"""Expressions that a text shows one by one. Of more it shows only the number, and can no longer be parsed."""
_MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class Conjunction:
    """A reader needs all `required` roles and must satisfy each of the `choices`.

    INVARIANT: a choice has at least two alternatives, and the required roles alone do not satisfy it; the conjunction
    that nobody satisfies has the one choice FALSE. So conjunctions of the same expressions are equal, however they were
    combined.
    """

    required: frozenset[str] = frozenset()
    choices: frozenset[RoleExpression] = frozenset()

    @classmethod
    def of(cls, *expressions: RoleExpression) -> Conjunction:
        required = set[str]()
        choices = set[RoleExpression]()
        for expression in expressions:
            if not expression.terms:
                return NOBODY
            if len(expression.terms) == 1:
                required.update(*expression.terms)
            else:
                choices.add(expression)
        return cls._normal(frozenset(required), choices)

    @classmethod
    def all_of(cls, parts: Iterable[Conjunction]) -> Conjunction:
        """The conjunction of any number of conjunctions, in time linear in their size."""
        given = list(parts)
        required = frozenset[str]().union(*[part.required for part in given if part.required])
        choices = set[RoleExpression]().union(*[part.choices for part in given])
        return NOBODY if FALSE in choices else cls._normal(required, choices)

    @classmethod
    def _normal(cls, required: frozenset[str], choices: set[RoleExpression]) -> Conjunction:
        if required:
            choices = {choice for choice in choices if not choice.satisfied_by(required)}
        return cls(required, frozenset(choices))

    def __and__(self, other: Conjunction) -> Conjunction:
        if not (other.required or other.choices):
            return self
        if not (self.required or self.choices):
            return other
        return Conjunction.all_of((self, other))

    def satisfied_by(self, roles: Set[str]) -> bool:
        return self.required <= roles and all(choice.satisfied_by(roles) for choice in self.choices)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every role that the decision can depend on."""
        return self.required.union(*(choice.names for choice in self.choices))

    @cached_property
    def minimal(self) -> RoleExpression | None:
        """One expression of the same meaning, in minimal form; None if it would be too long to show."""
        if len(self.choices) == 1 and not self.required:
            return next(iter(self.choices))
        if len(self.choices) > MAX_SHOWN or prod(len(x.terms) for x in self.choices) > MAX_SHOWN_PRODUCTS:
            return None
        found = RoleExpression(frozenset({self.required})) if self.required else TRUE
        try:
            for choice in self.choices:
                found = found & choice
        except LabelError:
            return None
        return found

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if self.minimal is not None:
            return str(self.minimal)
        parts = [str(RoleExpression(frozenset({self.required})))] if self.required else []
        if len(self.choices) > MAX_SHOWN:
            return " & ".join((*parts, f"... ({len(self.choices)} policies)"))
        return " & ".join((*parts, *sorted(f"({choice})" for choice in self.choices)))


class RoleHolder:
    """A set of held roles, with a cache of the expressions that they satisfy, so that each is decided once."""

    def __init__(self, roles: Set[str]) -> None:
        self._roles = roles
        self._known: set[RoleExpression] = set()
        self._satisfied: set[RoleExpression] = set()

    def satisfies(self, conjunction: Conjunction) -> bool:
        if not conjunction.required <= self._roles:
            return False
        new = conjunction.choices - self._known
        if new:
            if len(self._known) > _MOST_REMEMBERED:
                self._known, self._satisfied, new = set(), set(), conjunction.choices
            self._known |= new
            self._satisfied |= {choice for choice in new if choice.satisfied_by(self._roles)}
        return conjunction.choices <= self._satisfied


NOBODY = Conjunction(choices=frozenset({FALSE}))
EVERYBODY = Conjunction()
