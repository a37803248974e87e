"""A stand-in for Spark as a writer of results."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from headgate.egress.spark_sink import COLUMNS


class Written:
    """Stands in for Spark: keeps rows, and fails when it is told to, after having written some of them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.only: int | None = None

    def __call__(self) -> Any:
        conf = SimpleNamespace(get=lambda _: "0", set=lambda _, value: int(value))
        return SimpleNamespace(createDataFrame=self._frame, conf=conf)

    def _frame(self, table: pa.Table) -> Any:
        assert table.schema == COLUMNS

        def save() -> None:
            self.rows += table.to_pylist()[: self.only]
            if self.only is not None:
                raise OSError("gone in the middle")

        end = SimpleNamespace(save=save)
        return SimpleNamespace(
            coalesce=lambda _: SimpleNamespace(
                write=SimpleNamespace(
                    format=lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(mode=lambda _: end))
                )
            )
        )

    def once(self) -> list[int]:
        """What a reader has who drops repetitions."""
        found = {row["key"]: json.loads(row["value"]).get("values", {}).get("a") for row in reversed(self.rows)}
        return sorted(found.values())
