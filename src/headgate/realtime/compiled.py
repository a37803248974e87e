"""How the state machines run fast: one implementation in plain Python, compiled by numba.

A function marked `@compiled` is an ordinary Python function over arrays. Numba keeps its machine code on disk; it looks
only at the file of the function itself, so the folder is named after all files of this package: code that was compiled
against an older callee is never found again. `NUMBA_DISABLE_JIT=1` runs the same functions uncompiled, to debug them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = Path(__file__).parent


def _digest() -> str:
    sources = b"".join(file.read_bytes() for file in sorted(_PACKAGE.glob("*.py")))
    return hashlib.sha256(sources).hexdigest()[:16]


_config: Any = numba.config
if not _config.CACHE_DIR:
    _config.CACHE_DIR = str(_PACKAGE / "__pycache__" / f"numba-{_digest()}")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function as machine code, with the same meaning."""
    return cast(Callable[P, R], numba.njit(cache=True, forceinline=True)(function))
