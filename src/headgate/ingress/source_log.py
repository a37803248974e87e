"""Keeps Spark's log of the files that a stream has read from growing for ever.

Spark writes every file it has ever read into a log beside its checkpoint, and rewrites that log every few batches: with
a file a second both its size and the time for a batch would grow day by day. A file that is gone cannot be read again,
so where files are removed after they were read (`cleanSource`) their entries are of no use. They are taken out while
the stream does not run; the stream goes on with the same batch numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

MOST = 1 << 20
"""Bytes of the log from which on it is trimmed."""


def is_cleaned(options: Mapping[str, str]) -> bool:
    """Whether files are removed, or moved away, after they were read."""
    chosen = next((value for name, value in options.items() if name.lower() == "cleansource"), "off")
    return chosen.lower() in ("delete", "archive")


def is_due(checkpoint: Path) -> bool:
    found = _newest(checkpoint)
    with suppress(OSError):
        return found is not None and found.stat().st_size > MOST
    return False


def trim(checkpoint: Path) -> None:
    """Takes entries of files that are gone out of the newest compacted log; those of batches that are not committed
    stay. Spark must not run on this checkpoint meanwhile. A log in another form than the known one stays as it is."""
    found = _newest(checkpoint)
    if found is None:
        return
    version, *lines = found.read_text().splitlines()
    committed = _last_commit(checkpoint)
    try:
        kept = [line for line in lines if _is_needed(json.loads(line), committed)]
    except (ValueError, KeyError, TypeError):
        return
    if len(kept) == len(lines):
        return
    new = found.with_name(f".{found.name}.trimmed")
    with open(new, "w", encoding="utf-8") as file:
        file.write("\n".join([version, *kept]))
        file.flush()
        os.fsync(file.fileno())
    found.with_name(f".{found.name}.crc").unlink(missing_ok=True)  # the checksum of what stood there before
    new.rename(found)


def _is_needed(entry: Mapping[str, object], committed: int) -> bool:
    address = urlsplit(str(entry["path"]))
    here = address.scheme == "file" and not address.netloc
    return not here or int(str(entry["batchId"])) >= committed or os.path.exists(unquote(address.path))


def _newest(checkpoint: Path) -> Path | None:
    names = [x for x in (checkpoint / "sources" / "0").glob("*.compact") if x.stem.isdigit()]
    return max(names, key=lambda x: int(x.stem), default=None)


def _last_commit(checkpoint: Path) -> int:
    return max((int(x.name) for x in (checkpoint / "commits").glob("*") if x.name.isdigit()), default=-1)
