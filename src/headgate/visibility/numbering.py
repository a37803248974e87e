"""The numbers of visibility rows by their identities: numbers change with rights, tuples keep the identities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headgate.columns.sorting import Ints, dense


@dataclass(frozen=True)
class Numbering:
    """`identities` are those of rows by their number; `replaced` are the identities that took the place of others."""

    identities: Ints
    replaced: Mapping[int, int]

    def __call__(self, identities: Ints) -> Ints:
        """The numbers of the rows that rows of these identities are now; -1 where none is known any more."""
        numbers = {identity: number for number, identity in enumerate(self.identities.tolist())}
        kinds, kind = dense(identities)
        now = (numbers.get(self.replaced.get(x, x), -1) for x in kinds.tolist())
        return np.fromiter(now, np.int64, len(kinds))[kind] if len(kinds) else np.empty(0, np.int64)
