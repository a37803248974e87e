"""Where a command works: the home folder, the store, the session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import AuthenticationFailed

if TYPE_CHECKING:
    from headgate.service import Headgate


@dataclass
class Place:
    """Where things are: the folder, the store's URL if it is elsewhere, the file with the session's token."""

    home: Path
    store: str | None
    session_file: Path

    @contextmanager
    def headgate(self, *, create: bool = False) -> Iterator[Headgate]:
        from headgate.service import Headgate  # what opens no store starts without the store's libraries

        opened = Headgate.at_home(self.home, self.store, create=create)
        try:
            yield opened
        finally:
            opened.close()

    def token(self) -> str:
        try:
            return self.session_file.read_text().strip()
        except OSError:
            raise AuthenticationFailed("nobody is logged in", hint="run `headgate login USER` first") from None

    def keep_token(self, token: str) -> None:
        """Readable by its owner only."""
        self.session_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.session_file.unlink(missing_ok=True)
        descriptor = os.open(self.session_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)

    def forget_token(self) -> None:
        self.session_file.unlink(missing_ok=True)
