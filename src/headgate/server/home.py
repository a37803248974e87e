"""The home folder of a server: nobody but its user may open it or anything in it."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from headgate.errors import StoreError


def check_private(home: Path) -> None:
    """Refuses a home folder that other users of the machine can open, or that belongs to somebody else."""
    for path in _all(home):
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            raise StoreError(f"cannot serve `{home}`: `{path}` is a link", hint="put the file itself there")
        if found.st_uid != os.getuid():
            raise StoreError(f"cannot serve `{home}`: `{path}` belongs to another user", hint="serve as that user")
        if found.st_mode & 0o077:
            raise StoreError(
                f"cannot serve `{home}`: other users can open `{path}`", hint=f"run `chmod -R go= {home}` first"
            )


def _all(home: Path) -> Iterator[Path]:
    """The folder, what is in it, and keys. Below a folder that nobody else can open, nobody else can open anything."""
    yield home
    for path in sorted(home.iterdir()):
        yield path
        if path.name == "tls":
            yield from sorted(path.iterdir())


def secret(path: Path) -> bytes:
    """A key of 32 bytes, made when it is first needed."""
    if not path.exists():
        new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
    try:
        found = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        found = b""
    if len(found) != 32:
        raise StoreError(f"cannot use `{path}`: it is not a key", hint="put back the file that was there, or remove it")
    return found
