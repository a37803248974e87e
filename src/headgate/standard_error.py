"""Standard error, redirected at the file descriptor: libraries in C and processes that are started write there too."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def errors_to(file: Path) -> Iterator[None]:
    """Appends everything that is written to standard error to a private file, or to the null device."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        new = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.dup2(new, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(new)
    finally:
        os.close(kept)
