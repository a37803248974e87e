"""Attribute labels: a column may have a label of its own; a clearance that it does not permit reads NULL there
(SPEC.md, 2.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from headgate.labels.label import Clearance, Label, Rules

V = TypeVar("V")


@dataclass(frozen=True)
class AttributeLabels:
    """The labels of a stream's columns; a column without a label is protected by the label of its tuple alone."""

    columns: Mapping[str, Label]

    def hidden(self, rules: Rules, clearance: Clearance) -> frozenset[str]:
        return frozenset(c for c, label in self.columns.items() if not rules.permits(label, clearance))

    def mask(self, row: Mapping[str, V], rules: Rules, clearance: Clearance) -> dict[str, V | None]:
        """The row as this clearance reads it."""
        hidden = self.hidden(rules, clearance)
        return {column: None if column in hidden else value for column, value in row.items()}
