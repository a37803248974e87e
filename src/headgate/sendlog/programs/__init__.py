"""The programs that come with Headgate: `text("chord")`."""

from __future__ import annotations

from importlib.resources import files

from headgate.errors import NotFound

NAMES = ("access", "best_path", "chord", "forwarding", "names", "path_vector", "pier", "reachability")


def text(*names: str) -> str:
    """The text of one program, or of several that run together."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise NotFound(f"there is no program `{unknown[0]}`", hint=f"there are {', '.join(NAMES)}")
    return "\n".join((files(__package__) / f"{name}.snd").read_text(encoding="utf-8") for name in names)
