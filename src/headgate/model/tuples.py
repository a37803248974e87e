"""Tuples on their way through the engine, in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.model.view import View


@dataclass(frozen=True)
class TupleBatch:
    """Tuples of one stream in the order of their arrival: times, numbers of labels, values by column."""

    stream: str
    times: Ints
    labels: Ints
    columns: Mapping[str, pa.Array]
    views: tuple[View, ...] | None = None
    """Those that these tuples are meant for; None: all that may see them."""
