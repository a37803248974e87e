"""The world that attacks on the security core begin in, and what an attacker sees.

Each attack does what somebody would really try; without the mechanism it is aimed at, it would succeed. Work is counted
(look-ups and comparisons of levels), never timed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from conftest import KEY, PASSWORD

from headgate.access.passwords import Passwords
from headgate.access.permissions import Permission
from headgate.cql.reading import target
from headgate.errors import AuthenticationFailed, HeadgateError
from headgate.labels import parse_level
from headgate.lexing import Cursor
from headgate.service import Headgate
from headgate.testing import ManualClock

FILE = "h.db"


class Cheap(Passwords):
    """Cheap hashes, counted. `meanwhile` runs once, between the proof of a password and what follows it; `hashing` runs
    before a password is hashed."""

    def __init__(self) -> None:
        super().__init__(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        self.hashed = 0
        self.meanwhile: Callable[[], object] | None = None
        self.hashing: Callable[[str], object] = str

    def hash(self, password: str) -> str:
        self.hashed += 1
        self.hashing(password)
        return super().hash(password)

    def verify(self, stored: str, password: str) -> bool:
        proved = super().verify(stored, password)
        if self.meanwhile:
            act, self.meanwhile = self.meanwhile, None
            act()
        return proved


class World:
    """Levels U < C < S < T; the administrator `root`; al, bob and eve, cleared to T; everyone may add objects."""

    def __init__(self, url: str = "sqlite://") -> None:
        self.url = url
        self.clock = ManualClock()
        self.passwords = Cheap()
        self.headgate = self.another()
        self.headgate.initialise("root", PASSWORD)
        self.root = self.headgate.login("root", PASSWORD)
        self.run("CREATE LEVEL C; CREATE LEVEL S ABOVE C; CREATE LEVEL T ABOVE S; GRANT ADD ON SYSTEM TO PUBLIC")
        for name in ("al", "bob", "eve"):
            self.create(name)

    @classmethod
    def in_file(cls, folder: Path) -> World:
        """One that others can open as well, or change behind its back."""
        return cls(f"sqlite:///{folder / FILE}")

    def another(self) -> Headgate:
        return Headgate(self.url, KEY, clock=self.clock, passwords=self.passwords)

    def create(self, user: str) -> None:
        self.run(f"CREATE USER {user} PASSWORD '{PASSWORD}' CLEARANCE T")

    def login(self, user: str, level: str = "U", password: str = PASSWORD) -> str:
        return self.headgate.login(user, password, level=parse_level(level))

    def run(self, script: str, token: str = "") -> tuple[tuple[str, ...], ...]:
        """Runs as root, or with a token; the rows of the last table."""
        return self.headgate.execute(token or self.root, script)[-1].rows

    def refused(self, script: str, token: str = "") -> HeadgateError:
        with pytest.raises(HeadgateError) as caught:
            self.run(script, token)
        return caught.value

    def alive(self, token: str) -> bool:
        try:
            self.headgate.principal(token)
        except AuthenticationFailed:
            return False
        return True

    def records(self, newest: int = 1) -> list[tuple[str, ...]]:
        """The newest audit records without time and session, as root reads them."""
        return [(user, *rest) for _, user, _, *rest in self.run(f"SHOW AUDIT LIMIT {newest}")]

    def why(self, token: str, user: str, permission: Permission, thing: str) -> Any:
        return self.headgate.why(token, user, permission, target(Cursor(thing)))


def seen_by(act: Callable[[], object]) -> tuple[object, ...]:
    """All that a caller sees of a refusal."""
    with pytest.raises(HeadgateError) as caught:
        act()
    error = caught.value
    return type(error), str(error), error.message, error.hint, error.position
