"""A home folder as one file, and back: store, keys, state, and tuples that wait, all of one moment.

Whoever calls this has the folder alone. A store that is elsewhere (PostgreSQL) is not in the file: its own tools back
it up, at the same moment.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from headgate.errors import Conflict, StoreError
from headgate.home import LOCK, SOCKET

_MANIFEST = "backup.json"
_FORMAT = 1
_LEFT_OUT = {LOCK, SOCKET, "server.log", "session"}
"""Files of a moment: a restored folder has no server and nobody logged in."""
_SCRATCH = {"tmp", "warehouse"}
"""Folders of Spark's own below a state."""


def back_up(home: Path, file: Path) -> int:
    """Writes the folder into a new file that only its owner can read; returns the number of files."""
    if file.exists():
        raise Conflict(f"cannot write `{file}`: it is there already", hint="choose another name")
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    count = 0
    try:
        with (
            os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened,
            tarfile.open(fileobj=opened, mode="w:gz", compresslevel=1) as tar,
        ):
            _add_manifest(tar, home)
            for path in _files(home):
                tar.add(path, path.relative_to(home), recursive=False)
                count += path.is_file()
        with open(new, "rb") as written:
            os.fsync(written.fileno())
        new.rename(file)
    finally:
        new.unlink(missing_ok=True)
    return count


def _files(home: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(home):
        here = Path(folder)
        folders[:] = sorted(x for x in folders if here == home or x not in _SCRATCH)
        for name in [*folders, *sorted(files)]:
            if not (here == home and name in _LEFT_OUT):
                yield here / name


def _add_manifest(tar: tarfile.TarFile, home: Path) -> None:
    content = json.dumps({"format": _FORMAT, "home": str(home.absolute())}).encode()
    entry = tarfile.TarInfo(_MANIFEST)
    entry.size, entry.mode = len(content), 0o600
    tar.addfile(entry, io.BytesIO(content))


def restore(file: Path, home: Path) -> Path:
    """Unpacks a backup beside the place of a home folder, and returns where; `put_in_place` ends it. Overwrites
    nothing."""
    if home.exists():
        raise Conflict(f"cannot restore `{home}`: it is there already", hint="move it away first")
    folder = home.with_name(f".{home.name}.{secrets.token_hex(4)}")
    folder.mkdir(parents=True, mode=0o700)
    try:
        with tarfile.open(file, "r:gz") as tar:
            for entry in tar:
                entry.mode = 0o700 if entry.isdir() else 0o600
                tar.extract(entry, folder, filter="data")
        found = json.loads((folder / _MANIFEST).read_text())
        if found["format"] != _FORMAT:
            raise StoreError(f"cannot restore `{file}`: it was written by another version")
        if found["home"] != str(home.absolute()) and (folder / "engine").exists():
            raise Conflict(
                f"cannot restore to `{home}`: the state in it names files below `{found['home']}`",
                hint="restore it to that path",
            )
        (folder / _MANIFEST).unlink()
    except BaseException as error:
        shutil.rmtree(folder)
        if isinstance(error, tarfile.TarError | EOFError | ValueError | KeyError) or (
            isinstance(error, OSError) and error.filename is None
        ):
            raise StoreError(f"cannot restore `{file}`: it is not a backup, or it is damaged") from None
        raise
    return folder


def put_in_place(folder: Path, home: Path) -> None:
    """Gives a restored folder its name, unless something has that name by now."""
    if home.exists():
        raise Conflict(f"cannot restore `{home}`: it is there already", hint="move it away first")
    folder.rename(home)
