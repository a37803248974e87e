"""A process that changes a store and says so: run by the tests of crashes and of several writers.

    python crash_writer.py URL PREFIX FIRST LAST [THREADS]

Change number i is one script that creates user PREFIX_i, grants it the role `worker` and creates stream PREFIX_i. When
`execute` has returned, and not before, the line `i` is printed and flushed.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from argon2 import PasswordHasher

from headgate.access.passwords import Passwords
from headgate.service import Headgate
from headgate.testing import ManualClock

ADMIN = "root"
PASSWORD = "correct horse"
KEY = hashlib.sha256(b"the audit key of the tests").digest()


def script(name: str) -> str:
    return (
        f"CREATE USER {name} PASSWORD 'password of {name}'; "
        f"GRANT ROLE worker TO USER {name}; "
        f"CREATE STREAM {name} (n INT)"
    )


def main(url: str, prefix: str, first: int, last: int, threads: int) -> None:
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    headgate = Headgate(url, KEY, clock=ManualClock(), passwords=Passwords(cheap))
    token = headgate.login(ADMIN, PASSWORD)
    numbers, taking, printing = iter(range(first, last)), threading.Lock(), threading.Lock()

    def shared() -> Iterator[int]:
        while True:
            with taking:
                number = next(numbers, None)
            if number is None:
                return
            yield number

    def work() -> None:
        for number in shared():
            headgate.execute(token, script(f"{prefix}_{number}"))
            with printing:
                print(number, flush=True)

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()
    headgate.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]) if len(sys.argv) > 5 else 1)
