"""Batches as a pipeline takes them: of a source, to be read in one of two ways, or a table that is here already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate.engine.ingress import Refused, Whole
from headgate.engine.processor import Arrivals
from headgate.engine.wanted import Learn, Wanted


class Incoming(Protocol):
    """A batch of a stream, to be read in one of two ways."""

    def compact(self, wanted: Wanted, now: int, learn: Learn) -> Compacted | None:
        """Only what is wanted, if that can be; `learn` reads labels that are new."""
        ...

    def whole(self) -> Whole:
        """All of it."""
        ...


class Compacted(Protocol):
    @property
    def arrivals(self) -> Arrivals: ...

    @property
    def tuples(self) -> int:
        """How many there were, unwanted ones included."""
        ...

    @property
    def unseen(self) -> int:
        """How many were dropped that nobody sees."""
        ...

    @property
    def refused(self) -> Sequence[Refused]:
        """What is no tuple of the stream."""
        ...

    @property
    def wanted(self) -> Wanted:
        """What it was read for."""
        ...


@dataclass(frozen=True)
class TableBatch:
    """A batch that is here already."""

    table: pa.Table

    def compact(self, wanted: Wanted, now: int, learn: Learn) -> None:
        pass

    def whole(self) -> Whole:
        return Whole(self.table)
