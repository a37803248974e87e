"""Where results go. Each batch has a version; writing a version again changes nothing, so a crash repeats no result."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from headgate.engine.processor import Delivery
from headgate.labels.text import parse_label


class Sink(Protocol):
    def write(self, version: int, deliveries: Sequence[Delivery]) -> None: ...


class FileSink:
    """JSON lines, one file for each query, subscriber and version that has results for it."""

    def __init__(self, folder: Path, columns: dict[str, tuple[str, ...]]) -> None:
        self._folder = folder
        self._columns = columns

    def write(self, version: int, deliveries: Sequence[Delivery]) -> None:
        files: dict[tuple[str, str], list[str]] = {}
        for delivery in deliveries:
            files.setdefault((delivery.query, delivery.subscriber), []).append(self._line(delivery))
        for (query, subscriber), lines in files.items():
            folder = self._folder / quote(query, safe="") / quote(subscriber, safe="")
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = folder / f"{version:015}.new"
            with new.open("w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
                file.flush()
                os.fsync(file.fileno())
            new.rename(folder / f"{version:015}.jsonl")

    def _line(self, delivery: Delivery) -> str:
        values = dict(zip(self._columns[delivery.query], map(plain_value, delivery.values), strict=True))
        time = dt.datetime.fromtimestamp(delivery.time / 1000, dt.UTC).isoformat()
        return json.dumps({"time": time, "label": str(delivery.label), **values}, ensure_ascii=False)


def plain_value(value: object) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value


def plain_delivery(delivery: Delivery) -> list[Any]:
    """As plain JSON, to be kept with the state until it is written."""
    kinds = [type(value).__name__ if isinstance(value, dt.date) else "" for value in delivery.values]
    values = [plain_value(value) for value in delivery.values]
    return [delivery.subscriber, delivery.query, delivery.block, delivery.time, values, kinds, str(delivery.label)]


def delivery_of(plain: list[Any]) -> Delivery:
    subscriber, query, block, time, values, kinds, label = plain
    readers = {"date": dt.date.fromisoformat, "datetime": dt.datetime.fromisoformat}
    read = tuple(readers[kind](value) if kind else value for value, kind in zip(values, kinds, strict=True))
    return Delivery(subscriber, query, block, time, read, parse_label(label))
