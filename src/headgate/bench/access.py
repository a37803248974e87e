"""`headgate bench access`: what one check costs as users, roles and objects grow.

Each size has that many users, roles and streams; a user has three roles, a role may read three streams. A check takes
every step: is the store's version still ours, whose session is this, which object does the name mean for this user, may
an active role do this. Granted, denied and hidden names are checked in equal parts.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable

from headgate.access import bootstrap
from headgate.access import rows as r
from headgate.access.audit import Seal
from headgate.access.definitions import StreamDefinition
from headgate.access.passwords import Passwords, token_hash
from headgate.access.permissions import Kind, Permission
from headgate.access.state import State
from headgate.access.store import Store
from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.timing import time_each
from headgate.clock import SystemClock
from headgate.service import Headgate

SIZES = (10, 1_000, 100_000)
QUICK_SIZES = (10, 1_000, 10_000)
_EACH = 3
_SESSIONS = 10
_FAR = 1e12
_KEY = bytes(32)


def run(quick: bool, progress: Progress) -> Report:
    sizes = QUICK_SIZES if quick else SIZES
    checks = 3_000 if quick else 30_000
    progress.expect(2 * len(sizes))
    rows: list[Row] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            progress.step(f"making {size:,} users, roles and streams")
            url = f"sqlite:///{folder}/headgate.db"
            tokens = fill(url, size)
            headgate = Headgate(url, _KEY)
            progress.step(f"checking, {size:,}")
            timing = time_each(checks, 5, _work(headgate, tokens, size, checks))
            headgate.close()
        us = timing.median / 1000
        rows.append(
            {
                "users, roles, objects": size,
                "µs per check": round(us, 2),
                "checks per second": round(1e6 / us),
                "spread": round(timing.spread, 2),
                "times the smallest": round(us / float(str(rows[0]["µs per check"])), 2) if rows else 1.0,
            }
        )
    grown = float(str(rows[-1]["times the smallest"]))
    logarithm = math.log(sizes[-1]) / math.log(sizes[0])
    return Report(
        title="Checks as the catalog grows",
        rows=rows,
        goals=[Goal(f"growth from {sizes[0]:,} to {sizes[-1]:,}: at most logarithmic", grown, logarithm, "times")],
        notes=["One third of the checks is granted, one third denied, one third asks for a name that is hidden."],
        environment=environment("sqlalchemy"),
        plots=[
            Plot(
                "One access check as the catalog grows",
                "users, roles and objects, each",
                "µs of processor time",
                {"a check": [(size, float(str(row["µs per check"]))) for size, row in zip(sizes, rows, strict=True)]},
                log_x=True,
            )
        ],
    )


def fill(url: str, size: int) -> list[str]:
    """A store with that many users, roles and streams, and a few sessions; returns the sessions' tokens."""
    state, store = State(), Store(url, Seal(_KEY), SystemClock())
    store.migrate(create=True)
    tokens = [f"token {i}" for i in range(min(_SESSIONS, size))]
    with store.transaction(state) as work:
        bootstrap.fill(state, work, Passwords(), "admin", "nobody logs in here")
        first = work.new_object_id()
        work.next_object = first + size
        for i in range(size):
            state.users.put(r.User(f"u{i}", "", "U"))
            state.roles.put(r.Role(f"r{i}", ""))
            definition = StreamDefinition((), f"admin.s{i}")
            state.objects.put(r.Object(first + i, Kind.STREAM, "admin", "U", f"s{i}", definition))
        for i in range(size):
            for role, stream in ((f"r{(i + j) % size}", (i + j) % size) for j in range(_EACH)):
                state.memberships.put(r.Membership(f"u{i}", role))
                for permission in (Permission.VIEW_OBJECT, Permission.READ_TUPLE):
                    grant = r.Grant(first + stream, permission, f"r{i}", Kind.STREAM, f"s{stream}", "U", (), "admin")
                    state.grants.put(grant)
        for i, token in enumerate(tokens):
            roles = tuple(sorted(f"r{(i + j) % size}" for j in range(_EACH)))
            hashed = token_hash(token)
            state.sessions.put(r.Session(hashed, hashed[:12], f"u{i}", roles, "U", 0.0, _FAR, _FAR))
    store.close()
    return tokens


def _work(headgate: Headgate, tokens: list[str], size: int, checks: int) -> Callable[[], Callable[[], None]]:
    chosen = random.Random(7)

    def prepare() -> Callable[[], None]:
        asked = []
        for n in range(checks):
            i = chosen.randrange(len(tokens))
            near, far = (i + chosen.randrange(_EACH)) % size, (i + size // 2 + 1) % size
            permission = Permission.SUBSCRIBE if n % 3 == 1 else Permission.READ_TUPLE
            asked.append((tokens[i], permission, f"s{far if n % 3 == 2 else near}"))

        def work() -> None:
            for token, permission, name in asked:
                headgate.check(token, permission, Kind.STREAM, name)

        return work

    return prepare
