"""Source batches, as the pipeline takes them: decoded with pushdown, read whole, or already in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.splits import Split
from headgate.ingress.validation import RawBatch
from headgate.model.rejected import RejectedRows
from headgate.model.tuples import TupleBatch


class SourceBatch(Protocol):
    """A batch of a stream that can be read in two ways: decoded with pushdown, or whole."""

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> Decoded | None:
        """Reads only the columns and tuples of the pushdown; `register` reads new labels. None: the batch must be read
        whole."""
        ...

    def all_rows(self) -> RawBatch:
        """Reads all rows and columns."""
        ...

    def size(self) -> int:
        """How many bytes it has, as far as that is known without reading it."""
        ...

    def splits(self) -> list[Split] | None:
        """The parts that tasks can read by themselves; None: tasks cannot."""
        ...


class Decoded(Protocol):
    @property
    def arrivals(self) -> TupleBatch: ...

    @property
    def tuples(self) -> int:
        """How many tuples the batch had, including dropped ones."""
        ...

    @property
    def unseen(self) -> int:
        """How many tuples were dropped because no view sees them."""
        ...

    @property
    def rejected(self) -> Sequence[RejectedRows]:
        """The rejected rows."""
        ...

    @property
    def pushdown(self) -> Pushdown:
        """The pushdown that it was read with."""
        ...


@dataclass(frozen=True)
class TableBatch:
    """A batch that is already in memory; it is always read whole."""

    table: pa.Table

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> None:
        pass

    def all_rows(self) -> RawBatch:
        return RawBatch(self.table)

    def size(self) -> int:
        return int(self.table.nbytes)

    def splits(self) -> None:
        pass
