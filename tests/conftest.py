"""What most tests begin with: an initialised Headgate on either store, its administrator logged in.

`system` and `headgate` run a test twice, on a SQLite file and on a PostgreSQL database of its own; `sqlite_system` and
`sqlite_headgate` run it once, in memory. Passwords are hashed at the least cost, and time stands still. `spark` is one
Spark session for all tests that need one: it takes seconds to start.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from argon2 import PasswordHasher
from sqlalchemy import Engine, NullPool, create_engine, text

from headgate.access.passwords import Passwords
from headgate.access.request import Result
from headgate.errors import StoreError
from headgate.labels import parse_level
from headgate.service import Headgate
from headgate.testing import ManualClock
from headgate.testing.postgres import fresh_database, running_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORES = ["sqlite", "postgresql"]
ADMIN = "root"
PASSWORD = "correct horse"
KEY = hashlib.sha256(b"the audit key of the tests").digest()


SLOWEST = (
    "system/test_noninterference.py",
    "levels/test_meaning.py",
    "execution/test_partitioning_meaning.py",
    "system/test_pipeline_meaning.py",
    "test_guide.py",
    "system/test_crash.py",
    "test_documents.py",
    "cql/test_fuzz.py",
    "access/test_model.py",
)
"""These files begin first, so that no process is left alone with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def cheap_passwords() -> Passwords:
    return Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


@dataclass
class System:
    """One store and those who use it. Scripts run as `root` unless another session's token is given."""

    url: str
    clock: ManualClock = field(default_factory=ManualClock)
    root: str = ""
    opened: list[Headgate] = field(default_factory=list)
    outsider: Engine | None = None

    @property
    def headgate(self) -> Headgate:
        return self.opened[0]

    def another(self) -> Headgate:
        """A second Headgate on the same store, as a second process would open it."""
        self.opened.append(Headgate(self.url, KEY, clock=self.clock, passwords=cheap_passwords()))
        return self.opened[-1]

    def reopen(self) -> Headgate:
        """Close everything, and open the store again."""
        self.close()
        return self.another()

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()
        if self.outsider is not None:
            self.outsider.dispose()
            self.outsider = None

    def initialise(self) -> None:
        self.another().initialise(ADMIN, PASSWORD)
        self.root = self.login(ADMIN)

    def run(self, script: str, token: str = "") -> list[Result]:
        return self.headgate.execute(token or self.root, script)

    def rows(self, statement: str, token: str = "") -> tuple[tuple[str, ...], ...]:
        """The table that a SHOW answers with."""
        return self.run(statement, token)[-1].rows

    def login(self, user: str, *, level: str = "", roles: frozenset[str] | None = None) -> str:
        at = parse_level(level) if level else None
        return self.headgate.login(user, PASSWORD, level=at, roles=roles)

    def new_user(self, name: str, *roles: str, clearance: str = "U") -> str:
        """Creates a user with these roles, creating those as needed, and logs it in."""
        known = {row[0] for row in self.rows("SHOW ROLES")}
        script = [f"CREATE ROLE {role}" for role in roles if role not in known]
        script.append(f"CREATE USER {name} PASSWORD '{PASSWORD}' CLEARANCE {clearance}")
        script += [f"GRANT ROLE {role} TO USER {name}" for role in roles]
        self.run("; ".join(script))
        return self.login(name)

    def sql(self, *statements: str, **values: object) -> list[tuple[Any, ...]]:
        """What somebody with the database but without Headgate can do; the rows of the last statement."""
        if self.outsider is None:  # a file is let go after each call, a server is called again and again
            self.outsider = create_engine(self.url, poolclass=NullPool if self.url.startswith("sqlite") else None)
        with self.outsider.begin() as connection:
            results = [connection.execute(text(statement), values) for statement in statements]
            return [tuple(row) for row in results[-1]] if results[-1].returns_rows else []


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """One server for all tests; without its binaries tests fail, with the line that says what to do."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(running_postgres())
        except StoreError as error:
            pytest.fail(str(error), pytrace=False)
        yield url


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'headgate.db'}"
    return fresh_database(request.getfixturevalue("postgres_url"))


def _initialised(url: str) -> Iterator[System]:
    system = System(url)
    try:
        system.initialise()
        yield system
    finally:
        system.close()


@pytest.fixture
def system(store_url: str) -> Iterator[System]:
    yield from _initialised(store_url)


@pytest.fixture
def headgate(system: System) -> Headgate:
    return system.headgate


@pytest.fixture
def sqlite_system() -> Iterator[System]:
    yield from _initialised("sqlite://")


@pytest.fixture
def sqlite_headgate(sqlite_system: System) -> Headgate:
    return sqlite_system.headgate


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Local, and in a time zone that no result may depend on. Spark is imported only where it is needed."""
    from pyspark.sql import SparkSession

    from headgate.expressions.sql.spark import SETTINGS
    from headgate.ingress.class_archive import java_options

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.level=error -XX:TieredStopAtLevel=1 {java_options()}",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",  # a command that ran before may have left its own
    }
    for key, value in (settings | SETTINGS).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fsync` does nothing: power does not fail in tests, and disks are slow."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def usual_record_batches(request: pytest.FixtureRequest) -> None:
    """Commands that other tests ran in this process set the session to one record batch for each partition."""
    if "spark" in request.fixturenames:
        spark = request.getfixturevalue("spark")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
