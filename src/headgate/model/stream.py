"""A stream descriptor: what ingress knows of a stream or table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.labels import PUBLIC, Label
from headgate.plan.expressions import Type


@dataclass(frozen=True)
class StreamDescriptor:
    """What ingress knows of a stream, or of a table, all of whose tuples come at once. `labels` are the columns that
    hold labels, by what they hold; `skew` in milliseconds."""

    name: str
    columns: tuple[tuple[str, Type], ...]
    event_time: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: Label = PUBLIC
    skew: int | None = None
    table: bool = False
