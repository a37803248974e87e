"""Commands at a server: `--server` names it. They open nothing of this machine but the client's own profile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.access.request import Result
from headgate.cli.context import say
from headgate.client import Client, connect
from headgate.client.profiles import Profile, Profiles
from headgate.client.trust import fingerprint, seen
from headgate.errors import AuthenticationFailed
from headgate.labels import Level

_VERB = "EXPLAIN "


@dataclass
class Remote:
    """A server as commands see it; it answers what the facade `service.Headgate` would answer here."""

    profile: Profile
    profiles: Profiles
    certificate: Path | None = None

    @classmethod
    def of(cls, name: str, certificate: Path | None) -> Remote:
        profiles = Profiles()
        return cls(profiles.find(name), profiles, certificate)

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

    def execute(self, token: str, script: str) -> list[Result]:
        with self.client(token) as client:
            return [
                Result(x.text, x.columns, x.rows, lambda: self._drawn(token, script)) for x in client.execute(script)
            ]

    def _drawn(self, token: str, script: str) -> str:
        with self.client(token) as client:
            return client.explain(script.removeprefix(_VERB), picture=True)[1]

    # The session ------------------------------------------------------------------------------------------------------

    def token(self) -> str:
        if not self.profile.token:
            raise AuthenticationFailed("nobody is logged in", hint="run `headgate login USER` first")
        return self.profile.token

    def keep_token(self, token: str) -> None:
        self.profile = replace(self.profile, token=token)
        self.profiles.keep(self.profile)

    def forget_token(self) -> None:
        self.profiles.forget_token(self.profile)
