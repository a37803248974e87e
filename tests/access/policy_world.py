"""A hospital that trusts the staff list of another organisation: what tests of policies begin with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from conftest import System

from headgate.access.permissions import Kind, Permission
from headgate.sendlog.signing import PrivateKey, signed
from headgate.service import Headgate

RULES = """
p1 plays(U, partner) :- acme says employee(U).
p2 may_access(partner, P, "STREAM joe.vitals") :- opened(P).
opened("VIEW OBJECT"). opened("READ TUPLE"). opened("SUBSCRIBE").
"""


@dataclass
class Hospital:
    """joe owns the stream `vitals` and lets ADMIN grant rights on it; acme is an organisation with a key; bob is a user
    without any role."""

    system: System
    key: PrivateKey = field(default_factory=PrivateKey.new)
    number: int = 0

    def __post_init__(self) -> None:
        run = self.system.run
        run("GRANT ADD ON SYSTEM TO PUBLIC; CREATE ROLE partner; CREATE LEVEL S")
        self.joe, self.bob = self.system.new_user("joe"), self.system.new_user("bob")
        run("CREATE STREAM vitals (patient INT)", self.joe)
        run("GRANT VIEW OBJECT, CHANGE PERM ON STREAM vitals TO ADMIN", self.joe)
        run(f"CREATE USER acme; ALTER USER acme ADD KEY '{self.key.public_text()}'")

    def create(self, rules: str = RULES, name: str = "hospitals", token: str = "") -> str:
        """Creates a policy; its address."""
        self.system.run(f"CREATE POLICY {name} AS $${rules}$$", token)
        return next(row[2] for row in self.system.rows("SHOW POLICIES") if row[0] == name)

    def message(
        self,
        address: str,
        *facts: tuple[str, tuple[str, ...]],
        retract: bool = False,
        key: PrivateKey | None = None,
        sender: str = "acme",
    ) -> str:
        self.number += 1
        return signed(key or self.key, sender, address, self.number, facts, retract=retract)

    def says(self, address: str, predicate: str, *values: str) -> str:
        """acme says it, and somebody hands it in; the message."""
        message = self.message(address, (predicate, values))
        self.accept(message)
        return message

    def takes_back(self, address: str, predicate: str, *values: str) -> None:
        self.accept(self.message(address, (predicate, values), retract=True))

    def accept(self, message: str, token: str = "") -> None:
        self.system.run(f"ACCEPT STATEMENT '{message}'", token or self.bob)

    def reads(self, user: str = "bob", headgate: Headgate | None = None) -> bool:
        """Whether a user, logged in now with all its roles, may read joe's stream."""
        asked = headgate or self.system.headgate
        token = self.system.headgate.login(user, "correct horse")
        found = bool(asked.check(token, Permission.READ_TUPLE, Kind.STREAM, "vitals", "joe"))
        asked.logout(token)
        return found

    def proofs(self, newest: int = 20) -> list[str]:
        """The proofs that the newest audit records name, oldest first."""
        rows = self.system.rows(f"SHOW AUDIT LIMIT {newest}")
        return [name for row in rows for name in re.findall("proof ([0-9a-f]{32})", row[7])]
