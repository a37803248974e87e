"""How loops over tuples run fast: ordinary functions over arrays, compiled by numba.

Numba keeps machine code on disk and looks only at the file of the function itself, so the folder is named after all
files of this package: code that was compiled against an older callee is never found again. Where no folder is writable,
every process compiles for itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

R = TypeVar("R")

_PACKAGE = Path(__file__).parent
_config: Any = numba.config


def _folder() -> str | None:
    """Where machine code of this version of the package is kept; None if it cannot be written."""
    sources = b"".join(file.read_bytes() for file in sorted(_PACKAGE.glob("*.py")))
    base = Path(os.environ.get("NUMBA_CACHE_DIR") or _PACKAGE / "__pycache__")
    folder = base / f"numba-loops-{hashlib.sha256(sources).hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(folder) if os.access(folder, os.W_OK) else None


_FOLDER = _folder()


def compiled(function: Callable[..., R], **options: Any) -> Callable[..., R]:
    """The function as machine code, with the same meaning. It runs without Python's global lock."""
    before = _config.CACHE_DIR
    if _FOLDER is not None:
        _config.CACHE_DIR = _FOLDER  # read at decoration; other packages keep their own folder
    try:
        return cast(Callable[..., R], numba.njit(cache=_FOLDER is not None, nogil=True, **options)(function))
    finally:
        _config.CACHE_DIR = before


def inlined(function: Callable[..., R]) -> Callable[..., R]:
    """The same for short functions called with every tuple: they become part of their caller. They create no array, so
    references to arrays are not counted: counting took most of the time."""
    return compiled(function, forceinline=True, _nrt=False)
