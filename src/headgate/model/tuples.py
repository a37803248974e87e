"""Tuple batches: labelled tuples in columns, from ingress to the operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.model.view import View


@dataclass(frozen=True)
class TupleBatch:
    """Tuples of one stream in order of arrival: times in milliseconds, label numbers, values by column."""

    stream: str
    times: Ints
    labels: Ints
    columns: Mapping[str, pa.Array]
    views: tuple[View, ...] | None = None
    """The views that receive these tuples; None: all views that may see them."""
