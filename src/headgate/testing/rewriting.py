"""Rewrites a query into another text of equal meaning, to test that plans and results do not depend on the spelling.

Every step preserves the meaning by SQL's own laws, NULL included; the random generator chooses the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from headgate.cql import expressions as x
from headgate.cql.names import Name
from headgate.cql.queries import BlockSyntax, ItemSyntax, QuerySyntax, SourceSyntax, WindowSyntax, parse_query
from headgate.errors import TextError
from headgate.plan.reserved import LEVEL
from headgate.testing.spelling import query_text, respelled

FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def rewritten(rng: Random, query: str | QuerySyntax) -> str:
    """A text with the same plan, and the same results, names of results and order."""
    syntax = parse_query(query) if isinstance(query, str) else query
    for _ in range(3):
        blocks = tuple(_Rewriter(rng, block).block() for block in syntax.blocks)
        roles = tuple(rng.sample(syntax.roles, len(syntax.roles)))
        text = respelled(rng, query_text(rng, replace(syntax, blocks=blocks, roles=roles)))
        try:
            parse_query(text)
        except TextError:  # it has grown beyond a limit
            continue
        return text
    return respelled(rng, query_text(rng, syntax))


class _Rewriter:
    """Rewrites one block; `names` are the new names of its sources."""

    def __init__(self, rng: Random, syntax: BlockSyntax) -> None:
        self.rng = rng
        self.syntax = syntax
        self.star = any(item.star and item.qualifier is None for item in syntax.items)
        self.names: dict[str, str] = {}
        if not (self.star and len(syntax.sources) > 1):  # `SELECT *` may name results after sources
            called = [_called(source) for source in syntax.sources]
            new = rng.sample([f"z{number}" for number in range(20)], len(called))
            self.names = {old.casefold(): name for old, name in zip(called, new, strict=True) if self.chance(0.5)}

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def block(self) -> BlockSyntax:
        s = self.syntax
        sources = [self._source(source) for source in s.sources]
        before, sources = self._levels(self._condition(s.before), sources)
        if not self.star:
            sources = self._shuffled(sources)
        groups = [self._name(name) for name in s.groups]
        return replace(
            s,
            operator=s.operator or (self.rng.choice((None, "ISTREAM"))),
            items=tuple(self._item(item) for item in s.items),
            before=before,
            sources=tuple(sources),
            after=self._condition(s.after),
            groups=tuple(self.rng.sample(groups, len(groups))),
            having=self._condition(s.having),
        )

    # Sources --------------------------------------------------------------------------------------------------------

    def _source(self, source: SourceSyntax) -> SourceSyntax:
        new = self.names.get(_called(source).casefold())
        alias = Name(new, source.target.position) if new else source.alias
        window = source.window
        if window is not None:
            columns = [self._name(name) for name in window.columns]
            window = replace(window, columns=tuple(self.rng.sample(columns, len(columns))))
        return SourceSyntax(source.target, window, alias)

    def _levels(
        self, before: x.Syntax | None, sources: list[SourceSyntax]
    ) -> tuple[x.Syntax | None, list[SourceSyntax]]:
        """`LEVEL = ...` in a window is a condition before FROM."""
        changed = []
        for source in sources:
            window = source.window
            if window is not None and window.level is not None and self.chance(0.5):
                at = window.position
                name = x.NameSyntax(at, _called(source), LEVEL)
                condition = x.BinarySyntax(at, "=", name, window.level)
                before = x.BinarySyntax(at, "AND", before, condition) if before else condition
                window = _without_level(window)
            changed.append(SourceSyntax(source.target, window, source.alias))
        return before, changed

    def _shuffled(self, sources: list[SourceSyntax]) -> list[SourceSyntax]:
        """Sources of one stream keep their order, which is the order of results."""
        shuffled = self.rng.sample(sources, len(sources))
        waiting = list(sources)
        found = []
        for source in shuffled:
            first = next(other for other in waiting if other.target.name == source.target.name)
            waiting.remove(first)
            found.append(first)
        return found

    # Expressions ----------------------------------------------------------------------------------------------------

    def _item(self, item: ItemSyntax) -> ItemSyntax:
        qualifier = item.qualifier
        if qualifier is not None:
            qualifier = Name(self.names.get(qualifier.text.casefold(), qualifier.text), qualifier.position)
        expression = self._rewrite(item.expression) if item.expression else None
        return replace(item, expression=expression, qualifier=qualifier)

    def _condition(self, syntax: x.Syntax | None) -> x.Syntax | None:
        return self._rewrite(syntax) if syntax else None

    def _name(self, name: x.NameSyntax) -> x.NameSyntax:
        if name.qualifier is None:
            return name
        return replace(name, qualifier=self.names.get(name.qualifier.casefold(), name.qualifier))

    def _rewrite(self, syntax: x.Syntax) -> x.Syntax:
        match syntax:
            case x.NameSyntax():
                return self._name(syntax)
            case x.BinarySyntax(operator="AND" | "OR"):
                return self._chain(syntax)
        found = mapped(syntax, self._rewrite)
        match found:
            case x.BinarySyntax() if found.operator in FLIPPED:
                found = self._comparison(found)
            case x.InSyntax() if self.chance(0.5):
                found = self._alternatives(found)
            case x.BetweenSyntax() if self.chance(0.5):
                found = self._bounds(found)
            case x.IsNullSyntax() | x.LikeSyntax() if found.negated and self.chance(0.5):
                found = _not(replace(found, negated=False))
            case x.InSyntax() | x.BetweenSyntax() if found.negated and self.chance(0.5):
                found = _not(replace(found, negated=False))
            case x.UnarySyntax(operator="NOT"):
                pass
            case _:
                return found
        return _not(_not(found)) if self.chance(0.1) else found

    def _chain(self, syntax: x.BinarySyntax) -> x.Syntax:
        members = [self._rewrite(member) for member in _chained(syntax)]
        if self.chance(0.1):
            members.append(self.rng.choice(members))
        self.rng.shuffle(members)
        if self.chance(0.2):
            other = "OR" if syntax.operator == "AND" else "AND"
            return _not(self._joined(other, [_not(member) for member in members]))
        return self._joined(syntax.operator, members)

    def _joined(self, operator: str, members: list[x.Syntax]) -> x.Syntax:
        if len(members) == 1:
            return members[0]
        place = self.rng.randrange(1, len(members)) if self.chance(0.2) else len(members) - 1
        left, right = self._joined(operator, members[:place]), self._joined(operator, members[place:])
        return x.BinarySyntax(left.position, operator, left, right)

    def _comparison(self, found: x.BinarySyntax) -> x.Syntax:
        if self.chance(0.5):
            found = replace(found, operator=FLIPPED[found.operator], left=found.right, right=found.left)
        if found.operator == "=" and self.chance(0.3):
            return x.InSyntax(found.position, found.left, (found.right,), negated=False)
        return _not(replace(found, operator=NEGATED[found.operator])) if self.chance(0.2) else found

    def _alternatives(self, found: x.InSyntax) -> x.Syntax:
        each = [x.BinarySyntax(found.position, "=", found.operand, item) for item in found.items]
        if not found.negated:
            return self._joined("OR", [self._comparison(one) for one in each])
        return self._joined("AND", [self._comparison(replace(one, operator="<>")) for one in each])

    def _bounds(self, found: x.BetweenSyntax) -> x.Syntax:
        low = x.BinarySyntax(found.position, ">=", found.operand, found.low)
        high = x.BinarySyntax(found.position, "<=", found.operand, found.high)
        both = self._joined("AND", [self._comparison(low), self._comparison(high)])
        return _not(both) if found.negated else both


def _called(source: SourceSyntax) -> str:
    return source.alias.text if source.alias else source.target.name


def _without_level(window: WindowSyntax) -> WindowSyntax:
    return replace(window, level=None)


def _not(syntax: x.Syntax) -> x.Syntax:
    return x.UnarySyntax(syntax.position, "NOT", syntax)


def _chained(syntax: x.BinarySyntax) -> list[x.Syntax]:
    """The members of a chain of AND or OR; the levels in `LEVEL = "S" OR "TS"` become comparisons."""
    found: list[x.Syntax] = []
    waiting: list[x.Syntax] = [syntax]
    while waiting:
        top = waiting.pop()
        if isinstance(top, x.BinarySyntax) and top.operator == syntax.operator:
            waiting += [top.right, top.left]
        elif isinstance(top, x.LiteralSyntax) and isinstance(top.value, str):
            found.append(_same_operand(found[-1], top))
        else:
            found.append(top)
    return found


def _same_operand(last: x.Syntax, level: x.LiteralSyntax) -> x.Syntax:
    match last:
        case x.BinarySyntax(operator="=", left=left, right=right):
            operand = right if isinstance(left, x.LiteralSyntax) else left
        case x.InSyntax(operand=operand):
            pass
        case _:
            return level
    return x.BinarySyntax(level.position, "=", operand, level)


def mapped(syntax: x.Syntax, change: Callable[[x.Syntax], x.Syntax]) -> x.Syntax:
    """The same syntax with every part changed."""
    match syntax:
        case x.BinarySyntax():
            return replace(syntax, left=change(syntax.left), right=change(syntax.right))
        case x.BetweenSyntax():
            return replace(syntax, operand=change(syntax.operand), low=change(syntax.low), high=change(syntax.high))
        case x.InSyntax():
            return replace(syntax, operand=change(syntax.operand), items=tuple(map(change, syntax.items)))
        case x.UnarySyntax() | x.LikeSyntax() | x.IsNullSyntax() | x.CastSyntax():
            return replace(syntax, operand=change(syntax.operand))
        case x.CallSyntax():
            return replace(syntax, arguments=tuple(map(change, syntax.arguments)))
        case x.CaseSyntax():
            branches = tuple((change(condition), change(value)) for condition, value in syntax.branches)
            return replace(syntax, branches=branches, otherwise=change(syntax.otherwise) if syntax.otherwise else None)
    return syntax
