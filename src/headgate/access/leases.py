"""A lease on the rights of the moment, for results that go out, where the store is a server (PostgreSQL).

A lock lasts as long as its connection, and a server ends connections as it likes: after a time-out
(`idle_in_transaction_session_timeout`), for an administrator, in a failover. So whoever lets results out holds a row
that is committed. Who changes anything waits until the row is gone; and if its holder is dead or stuck, until the lease
has run out, and then removes it, so that the holder finds itself fenced off.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, text

from headgate.access import tables as t
from headgate.errors import LeaseLost

LASTS = 10.0
"""Seconds, by the server's clock: so long, at most, a change of rights waits for a holder that is dead or stuck."""
USED = LASTS / 2
"""Seconds, by the holder's clock, from before it asked: so long a holder may rely on it."""
CONFIRMED = 0.05
"""Seconds for which it is enough that the server was asked whether the row is still there."""
_TAKEN = text("INSERT INTO leases (holder, expires) VALUES (:holder, extract(epoch FROM clock_timestamp()) + :lasts)")
_OPEN = text("SELECT count(*) FROM leases WHERE expires > extract(epoch FROM clock_timestamp())")
_PAUSE = text("SELECT pg_sleep(0.002)")


@dataclass
class Lease:
    """`begun` is when it was asked for, `confirmed` when the server last said that it is there."""

    holder: str = field(default_factory=lambda: secrets.token_hex(16))
    begun: float = field(default_factory=time.monotonic)
    confirmed: float = 0.0

    def check_time(self) -> None:
        if time.monotonic() - self.begun > USED:
            raise LeaseLost("it took too long to let results out: the lease on rights has run out")

    def confirm(self) -> None:
        self.confirmed = time.monotonic()

    def fresh(self) -> bool:
        return time.monotonic() - self.confirmed < CONFIRMED


def take(connection: Connection) -> Lease:
    """Needs the writers' lock, as everything that waits for leases does; it counts when it is committed."""
    lease = Lease()
    connection.execute(_TAKEN, {"holder": lease.holder, "lasts": LASTS})
    return lease


def wait(connection: Connection) -> None:
    """Until nobody lets out what the rights before this transaction permit. Needs the writers' lock, so that nobody
    begins to meanwhile. The pause is the server's: a transaction that is idle might be ended."""
    while connection.execute(_OPEN).scalar():
        connection.execute(_PAUSE)
    connection.execute(delete(t.leases))
