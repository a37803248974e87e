"""One context's rules over much data, on Spark: the data is dealt out, every part runs in a task.

Parts are cells of a SparkNetwork without messages: changes are incremental, state is checkpointed, and the driver sees
only counts until rows are asked for. A program that cannot be dealt (see `decompose`) runs in one part.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from pyspark.sql import SparkSession

from headgate.sendlog.check import load
from headgate.sendlog.decompose import Dealing, dealing
from headgate.sendlog.settings import Settings
from headgate.sendlog.spark import SparkNetwork, Universe
from headgate.sendlog.values import Row, encoded

LIMIT = 100_000_000_000
"""Derivations in one change: much data is no endless program."""
Facts = Iterable[tuple[str, Row]]


class SparkData:
    """A program's tables on Spark; `parts` is how many tasks share the work."""

    def __init__(
        self, spark: SparkSession, program: str, *, parts: int = 2, watch: tuple[tuple[str, int], ...] = ()
    ) -> None:
        found = dealing(load(program))
        self.dealing: Dealing = found or {}
        self._parts = [f"part{i}" for i in range(parts if found else 1)]
        universe = Universe("data", program, tuple(self._parts), Settings("none", limit=LIMIT), watch)
        self._network = SparkNetwork(spark, [universe], partitions=len(self._parts))

    def insert(self, facts: Facts) -> None:
        self._network.insert(self._dealt(facts))

    def delete(self, facts: Facts) -> None:
        self._network.delete(self._dealt(facts))

    def rows(self, table: str) -> list[Row]:
        """For tables that fit the driver."""
        found = self._network.rows(table)
        return sorted({row for rows in found.values() for row in rows}, key=repr)

    def summary(self, table: str) -> tuple[int, float]:
        """How many rows a dealt and watched table has, and the sum of its column."""
        found = self._network.summary(table)
        return sum(count for _, _, count, _ in found), sum(total for _, _, _, total in found)

    def _dealt(self, facts: Facts) -> dict[str, list[tuple[str, Row]]]:
        found: dict[str, list[tuple[str, Row]]] = {part: [] for part in self._parts}
        for name, row in facts:
            column = self.dealing.get(name)
            if column is None:
                for part in found.values():
                    part.append((name, row))
            else:
                found[self._parts[zlib.crc32(encoded(row[column])) % len(self._parts)]].append((name, row))
        return found
