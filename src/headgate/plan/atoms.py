"""An index of conditions that finds the weaker ones of a given condition by their position in an order, without trying
each.

It knows three ways to weaken a condition, all of which `implication` also claims: a wider range of the same expression,
more alternatives (`IN` lists and OR), and IS NOT NULL.

INVARIANT: weakening never leads back. Lists weaken to ranges, ranges to IS NOT NULL, all of these to OR, and none of
them the other way; each step leads to a strictly weaker condition. So a chain of weaker conditions has no cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headgate.plan.expressions import Compare, Expr, In, IsNull, Like, Literal, Not, Or
from headgate.plan.implication import orderly
from headgate.plan.ordered import Ordered, Place

NEAREST = 8
"""The most weaker conditions of each kind that are considered. Without a bound, adding a query would cost more the more
queries run."""

Alternative = tuple[str, str] | str


class Atoms:
    """The conditions of the selections over one input, each by its text, which identifies it."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._ranges: dict[tuple[str, str], Ordered[str]] = {}
        self._lists: dict[Alternative, Ordered[str]] = {}
        self._alternatives: dict[str, frozenset[Alternative]] = {}

    def put(self, atom: Expr) -> None:
        text = str(atom)
        self._uses[text] += 1
        if self._uses[text] > 1:
            return
        if (bound := _bound(atom)) is not None:
            line, place = bound
            self._ranges.setdefault(line, Ordered()).put((*place, text), text)
        elif len(alternatives := _alternatives(atom)) > 1:
            self._alternatives[text] = alternatives
            for one in alternatives:
                self._lists.setdefault(one, Ordered()).put((len(alternatives), text), text)

    def drop(self, atom: Expr) -> None:
        text = str(atom)
        self._uses[text] -= 1
        if self._uses[text]:
            return
        del self._uses[text]
        if (bound := _bound(atom)) is not None:
            line, place = bound
            self._ranges[line].drop((*place, text))
            if not self._ranges[line]:
                del self._ranges[line]
        for one in self._alternatives.pop(text, ()):
            self._lists[one].drop((len(_alternatives(atom)), text))
            if not self._lists[one]:
                del self._lists[one]

    def weaker(self, atom: Expr, most: int = NEAREST) -> Iterator[tuple[int, str]]:
        """The texts of other conditions that follow from this one, each with its distance."""
        for found in self._wider(atom, most), self._longer(atom, most), self._there(atom):
            yield from enumerate(found, 1)

    def _wider(self, atom: Expr, most: int) -> Iterator[str]:
        for line, place in _limits(atom):
            bounds = self._ranges.get(line)
            if bounds is not None:
                yield from bounds.before(place, most) if line[1] == ">" else bounds.since(place, most)

    def _longer(self, atom: Expr, most: int) -> Iterator[str]:
        """Lists that hold all of its alternatives and more. The search starts from the alternative with the fewest
        lists."""
        own = _alternatives(atom)
        lines = [self._lists.get(one) for one in sorted(own, key=str)]
        shared = [line for line in lines if line is not None]
        if len(shared) == len(own):
            for text in min(shared, key=len).since((len(own) + 1,), most):
                if own <= self._alternatives[text]:
                    yield text

    def _there(self, atom: Expr) -> Iterator[str]:
        if isinstance(atom, Compare | In | Like):
            texts = (str(Not(IsNull(part))) for part in atom.parts)
            yield from (text for text in texts if text in self._uses)


def independent(conditions: frozenset[Expr]) -> bool:
    """Whether no condition is weaker than another.

    Replace conditions of an independent set by weaker ones, or drop them, to get another independent set, and so on:
    this never returns to the first set. In a cycle, the strongest condition in which the sets differ would be in all of
    them.
    """
    if len(conditions) == 1:
        return True
    atoms = Atoms()
    for condition in conditions:
        atoms.put(condition)
    return not any(True for condition in conditions for _ in atoms.weaker(condition, len(conditions)))


def _bound(atom: Expr) -> tuple[tuple[str, str], Place] | None:
    """The position of a range on the line of its expression and direction: `> 5` after `>= 5`, `<= 5` after `< 5`."""
    match atom:
        case Compare("<" | "<=" | ">" | ">=" as operator, left, Literal() as right) if orderly(left.type, right):
            return (str(left), operator[0]), (right.value, operator in (">", "<="))
    return None


def _limits(atom: Expr) -> Iterator[tuple[tuple[str, str], Place]]:
    """For each line of ranges the position from which on ranges follow: those below it for `>`, those from it on for
    `<`."""
    if isinstance(atom, In):
        items = [item for item in atom.items if item.value is not None]
        if items and all(orderly(atom.operand.type, item) for item in items):
            values = [item.value for item in items]
            yield (str(atom.operand), ">"), (min(values), True)  # type: ignore[type-var]
            yield (str(atom.operand), "<"), (max(values), True)  # type: ignore[type-var]
    elif (bound := _bound(atom)) is not None:
        line, (value, second) = bound
        yield line, (value, second) if line[1] == ">" else (value, second + 1)


def _alternatives(atom: Expr) -> frozenset[Alternative]:
    match atom:
        case In(operand, items):
            name = str(operand)
            return frozenset((name, str(item)) for item in items)
        case Or(operands):
            return frozenset().union(*map(_alternatives, operands))
    return frozenset({str(atom)})
