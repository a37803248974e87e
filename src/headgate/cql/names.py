"""What statements name: objects, people, limits. These values are used where no statement is read, too."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import Position

Limit = int | float | tuple[str, ...]


@dataclass(frozen=True)
class Name:
    text: str
    position: Position


@dataclass(frozen=True)
class Target:
    """An object as a statement names it: `STREAM in1`, `STREAM joe.in1`, `OPERATOR join`, `SYSTEM`."""

    kind: str
    name: str
    owner: str | None
    position: Position
