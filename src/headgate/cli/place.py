"""Where a command works: at a server, or in a home folder with its store; and with which session.

A home folder that a server has open is that server's: commands ask it through its socket and open nothing beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headgate.errors import AuthenticationFailed, Conflict, StoreError
from headgate.home import alone, is_served, shared

if TYPE_CHECKING:
    from headgate.access.explanations import Explanation
    from headgate.access.permissions import Permission
    from headgate.cli.remote import Remote
    from headgate.client import Client
    from headgate.cql.names import Target
    from headgate.labels import Level
    from headgate.service import Headgate


class Drawable(Protocol):
    """The answer to a statement: a text or a table, possibly with a picture."""

    @property
    def text(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]: ...

    @property
    def picture(self) -> str: ...


class Answering(Protocol):
    """What answers statements: the home folder's own Headgate, or a server."""

    def login(
        self, user: str, password: str, *, roles: frozenset[str] | None, level: Level | None, source: str
    ) -> str: ...

    def logout(self, token: str) -> None: ...

    def execute(self, token: str, script: str) -> Sequence[Drawable]: ...

    def why(self, token: str, user: str, permission: Permission, target: Target) -> Explanation: ...


@dataclass
class Place:
    """Where things are: the folder, the store's URL if it is elsewhere, the file with the session's token; or the
    server, by its name or address, and the file with its certificate."""

    home: Path
    store: str | None
    session_file: Path | None
    server: str | None = None
    certificate: Path | None = None

    @cached_property
    def _named(self) -> Remote:
        """The server that was named; what asks none starts without the client's libraries."""
        from headgate.cli.remote import Remote

        return Remote.named(self.server or "", self.certificate)

    @contextmanager
    def answering(self) -> Iterator[Answering]:
        """Whoever answers statements here: a server that was named, the one that has the home folder, or the folder's
        own Headgate."""
        if self.server is not None:
            yield self._named
            return
        with shared(self.home) as free:
            if free:
                with self._opened() as headgate:
                    yield headgate
                return
        yield self._local()

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A session at a server: the one that was named, or that of the home folder, which is started if none runs."""
        remote = self._local() if self.server is None else self._named
        with remote.client(self.token()) as client:
            yield client

    def _local(self) -> Remote:
        from headgate.cli.remote import Remote

        return Remote.local(self.home, self.store)

    # The home folder itself -------------------------------------------------------------------------------------------

    @contextmanager
    def headgate(self) -> Iterator[Headgate]:
        """The home folder's own Headgate, beside other commands; no server may have it."""
        self.need_folder()
        with shared(self.home) as free:
            if not free:
                raise Conflict(
                    f"cannot do that now: a server has `{self.home}`", hint="`headgate watch` shows results of a server"
                )
            with self._opened() as headgate:
                yield headgate

    @contextmanager
    def folder_alone(self) -> Iterator[None]:
        """The home folder for this process alone; commands that work in it are waited for, a server is not."""
        self.need_folder()
        if not (self.home / "audit.key").exists() and not is_served(self.home):
            raise StoreError(f"there is no Headgate in `{self.home}`", hint="run `headgate init` first")
        with alone(self.home):
            yield

    @contextmanager
    def headgate_alone(self) -> Iterator[Headgate]:
        """The home folder's own Headgate for this process alone."""
        with self.folder_alone(), self._opened() as headgate:
            yield headgate

    @contextmanager
    def headgate_for_operator(self, *, create: bool = False) -> Iterator[Headgate]:
        """The home folder's own Headgate, also beside a server: to look at what only the operator may, or to begin."""
        self.need_folder()
        with self._opened(create=create) as headgate:
            yield headgate

    def need_folder(self) -> None:
        """Refuses work on a folder if a server was named."""
        if self.server is not None:
            raise Conflict(
                "cannot do that at a server: it is work on a home folder",
                hint="leave out --server, or unset HEADGATE_SERVER",
            )

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[Headgate]:
        from headgate.service import Headgate  # what opens no store starts without the store's libraries

        opened = Headgate.at_home(self.home, self.store, create=create)
        try:
            yield opened
        finally:
            opened.close()

    # The session ------------------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path | None:
        """The file with the token; None: the profile of the server has it."""
        return self.session_file or (None if self.server else self.home / "session")

    def token(self) -> str:
        if self._file is None:
            return self._named.token()
        try:
            return self._file.read_text().strip()
        except OSError:
            raise AuthenticationFailed("nobody is logged in", hint="run `headgate login USER` first") from None

    def keep_token(self, token: str, name: str = "") -> None:
        """Readable by its owner only. `name` is for the profile of a server that was named."""
        file = self._file
        if file is None:
            self._named.keep_token(token, name)
            return
        if name:
            raise Conflict("cannot name the server: this session is kept in a file", hint="give --server alone")
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(token)

    def forget_token(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        else:
            self._named.forget_token()
