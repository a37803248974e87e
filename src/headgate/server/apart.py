"""Levels apart in the server: which folders, sinks and shares the processor of each level has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.egress.level_logs import LevelLogs
from headgate.egress.owner_files import OwnerFiles
from headgate.egress.sinks import Sink
from headgate.labels import Level
from headgate.levels.child import ProcessChild, Resources
from headgate.levels.shepherd import LevelsSetting
from headgate.model.snapshot import CatalogSnapshot
from headgate.server.level_settings import LevelUse, resources
from headgate.service import Headgate
from headgate.service.folders import Folders
from headgate.service.runs import LevelsApart


def levels_apart(
    headgate: Headgate,
    home: Path,
    owners: Path,
    logs: LevelLogs,
    architecture: str,
    usual: Resources | None = None,
    uses: Mapping[str, LevelUse] | None = None,
) -> LevelsApart:
    """`home` is the folder of the engine, `owners` the one of what only owners of streams receive; `usual` is what
    every level may use, `uses` what is declared for single ones."""

    def sinks(level: Level | None) -> Sequence[Sink]:
        if level is None:
            return [OwnerFiles(owners, Folders(headgate))]
        return [OwnerFiles(home / "level-owners" / folder_of(level), Folders(headgate)), logs.of(str(level))]

    def share(level: Level, snapshot: CatalogSnapshot) -> Resources:
        return resources(level, snapshot.rules.order, usual or Resources(), uses or {})

    setting = LevelsSetting(architecture, ProcessChild, share, headgate.snapshots.stream_levels)
    return LevelsApart(setting, sinks)


def folder_of(level: Level) -> str:
    """A name for a folder that no other level has."""
    return str(level).encode().hex()
