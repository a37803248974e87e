"""Role expressions: monotone Boolean formulas over role names (paper 001, sections 4.2 and 5.2).

A formula is stored as the set of its minimal role sets (its prime implicants). For formulas without NOT this form is
unique, so formulas of equal meaning are equal: `R1 | (R1 & R2)` *is* `R1`, the paper's redundancy law.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from headgate.errors import LabelError
from headgate.lexing import quote

MAX_TERMS = 128
MAX_PRODUCTS = 4096
_TOO_MANY = f"a role expression must not have more than {MAX_TERMS} alternatives"
RESERVED = frozenset({"TRUE", "FALSE", "AT", "FROM"})

Term = frozenset[str]


@dataclass(frozen=True)
class RoleExpression:
    """A disjunction of role sets; a reader that holds all roles of one set satisfies it.

    INVARIANT: no term contains another (`terms` is an antichain), so the form is canonical.
    """

    terms: frozenset[Term]

    @classmethod
    def of(cls, terms: Iterable[Iterable[str]]) -> RoleExpression:
        return cls(_minimal({frozenset(term) for term in terms}))

    @classmethod
    def role(cls, name: str) -> RoleExpression:
        return cls(frozenset({frozenset({name})}))

    def __and__(self, other: RoleExpression) -> RoleExpression:
        """The conjunction. Terms that both sides have are kept as they are; only the rest is multiplied out."""
        common = self.terms & other.terms
        left, right = self.terms - common, other.terms - common
        if len(left) * len(right) > MAX_PRODUCTS:
            raise LabelError(_TOO_MANY)
        return RoleExpression(_minimal(common | {a | b for a in left for b in right}))

    def __or__(self, other: RoleExpression) -> RoleExpression:
        return RoleExpression.any_of((self, other))

    @classmethod
    def any_of(cls, alternatives: Sequence[RoleExpression]) -> RoleExpression:
        """The disjunction, reduced once for any number of alternatives."""
        if len(alternatives) == 1:
            return alternatives[0]
        return cls(_minimal(frozenset().union(*(x.terms for x in alternatives))))

    def __hash__(self) -> int:
        return hash(self.terms)  # a frozenset caches its hash

    def satisfied_by(self, roles: Set[str]) -> bool:
        return any(term <= roles for term in self.terms)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every role that the decision can depend on."""
        return frozenset().union(*self.terms)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if not self.terms:
            return "FALSE"
        terms = sorted((len(term), sorted(term)) for term in self.terms)
        shown = [" & ".join(quote(name, RESERVED) for name in names) or "TRUE" for _, names in terms]
        if len(shown) == 1:
            return shown[0]
        return " | ".join(f"({text})" if size > 1 else text for (size, _), text in zip(terms, shown, strict=True))


def _minimal(terms: Set[Term]) -> frozenset[Term]:
    """Absorption: drops every set that contains another one.

    Shorter sets are kept first, so a kept set is never dropped later and the limit can stop the work early.
    """
    if len(terms) < 2:
        return frozenset(terms)
    kept: list[Term] = []
    for term in sorted(terms, key=len):
        if not any(other <= term for other in kept):
            kept.append(term)
            if len(kept) > MAX_TERMS:
                raise LabelError(_TOO_MANY)
    return frozenset(kept)


TRUE = RoleExpression(frozenset({frozenset()}))
FALSE = RoleExpression(frozenset())
