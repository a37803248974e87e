"""Which of many conditions are weaker than a given one, found by their place in an order and not by trying each.

Three kinds of weakening are known, all of them also claimed by `implication`: a wider range of the same expression, a
condition with more alternatives (`IN` lists and OR), and that a value is there at all. Each leads to strictly weaker
conditions only, never back: lists weaken to ranges, ranges to IS NOT NULL, all of these to OR, but none of them the
other way. Whoever follows it therefore never walks in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headgate.plan.expressions import Compare, Expr, In, IsNull, Like, Literal, Not, Or
from headgate.plan.implication import orderly
from headgate.plan.ordered import Ordered, Place

NEAREST = 8
"""So many weaker conditions of each kind are looked at: with more, adding a query would cost more the more run."""

Alternative = tuple[str, str] | str


class Atoms:
    """The conditions of the selections over one input, each by its text, which tells it from all others."""

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
        """The texts of conditions that follow from it, itself left out, each with how far away it is."""
        for found in self._wider(atom, most), self._longer(atom, most), self._there(atom):
            yield from enumerate(found, 1)

    def _wider(self, atom: Expr, most: int) -> Iterator[str]:
        for line, place in _limits(atom):
            bounds = self._ranges.get(line)
            if bounds is not None:
                yield from bounds.before(place, most) if line[1] == ">" else bounds.since(place, most)

    def _longer(self, atom: Expr, most: int) -> Iterator[str]:
        """Lists that hold all of its alternatives and more, looked for where the fewest are."""
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
    """Whether none of them is weaker than another.

    Go from one independent set to another that is made of its conditions or weaker ones, and so on: there is no way
    back. On a way back the strongest condition in which the sets differ would be in all of them.
    """
    if len(conditions) == 1:
        return True
    atoms = Atoms()
    for condition in conditions:
        atoms.put(condition)
    return not any(True for condition in conditions for _ in atoms.weaker(condition, len(conditions)))


def _bound(atom: Expr) -> tuple[tuple[str, str], Place] | None:
    """Where a range stands: on the line of its expression and direction, `> 5` after `>= 5`, `<= 5` after `< 5`."""
    match atom:
        case Compare("<" | "<=" | ">" | ">=" as operator, left, Literal() as right) if orderly(left.type, right):
            return (str(left), operator[0]), (right.value, operator in (">", "<="))
    return None


def _limits(atom: Expr) -> Iterator[tuple[tuple[str, str], Place]]:
    """For each line of ranges the place from which on they follow: below it for `>`, from it on for `<`."""
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
