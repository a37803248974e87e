"""The architecture that the state of a home folder was made by."""

from __future__ import annotations

from pathlib import Path

from headgate.errors import Conflict


def check_architecture(home: Path, architecture: str) -> None:
    """Refuses to go on with the state of another architecture, which would begin from nothing."""
    file = home / "architecture"
    known = file.read_text() if file.exists() else "trusted" if (home / "state").exists() else architecture
    if known != architecture:
        raise Conflict(
            f"cannot serve with the architecture `{architecture}`: the state in `{home}` is of `{known}`",
            hint=f"serve with `{known}`, or remove `{home}`: then windows begin empty and unread results are lost",
        )
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(architecture)
