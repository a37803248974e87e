"""Labels, clearances, and the decision: does this label permit this clearance?

`combine` gives results the protection of their inputs. `permits` decides in one place: the role check of paper 001, the
simple security property of paper 002, and the source check of paper 000, section 3.2 (strong, weak, aggregate-read).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headgate.labels.conjunction import EVERYBODY, NOBODY, Conjunction
from headgate.labels.levels import LEAST, Level, LevelOrder
from headgate.labels.roles import RESERVED
from headgate.lexing import quote


@dataclass(frozen=True)
class Label:
    """What protects a tuple: who may see it, at which levels, and which sources it came from.

    roles: the role expressions that must all be satisfied
    levels: the levels that a reader must dominate
    sources: the streams that the tuple was derived from
    aggregated: the sources that it was derived from through aggregates only; the text form does not show them

    INVARIANT: `aggregated` is a subset of `sources`.
    """

    roles: Conjunction = EVERYBODY
    levels: frozenset[Level] = frozenset()
    sources: frozenset[str] = frozenset()
    aggregated: frozenset[str] = frozenset()

    def as_aggregate(self) -> Label:
        """The label of an aggregate over tuples with this label."""
        return self if self.aggregated == self.sources else replace(self, aggregated=self.sources)

    def __str__(self) -> str:
        text = str(self.roles)
        if self.levels:
            text += " AT " + ", ".join(map(str, sorted(self.levels, key=Level.sort_key)))
        if self.sources:
            text += " FROM " + ", ".join(quote(source, RESERVED) for source in sorted(self.sources))
        return text


PUBLIC = Label()
FOR_NOBODY = Label(NOBODY)


class Semantics(StrEnum):
    """The owner's rule for results that have this stream among several sources."""

    STRONG = "STRONG"  # the reader may read this source
    WEAK = "WEAK"  # the reader may read at least one source of the result
    AGGREGATE = "AGGREGATE"  # as strong; aggregates also with the right AGGREGATE READ


@dataclass(frozen=True)
class Clearance:
    """The rights of a logged-in principal: roles, level, and the sources it may read whole or as aggregates."""

    roles: Set[str] = frozenset()
    level: Level = LEAST
    sources: Set[str] = frozenset()
    aggregate_sources: Set[str] = frozenset()


@dataclass(frozen=True)
class Rules:
    """The system's side of a decision: the order of levels and each source's semantics (default strong)."""

    order: LevelOrder = field(default_factory=LevelOrder)
    semantics: Mapping[str, Semantics] = field(default_factory=dict)

    def normal(self, label: Label) -> Label:
        """The canonical form: only maximal levels are kept."""
        levels = self.order.maximal(label.levels)
        return label if levels == label.levels else replace(label, levels=levels)

    def combine(self, a: Label, b: Label) -> Label:
        """The label of a result derived from both: the protection of both sides."""
        if a == b:
            return a
        levels = a.levels if a.levels == b.levels else self.order.maximal(a.levels | b.levels)
        sources, aggregated = a.sources | b.sources, a.aggregated | b.aggregated
        if aggregated:
            aggregated -= (a.sources - a.aggregated) | (b.sources - b.aggregated)
        return Label(a.roles & b.roles, levels, sources, aggregated)

    def combine_all(self, labels: Iterable[Label]) -> Label:
        """The label of a result derived from all of these, in time linear in their size."""
        parts = list(labels)
        levels = frozenset[Level]().union(*{part.levels for part in parts})
        origins = {(part.sources, part.aggregated) for part in parts}
        sources = frozenset[str]().union(*(own for own, _ in origins))
        whole = frozenset[str]().union(*(own - aggregated for own, aggregated in origins))
        roles = Conjunction.all_of([part.roles for part in parts])
        return Label(roles, self.order.maximal(levels), sources, sources - whole)

    def permits(
        self, label: Label, clearance: Clearance, *, aggregated: bool = False, beside: Set[str] = frozenset()
    ) -> bool:
        """Whether a label permits a clearance. `aggregated`: only an aggregate of the labelled tuples is read;
        `beside`: the streams of the join that every result is derived from."""
        return label.roles.satisfied_by(clearance.roles) and self.permits_whatever_roles(
            label, clearance, aggregated=aggregated, beside=beside
        )

    def permits_whatever_roles(
        self, label: Label, clearance: Clearance, *, aggregated: bool = False, beside: Set[str] = frozenset()
    ) -> bool:
        """The decision on levels and sources, for callers that check the roles themselves."""
        return all(self.order.dominates(clearance.level, level) for level in label.levels) and (
            label.sources <= clearance.sources
            or all(self._source_ok(source, label, clearance, aggregated, beside) for source in label.sources)
        )

    def _source_ok(
        self, source: str, label: Label, clearance: Clearance, aggregated: bool, beside: Set[str] = frozenset()
    ) -> bool:
        if source in clearance.sources:
            return True
        match self.semantics.get(source, Semantics.STRONG):
            case Semantics.WEAK:
                return not clearance.sources.isdisjoint(label.sources | beside)
            case Semantics.AGGREGATE:
                return (aggregated or source in label.aggregated) and source in clearance.aggregate_sources
            case _:
                return False

    def why_denied(self, label: Label, clearance: Clearance, *, aggregated: bool = False) -> list[str]:
        """The reasons of a denial, for people; empty if `permits` holds."""
        reasons = []
        if not label.roles.satisfied_by(clearance.roles):
            reasons.append(f"the active roles do not satisfy `{label.roles}`")
        reasons += [
            f"level `{clearance.level}` does not dominate `{level}`"
            for level in sorted(label.levels, key=str)
            if not self.order.dominates(clearance.level, level)
        ]
        reasons += [
            f"source {quote(source)} may not be read"
            for source in sorted(label.sources)
            if not self._source_ok(source, label, clearance, aggregated)
        ]
        return reasons
