"""Labels as plain JSON values for storage: exact at any size, with each role expression written once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headgate.labels.conjunction import Conjunction
from headgate.labels.label import Label
from headgate.labels.levels import Level
from headgate.labels.roles import RoleExpression


def plain_labels(labels: Iterable[Label]) -> dict[str, Any]:
    """Writes labels. `choices` lists the role expressions with several alternatives; labels name them by position."""
    places: dict[RoleExpression, int] = {}
    plain = [
        [
            sorted(label.roles.required),
            [places.setdefault(choice, len(places)) for choice in label.roles.choices],
            [[level.name, sorted(level.compartments)] for level in label.levels],
            sorted(label.sources),
            sorted(label.aggregated),
        ]
        for label in labels
    ]
    return {"choices": [[sorted(term) for term in choice.terms] for choice in places], "labels": plain}


def labels_of(plain: Mapping[str, Any]) -> list[Label]:
    choices = [RoleExpression(frozenset(map(frozenset, terms))) for terms in plain["choices"]]
    return [
        Label(
            Conjunction(frozenset(required), frozenset(choices[place] for place in places)),
            frozenset(Level(name, frozenset(compartments)) for name, compartments in levels),
            frozenset(sources),
            frozenset(aggregated),
        )
        for required, places, levels, sources, aggregated in plain["labels"]
    ]
