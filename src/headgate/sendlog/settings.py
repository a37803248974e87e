"""How a node speaks and listens, and what it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from headgate.sendlog.engine import LIMIT
from headgate.sendlog.keys import LEVELS


@dataclass(frozen=True)
class Settings:
    """How a node speaks and listens.

    `scheme`: how `says` without a level is authenticated; less is not accepted. `batch`: statements under one tag, 0
    for as many as there are. `provenance`: none, distributed (pointers), local (whole derivations travel) or statements
    (of derivations only what was said travels: a packet's path). `offline`: trees are kept after their tuples are gone.
    `distrust`: statements that cannot do without these principals are refused. `keep`: messages are kept until they are
    acknowledged. `limit`: derivations in one change.
    """

    scheme: str = "ed25519"
    batch: int = 0
    provenance: str = "none"
    offline: bool = False
    distrust: frozenset[str] = frozenset()
    keep: bool = False
    limit: int = LIMIT

    @property
    def level(self) -> int:
        return LEVELS[self.scheme]


@dataclass
class Traffic:
    """What went out, and what was refused, by reason."""

    messages: int = 0
    bytes: int = 0
    statements: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
