"""Bell-LaPadula: who may read and write which level (paper 004, Figure 1; paper 002, section 2)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from headgate.realtime.arrays import Bools
from headgate.realtime.lattice import Lattice

WriteRule = Literal["above", "equal"]


def readable(lattice: Lattice) -> Bools:
    """`readable[k, j]`: transactions of level k may read items of level j, that is, at their level and below."""
    return lattice.dominates


def writable(lattice: Lattice, rule: WriteRule) -> Bools:
    """`writable[k, j]`: transactions of level k may write items of level j: at their level and above, or at it only."""
    if rule == "equal":
        return np.eye(len(lattice.levels), dtype=np.bool_)
    return lattice.dominates.T.copy()
