"""What a person's client remembers of servers: the certificate of each, and the token of the session there."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headgate.errors import Conflict

_NAME = re.compile(r"\w[\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class ServerProfile:
    """A server by the name that commands use for it, which may be its address."""

    name: str
    url: str
    certificate: str = ""
    token: str = ""


class Profiles:
    def __init__(self, folder: Path | None = None) -> None:
        """The folder is HEADGATE_CONFIG, or the usual one for settings."""
        usual = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "headgate"
        self.folder = folder or Path(os.environ.get("HEADGATE_CONFIG") or usual)
        self._file = self.folder / "servers.json"

    def find(self, name: str) -> ServerProfile:
        """A known server, or a new one if the name is an address."""
        found = self._all().get(name)
        if found is not None:
            return found
        if not name.startswith(("https://", "http://")):
            raise Conflict(f"there is no server `{name}` that you know", hint="give its address, as https://HOST:PORT")
        return ServerProfile(name, name.rstrip("/"))

    def certificate_of(self, url: str) -> str:
        """The certificate that was accepted for a server at this address; empty if none was."""
        found = (x.certificate for x in self._all().values() if x.url == url.rstrip("/"))
        return next(filter(None, found), "")

    def named(self, profile: ServerProfile, name: str) -> ServerProfile:
        """The same server under another name. A name is that of one server."""
        if not _NAME.fullmatch(name):
            raise Conflict(f"cannot call a server `{name}`", hint="a name has letters, digits, `_`, `.`, `-`")
        known = self._all().get(name, profile)
        if known.url != profile.url:
            raise Conflict(f"cannot call this server `{name}`: that is {known.url}", hint="choose another name")
        return replace(profile, name=name)

    def keep(self, profile: ServerProfile) -> None:
        known = self._all()
        known[profile.name] = profile
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = self.folder / f"servers.{secrets.token_hex(8)}"
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({name: asdict(x) for name, x in known.items()}, file, indent=1)
        new.rename(self._file)

    def forget_token(self, profile: ServerProfile) -> None:
        self.keep(replace(profile, token=""))

    def _all(self) -> dict[str, ServerProfile]:
        try:
            found = json.loads(self._file.read_text())
            return {name: ServerProfile(**values) for name, values in found.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError):
            raise Conflict(f"cannot read `{self._file}`: it is damaged", hint="remove it, and log in again") from None
