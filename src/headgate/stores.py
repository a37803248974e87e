"""Places for state that are given by a URI: a folder that several machines share, or a store of Arrow's.

`file:///folder` is a folder that all machines mount. The group that owns it may read and write: workers of a cluster
run as another user. `s3://bucket/folder` is an object store. Credentials come from a file of options or, without one,
from where Amazon's own tools take them; they are in no text that is shown, and travel to workers with Spark's own
messages only.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as fs

from headgate.errors import HeadgateError
from headgate.storage import Content, LocalStorage, Storage

S3_OPTIONS = ("access_key", "secret_key", "session_token", "region", "endpoint", "scheme")
_FORMS = "write file:///FOLDER or s3://BUCKET/FOLDER"
_AWS_ERROR = re.compile(r"AWS Error ([A-Z_]+)")
_NOT_THERE = "AWS Error NO_SUCH"


@dataclass(frozen=True)
class StateLocation:
    """A URI, and the options of its store; `str` and `repr` show no option."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        found = urlsplit(self.uri)
        if found.scheme not in ("file", "s3") or found.query or found.fragment:
            raise HeadgateError(f"cannot keep state at `{self._shown}`", hint=_FORMS)
        if found.username or found.password:
            raise HeadgateError(
                "cannot keep state at a URI with a password in it", hint="write it into a file of options"
            )
        if found.scheme == "file" and (found.netloc or not found.path.strip("/")):
            raise HeadgateError(f"cannot keep state at `{self._shown}`", hint=_FORMS)
        if found.scheme == "s3" and not (found.netloc and found.path.strip("/")):
            raise HeadgateError(f"cannot keep state at `{self._shown}`", hint=_FORMS)
        unknown = sorted(self.options.keys() - set(S3_OPTIONS if found.scheme == "s3" else ()))
        if unknown:
            names = f"there are {', '.join(S3_OPTIONS)}" if found.scheme == "s3" else "a folder has none"
            raise HeadgateError(f"cannot keep state at `{self.uri}`: there is no option `{unknown[0]}`", hint=names)

    @property
    def _shown(self) -> str:
        """Without a part that could be a password."""
        return self.uri.partition("?")[0].rpartition("@")[2]

    def __str__(self) -> str:
        return self.uri

    def below(self, name: str) -> StateLocation:
        return StateLocation(f"{self.uri.rstrip('/')}/{quote(name, safe='')}", self.options)

    def storage(self) -> Storage:
        found = urlsplit(self.uri)
        if found.scheme == "file":
            return SharedStorage(Path(unquote(found.path)))
        return ObjectStorage(self)


class SharedStorage(LocalStorage):
    """A folder that machines share: its group may read and write."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HeadgateError(f"cannot keep state in `{folder}`: {(error.strerror or str(error)).lower()}") from None
        super().__init__(folder)
        with suppress(PermissionError):  # another user made it
            folder.chmod(folder.stat().st_mode & stat.S_ISGID | 0o770)

    def _unfinished(self, name: str, content: Content, *, durable: bool) -> str:
        path = super()._unfinished(name, content, durable=durable)
        os.chmod(path, 0o660)
        return path


class ObjectStorage(Storage):
    """Objects of a bucket. An object is there whole or not at all, and none is renamed."""

    def __init__(self, place: StateLocation) -> None:
        self._place = place

    def __str__(self) -> str:
        return str(self._place)

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[StateLocation]]:
        """Each process makes a connection of its own."""
        return ObjectStorage, (self._place,)

    @cached_property
    def _folder(self) -> str:
        found = urlsplit(self._place.uri)
        return f"{found.netloc}/{unquote(found.path).strip('/')}"

    @cached_property
    def _store(self) -> fs.FileSystem:
        given = dict(self._place.options)
        endpoint = given.pop("endpoint", None)
        with _reported():
            return fs.S3FileSystem(**given, endpoint_override=endpoint, connect_timeout=10, request_timeout=30)

    def write(self, name: str, content: Content, *, durable: bool = True) -> None:  # noqa: ARG002
        with _reported(), self._store.open_output_stream(f"{self._folder}/{name}") as file:
            file.write(content)

    def commit(self, name: str, content: Content) -> bool:
        """A store need not create exclusively: no two processes commit the same name, because each has an epoch."""
        with _reported():
            if self._store.get_file_info(f"{self._folder}/{name}").type != fs.FileType.NotFound:
                return False
        self.write(name, content)
        return True

    def read(self, name: str) -> pa.Buffer:
        with _reported(), self._store.open_input_file(f"{self._folder}/{name}") as file:
            return file.read_buffer()

    def names(self) -> list[str]:
        with _reported():
            found = self._store.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        return sorted(x.base_name for x in found if x.type == fs.FileType.File)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError), _reported():
                self._store.delete_file(f"{self._folder}/{name}")


@contextmanager
def _reported() -> Iterator[None]:
    """Errors of a store say its own code and nothing else: its texts repeat parts of requests."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        if _NOT_THERE in str(error):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
        found = _AWS_ERROR.search(str(error))
        raise OSError(errno.EIO, f"the store says {found[1]}" if found else "the store does not answer") from None
