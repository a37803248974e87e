"""Commands at a server: `--server` names it, or it has the home folder. They open nothing of this machine but the
client's own profile, or the folder's socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import headgate.cli.bare_httpx  # noqa: F401 - before anything imports httpx
from headgate.cli.context import say
from headgate.client import Client, connect
from headgate.client.local import server_of
from headgate.client.profiles import Profiles, ServerProfile
from headgate.client.trust import fingerprint, seen
from headgate.errors import AuthenticationFailed
from headgate.lexing import quote

if TYPE_CHECKING:  # a command at a server starts without what only a server needs
    from headgate.access.explanations import Explanation
    from headgate.access.permissions import Permission
    from headgate.cql.names import Target
    from headgate.labels import Level

_VERB = "EXPLAIN "


@dataclass(frozen=True)
class RemoteResult:
    """An answer of a server; its picture is asked for when somebody wants it."""

    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    draw: Callable[[], str]

    @property
    def picture(self) -> str:
        return self.draw()


@dataclass
class Remote:
    """A server as commands see it; it answers what the facade `service.Headgate` would answer here."""

    profile: ServerProfile
    profiles: Profiles
    certificate: Path | None = None

    @classmethod
    def named(cls, name: str, certificate: Path | None) -> Remote:
        profiles = Profiles()
        return cls(profiles.find(name), profiles, certificate)

    @classmethod
    def local(cls, home: Path, store: str | None) -> Remote:
        """The server that has a home folder; it is started if none runs."""
        url = server_of(home, store)
        return cls(ServerProfile(url, url), Profiles())

    @contextmanager
    def client(self, token: str = "") -> Iterator[Client]:
        self._trust()
        pin = "" if self.certificate else self.profile.certificate
        with connect(self.profile.url, token=token, certificate=self.certificate, pin=pin) as client:
            yield client

    def _trust(self) -> None:
        """A server that was never seen is trusted as it shows itself, and from then on only as that."""
        if self.certificate or self.profile.certificate or not self.profile.url.startswith("https:"):
            return
        self.profile = replace(self.profile, certificate=seen(self.profile.url))
        self.profiles.keep(self.profile)
        shown = fingerprint(self.profile.certificate)
        say(f"{self.profile.url} is new to you; from now on its certificate must be SHA-256 {shown}", err=True)

    # As the facade ----------------------------------------------------------------------------------------------------

    def login(
        self,
        user: str,
        password: str,
        *,
        roles: frozenset[str] | None,
        level: Level | None,
        source: str,  # noqa: ARG002
    ) -> str:
        with self.client() as client:
            chosen = None if roles is None else sorted(roles)
            return client.login(user, password, roles=chosen, level=None if level is None else str(level))

    def logout(self, token: str) -> None:
        with self.client(token) as client:
            client.logout()

    def execute(self, token: str, script: str) -> list[RemoteResult]:
        with self.client(token) as client:
            return [
                RemoteResult(x.text, x.columns, x.rows, lambda: self._drawn(token, script))
                for x in client.execute(script)
            ]

    def _drawn(self, token: str, script: str) -> str:
        with self.client(token) as client:
            return client.explain(script.removeprefix(_VERB), picture=True)[1]

    def why(self, token: str, user: str, permission: Permission, target: Target) -> Explanation:
        from headgate.access.authorizer import Decision
        from headgate.access.explanations import Explanation

        with self.client(token) as client:
            owner = f"{quote(target.owner)}." if target.owner else ""
            thing = "SYSTEM" if target.kind == "SYSTEM" else f"{target.kind} {owner}{quote(target.name)}"
            found = client.why(user, str(permission), thing)
        return Explanation(Decision(found.granted, permission, found.object, found.reason), found.details)

    # The session ------------------------------------------------------------------------------------------------------

    def token(self) -> str:
        if not self.profile.token:
            raise AuthenticationFailed("nobody is logged in", hint="run `headgate login USER` first")
        return self.profile.token

    def keep_token(self, token: str, name: str = "") -> None:
        """Under the name by which the server is known from now on, if one is given."""
        profile = self.profiles.named(self.profile, name) if name else self.profile
        self.profile = replace(profile, token=token)
        self.profiles.keep(self.profile)

    def forget_token(self) -> None:
        self.profiles.forget_token(self.profile)
