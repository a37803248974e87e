"""Levels apart in the server: which folders, sinks and shares the processor of each level has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headgate.egress.level_logs import LevelLogs
from headgate.egress.owner_files import OwnerFiles
from headgate.egress.sinks import Sink
from headgate.labels import Level
from headgate.levels.child import ProcessChild, Resources
from headgate.levels.shepherd import LevelsSetting
from headgate.model.snapshot import CatalogSnapshot
from headgate.service import Headgate
from headgate.service.folders import Folders
from headgate.service.runs import LevelsApart

_LOWEST = 19
"""The lowest priority, as a value of `nice`."""


def levels_apart(
    headgate: Headgate, home: Path, owners: Path, logs: LevelLogs, architecture: str, memory: int, backlog: int
) -> LevelsApart:
    """`home` is the folder of the engine, `owners` the one of what only owners of streams receive."""

    def sinks(level: Level | None) -> Sequence[Sink]:
        if level is None:
            return [OwnerFiles(owners, Folders(headgate))]
        return [OwnerFiles(home / "level-owners" / folder_of(level), Folders(headgate)), logs.of(str(level))]

    def share(level: Level, snapshot: CatalogSnapshot) -> Resources:
        return Resources(priority(level, snapshot), memory, backlog)

    setting = LevelsSetting(architecture, ProcessChild, share, headgate.snapshots.stream_levels)
    return LevelsApart(setting, sinks)


def priority(level: Level, snapshot: CatalogSnapshot) -> int:
    """As a value of `nice`: the declared levels, from the lowest to the highest, divide the range between them."""
    order = snapshot.rules.order
    highest = max((order.height(Level(name)) for name in order.above), default=1)
    return min(_LOWEST, round(_LOWEST * order.height(level) / max(1, highest)))


def folder_of(level: Level) -> str:
    """A name for a folder that no other level has."""
    return str(level).encode().hex()
