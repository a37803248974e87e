"""Attribute labels: a column may carry a label of its own; whom it does not permit reads NULL there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from headgate.labels.label import Clearance, Label, Rules

V = TypeVar("V")


@dataclass(frozen=True)
class AttributeLabels:
    """The labels of a stream's columns; a column without one is protected by its tuple's label alone."""

    columns: Mapping[str, Label]

    def hidden(self, rules: Rules, clearance: Clearance) -> frozenset[str]:
        return frozenset(c for c, label in self.columns.items() if not rules.permits(label, clearance))

    def mask(self, row: Mapping[str, V], rules: Rules, clearance: Clearance) -> dict[str, V | None]:
        """The row as this clearance reads it."""
        hidden = self.hidden(rules, clearance)
        return {column: None if column in hidden else value for column, value in row.items()}
