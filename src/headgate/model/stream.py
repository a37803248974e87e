"""A stream descriptor: the definition of a stream or table, as ingress uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.cql.overload import REFUSE, Overload
from headgate.labels import PUBLIC, Label
from headgate.plan.expressions import Type


@dataclass(frozen=True)
class StreamDescriptor:
    """A stream, or a table, whose tuples are all read at once.

    event_time: the column that holds the event time; None: the time of arrival is used
    labels: the columns that hold labels, by kind (LABEL, ROLES, LEVEL)
    policy: the label that the owner puts on every tuple
    skew: how far ahead of the clock an event time may be, in milliseconds; None: any distance
    delay: how long tuples take to arrive at most, in milliseconds; None: not declared
    overload: which tuples a level goes without if too many wait for it
    """

    name: str
    columns: tuple[tuple[str, Type], ...]
    event_time: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: Label = PUBLIC
    skew: int | None = None
    table: bool = False
    delay: int | None = None
    overload: Overload = REFUSE
