"""Where a command works: at a server, or in a home folder with its store; and with which session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headgate.errors import AuthenticationFailed, Conflict

if TYPE_CHECKING:
    from headgate.access.request import Result
    from headgate.cli.remote import Remote
    from headgate.labels import Level
    from headgate.service import Headgate


class Answering(Protocol):
    """What answers statements: the home folder's own Headgate, or a server."""

    def login(
        self, user: str, password: str, *, roles: frozenset[str] | None, level: Level | None, source: str
    ) -> str: ...

    def logout(self, token: str) -> None: ...

    def execute(self, token: str, script: str) -> list[Result]: ...


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
    def remote(self) -> Remote | None:
        """The server; None if the command works in the home folder."""
        if self.server is None:
            return None
        from headgate.cli.remote import Remote  # what asks no server starts without the client's libraries

        return Remote.of(self.server, self.certificate)

    @contextmanager
    def answering(self) -> Iterator[Answering]:
        """Whoever answers statements here."""
        if self.remote is not None:
            yield self.remote
            return
        with self.headgate() as opened:
            yield opened

    @contextmanager
    def headgate(self, *, create: bool = False) -> Iterator[Headgate]:
        """The home folder's own Headgate, for work that no server does for its clients."""
        if self.server is not None:
            raise Conflict("cannot do that at a server: it is work on a home folder", hint="leave out --server")
        from headgate.service import Headgate  # what opens no store starts without the store's libraries

        opened = Headgate.at_home(self.home, self.store, create=create)
        try:
            yield opened
        finally:
            opened.close()

    @property
    def _file(self) -> Path | None:
        """The file with the token; None: the profile of the server has it."""
        return self.session_file or (None if self.server else self.home / "session")

    def token(self) -> str:
        if self._file is None and self.remote is not None:
            return self.remote.token()
        try:
            return (self._file or self.home).read_text().strip()
        except OSError:
            raise AuthenticationFailed("nobody is logged in", hint="run `headgate login USER` first") from None

    def keep_token(self, token: str) -> None:
        """Readable by its owner only."""
        file = self._file
        if file is None:
            if self.remote is not None:
                self.remote.keep_token(token)
            return
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(token)

    def forget_token(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        elif self.remote is not None:
            self.remote.forget_token()
