"""How much work something takes: if it is the same whatever is hidden, its time tells nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headgate.access.state import RowTable
from headgate.labels import LevelOrder


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts every look-up in the state and every comparison of levels."""
    calls: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def counting(self: Any, *args: Any) -> Any:
            calls[f"{owner.__name__}.{name}"] += 1
            return real(self, *args)

        patch.setattr(owner, name, counting)

    with monkeypatch.context() as patch:
        for name in ("get", "find", "peek", "__iter__", "put", "remove"):
            count(RowTable, name)
        count(LevelOrder, "dominates")
        yield calls
