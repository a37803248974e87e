"""Batches as a pipeline takes them: of a source, to be read in one of two ways, or a table that is here already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.validation import Whole
from headgate.model.rejected import RejectedRows
from headgate.model.tuples import TupleBatch


class SourceBatch(Protocol):
    """A batch of a stream, to be read in one of two ways."""

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> Decoded | None:
        """Only what is wanted, if that can be; `learn` reads labels that are new."""
        ...

    def whole(self) -> Whole:
        """All of it."""
        ...


class Decoded(Protocol):
    @property
    def arrivals(self) -> TupleBatch: ...

    @property
    def tuples(self) -> int:
        """How many there were, unwanted ones included."""
        ...

    @property
    def unseen(self) -> int:
        """How many were dropped that nobody sees."""
        ...

    @property
    def refused(self) -> Sequence[RejectedRows]:
        """What is no tuple of the stream."""
        ...

    @property
    def pushdown(self) -> Pushdown:
        """What it was read for."""
        ...


@dataclass(frozen=True)
class TableBatch:
    """A batch that is here already."""

    table: pa.Table

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> None:
        pass

    def whole(self) -> Whole:
        return Whole(self.table)
