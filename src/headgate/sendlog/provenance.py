"""Why a tuple is there: derivation trees across principals, and expressions over the principals in them.

`+` joins the different derivations of a tuple, `*` what one derivation needs (paper 003, section 6.2). A trust policy
asks the expression: a tuple is accepted if some derivation does without the distrusted principals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headgate.sendlog.values import Row, ValueFault, canonical, shown_fact

MAX_NODES = 10_000
MAX_PRODUCTS = 64


@dataclass(frozen=True)
class Use:
    """One derivation: the rule, and the trees of its body."""

    rule: str
    body: tuple[Tree, ...]


@dataclass(frozen=True)
class Tree:
    """A tuple in the context `at`; `speaker` said it, `verified` is what its signature was found to be (None: none).

    Without uses it is a base fact of `at`, or a statement whose origin is not known here."""

    at: str
    name: str
    row: Row
    speaker: str = ""
    uses: tuple[Use, ...] = ()
    verified: bool | None = None

    def fact(self) -> str:
        says = f"{self.speaker} says " if self.speaker else ""
        return says + shown_fact(self.name, self.row)

    def nodes(self) -> Iterator[Tree]:
        yield self
        for use in self.uses:
            for tree in use.body:
                yield from tree.nodes()

    def expression(self) -> Expression:
        """Over principals: whoever holds the base facts, and whoever said what was used."""
        if not self.uses:
            return Expression.of(self.speaker or self.at)
        found = Expression(frozenset())
        for use in self.uses:
            product = Expression.of(self.at)
            for tree in use.body:
                product = product.times(tree.expression())
            found = found.plus(product)
        return found.times(Expression.of(self.speaker)) if self.speaker else found

    def listed(self, above: Tree | None = None) -> list[Any]:
        """As it travels with a message; 0 stands for the same tuple, or the same speaker, as one place above."""
        uses = [[use.rule, [tree.listed(self) for tree in use.body]] for use in self.uses]
        same = above is not None and (above.name, above.row) == (self.name, self.row)
        what = [0] if same else [self.name, self.row]
        return [self.at, 0 if self.speaker == self.at else self.speaker, uses, *what]

    @classmethod
    def of(cls, data: Any, above: Tree | None = None, depth: int = 0) -> Tree:
        """What `listed` made; a ValueFault for anything else that somebody may have sent."""
        if not isinstance(data, list) or len(data) not in (4, 5) or depth > 200:
            raise ValueFault("this is no derivation")
        at, speaker, uses, *what = data
        if what == [0] and above is not None:
            what = [above.name, above.row]
        if len(what) != 2:
            raise ValueFault("this is no derivation")
        name, values, speaker = what[0], canonical(what[1]), at if speaker == 0 else speaker
        if not all(isinstance(x, str) for x in (at, name, speaker)) or not isinstance(values, tuple):
            raise ValueFault("this is no derivation")
        if not isinstance(uses, list) or not all(isinstance(u, list) and len(u) == 2 for u in uses):
            raise ValueFault("this is no derivation")
        own = cls(at, name, values, speaker)
        made = []
        for rule, body in uses:
            if not isinstance(rule, str) or not isinstance(body, list):
                raise ValueFault("this is no derivation")
            made.append(Use(rule, tuple([cls.of(one, own, depth + 1) for one in body])))
        return cls(at, name, values, speaker, tuple(made))


@dataclass(frozen=True)
class Expression:
    """A sum of products of principals, as a set of sets. Beyond `MAX_PRODUCTS` only the minimal products are kept: a
    product that contains another never decides whether somebody is needed."""

    products: frozenset[frozenset[str]]

    @classmethod
    def of(cls, principal: str) -> Expression:
        return cls(frozenset({frozenset({principal})}))

    def plus(self, other: Expression) -> Expression:
        return Expression(_bounded(self.products | other.products))

    def times(self, other: Expression) -> Expression:
        return Expression(_bounded(frozenset(a | b for a in self.products for b in other.products)))

    def minimal(self) -> Expression:
        """Without products that contain another: `a + a*b` is `a`."""
        return Expression(_minimal(self.products))

    def without(self, distrusted: Iterable[str]) -> bool:
        """Whether a derivation remains that needs none of these principals."""
        refused = frozenset(distrusted)
        return any(not product & refused for product in self.products)

    def principals(self) -> frozenset[str]:
        return frozenset().union(*self.products)

    def __str__(self) -> str:
        return " + ".join(sorted("*".join(sorted(product)) for product in self.products)) or "nothing"


def _bounded(products: frozenset[frozenset[str]]) -> frozenset[frozenset[str]]:
    return products if len(products) <= MAX_PRODUCTS else _minimal(products)


def _minimal(products: Iterable[frozenset[str]]) -> frozenset[frozenset[str]]:
    kept: list[frozenset[str]] = []
    for product in sorted(set(products), key=len):
        if not any(known <= product for known in kept):
            kept.append(product)
    return frozenset(kept)
