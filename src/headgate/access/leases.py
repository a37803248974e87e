"""A lease on the current rights, held while results are published, where the store is a server (PostgreSQL).

A lock lasts as long as its connection, and a server may end connections at any time: after a time-out
(`idle_in_transaction_session_timeout`), by an administrator, in a failover. So the publisher of results holds a
committed row instead. A writer waits until the row is gone; if the holder is dead or stuck, until the lease has
expired, and then removes it, so that the holder finds itself fenced off.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, text

from headgate.access import tables as t
from headgate.errors import LeaseLost

LASTS = 10.0
"""Seconds, by the server's clock: the longest that a change of rights waits for a holder that is dead or stuck."""
USED = LASTS / 2
"""Seconds, by the holder's clock, from before it asked: how long a holder may rely on the lease."""
CONFIRMED = 0.05
"""Seconds for which one confirmation by the server that the row exists is enough."""
_TAKEN = text("INSERT INTO leases (holder, expires) VALUES (:holder, extract(epoch FROM clock_timestamp()) + :lasts)")
_OPEN = text("SELECT count(*) FROM leases WHERE expires > extract(epoch FROM clock_timestamp())")
_PAUSE = text("SELECT pg_sleep(0.002)")


@dataclass
class Lease:
    """`begun` is when it was requested, `confirmed` when the server last said that it exists."""

    holder: str = field(default_factory=lambda: secrets.token_hex(16))
    begun: float = field(default_factory=time.monotonic)
    confirmed: float = 0.0

    def check_time(self) -> None:
        if time.monotonic() - self.begun > USED:
            raise LeaseLost("cannot publish results: the lease on rights has run out")

    def confirm(self) -> None:
        self.confirmed = time.monotonic()

    def fresh(self) -> bool:
        return time.monotonic() - self.confirmed < CONFIRMED


def take(connection: Connection) -> Lease:
    """Takes a lease, which counts when the transaction is committed. Needs the writers' lock, as `wait` does."""
    lease = Lease()
    connection.execute(_TAKEN, {"holder": lease.holder, "lasts": LASTS})
    return lease


def wait(connection: Connection) -> None:
    """Waits until nobody publishes under the rights from before this transaction. Needs the writers' lock, so that no
    publisher starts meanwhile. The server makes the pause: an idle transaction might be ended."""
    while connection.execute(_OPEN).scalar():
        connection.execute(_PAUSE)
    connection.execute(delete(t.leases))
