"""Rights that are taken away while everything is full: once REVOKE has returned, nothing that needed the right goes
out, neither from a mailbox nor into a file, whoever revoked it and wherever results were at that moment.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from conftest import KEY, PASSWORD, cheap_passwords

from headgate.clock import SystemClock
from headgate.egress import delivery, mailbox
from headgate.egress import filter as result_filter
from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import FileSink
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.labels import parse_level
from headgate.model.results import ResultBatch, delivered_results
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.expressions import AggregateCall, Column, Expr
from headgate.recovery.pipeline import Pipeline
from headgate.service import Headgate, run_client
from headgate.service.folders import Folders

SETUP = f"""
CREATE LEVEL C; CREATE LEVEL S ABOVE C;
CREATE ROLE doctor; CREATE ROLE nurse;
CREATE USER ned PASSWORD '{PASSWORD}' CLEARANCE C; GRANT ROLE nurse TO USER ned;
CREATE USER dora PASSWORD '{PASSWORD}' CLEARANCE C; GRANT ROLE doctor TO USER dora; GRANT ROLE nurse TO USER dora;
CREATE STREAM hr (at TIMESTAMP, pat INT, hr INT, policy STRING) EVENT TIME at ROLES FROM policy;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM hr TO nurse, doctor;
CREATE QUERY high AS SELECT pat, hr WHERE hr > 1 FROM hr;
CREATE QUERY many AS SELECT COUNT(*) AS n, MAX(hr) AS top FROM hr [ROWS 20];
CREATE QUERY twice AS SELECT pat, SUM(hr) AS s FROM high [ROWS 5] GROUP BY pat;
START QUERY high; START QUERY many; START QUERY twice;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM high TO nurse, doctor;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM many TO nurse, doctor;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM twice TO nurse, doctor;
"""
WANTED = ("hr", "high", "many", "twice")
# What is taken away, and what ned loses with it.
WAYS: dict[str, tuple[str, ...]] = {
    "REVOKE READ TUPLE ON STREAM hr FROM nurse": WANTED,
    "REVOKE SUBSCRIBE ON STREAM high FROM nurse": ("high",),
    "REVOKE READ TUPLE ON STREAM many FROM nurse": ("many",),
    "REVOKE READ TUPLE ON STREAM high FROM nurse": ("high", "twice"),
    "REVOKE SUBSCRIBE ON STREAM hr FROM nurse": ("hr",),
    "REVOKE ROLE nurse FROM USER ned": WANTED,
    "DROP ROLE nurse": WANTED,
    "ALTER USER ned LOCK": WANTED,
    "ALTER USER ned CLEARANCE U": WANTED,
    "DROP USER ned": WANTED,
    "ALTER STREAM hr LABEL 'doctor'": WANTED,
    "ALTER STREAM hr LABEL 'TRUE AT S'": WANTED,
    "STOP QUERY twice": ("twice",),
    "DROP QUERY many": ("many",),
    "LOGOUT": (),  # what a user subscribed to stays
    "UNSUBSCRIBE FROM joe.many": ("many",),
}
BY_NED = frozenset({"LOGOUT", "UNSUBSCRIBE FROM joe.many"})


@dataclass(frozen=True)
class Template:
    """A store to begin with, and who is logged in there."""

    store: Path
    joe: str
    ned: str


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    store = tmp_path_factory.mktemp("template") / "headgate.db"
    headgate = opened(store)
    headgate.initialise("joe", PASSWORD)
    joe = headgate.login("joe", PASSWORD)
    headgate.execute(joe, SETUP)
    tokens = {user: headgate.login(user, PASSWORD, level=parse_level("C")) for user in ("ned", "dora")}
    for token in tokens.values():
        headgate.execute(token, "; ".join(f"SUBSCRIBE TO joe.{name}" for name in WANTED))
    headgate.close()
    return Template(store, joe, tokens["ned"])


def opened(store: Path) -> Headgate:
    return Headgate(f"sqlite:///{store}", KEY, passwords=cheap_passwords())


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[subprocess.Popen[str]]:
    """The other process."""
    paths = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")]), *sys.path]
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("revoker.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


class Load:
    """A pipeline under load: one thread pushes batches, and can be held in the middle of one, when its results are
    computed and not out yet."""

    def __init__(self, template: Template, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.store = shutil.copy(template.store, folder / "headgate.db")
        self.template = template
        self.headgate = opened(Path(self.store))
        self.mailbox = Mailbox()
        self.out = folder / "out"
        self.hold = False
        self.computing, self.go_on, self.enough = threading.Event(), threading.Event(), threading.Event()
        self.go_on.set()
        self.batches = 0
        self.error: BaseException | None = None
        self.pipeline = Pipeline(
            folder / "engine",
            self.headgate,
            lambda _, program, schema: LocalExecutor(program, schema, self._evaluate),
            [self.mailbox, FileSink(self.out, Folders(self.headgate))],
            SystemClock(),
        )
        self.thread = threading.Thread(target=self._push)

    def _evaluate(
        self, exprs: Sequence[Expr], values: Mapping[Column | AggregateCall, pa.Array], size: int
    ) -> list[pa.Array]:
        if self.hold:
            self.computing.set()
            assert self.go_on.wait(60)
        return evaluate(exprs, values, size)

    def _push(self) -> None:
        try:
            while not self.enough.is_set():
                self.pipeline.take("joe.hr", self.batches, batch(self.batches))
                self.batches += 1
        except BaseException as error:
            self.error = error
            self.computing.set()

    def pushed(self, more: int) -> None:
        """Waits until so many batches more have gone through."""
        until = self.batches + more
        while self.batches < until and self.error is None:
            self.thread.join(0.002)

    def received(self, user: str) -> dict[str, int]:
        """How many results are in each stream's file; that it ended or is suspended is no result."""
        files = (self.out / user).rglob("*.jsonl")
        return {x.name.split(".")[1]: x.read_bytes().count(b'"values"') for x in files}

    def waiting(self, user: str) -> Counter[str]:
        """What the mailbox hands out, by stream."""
        found: Counter[str] = Counter()
        with self.headgate.open() as now:
            for name, query in list(self.mailbox._kept):
                if name.startswith(f"{user}@") and (name, query) in now.clearances:
                    stream = self.headgate.snapshots.outgoing(name, query).stream.split(".")[1]
                    found[stream] += len(delivered_results(self.mailbox.fetch(name, query, now)))
        return found

    def close(self) -> None:
        self.enough.set()
        self.go_on.set()
        self.thread.join()
        self.pipeline.close()
        self.headgate.close()


def batch(number: int) -> pa.Table:
    begin = dt.datetime(2024, 3, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number)
    return pa.table(
        {
            "at": pa.array([begin + dt.timedelta(milliseconds=n) for n in range(20)], pa.timestamp("us", "UTC")),
            "pat": pa.array([n % 3 for n in range(20)], pa.int32()),
            "hr": pa.array(range(20), pa.int32()),
            "policy": pa.array(["nurse"] * 20),
        }
    )


def trial(seed: int, template: Template, folder: Path, elsewhere: subprocess.Popen[str]) -> list[str]:
    """What went out after it was forbidden."""
    rng = Random(seed)
    way = list(WAYS)[seed % len(WAYS)]
    load = Load(template, folder)
    leaks = []
    try:
        load.thread.start()
        load.pushed(rng.randint(2, 4))
        if rng.random() < 0.7:  # results of one batch are computed, and not out
            load.go_on.clear()
            load.hold = True
            assert load.computing.wait(60)
        before = load.received("ned")
        assert before.keys() == set(WANTED), f"{way}: full buffers: {before}, {load.error!r}"
        token = template.ned if way in BY_NED else template.joe
        if seed % 4 == 3:
            _ask(elsewhere, f"sqlite:///{load.store}", token, way)
        elif way == "LOGOUT":
            load.headgate.logout(token)
        else:
            load.headgate.execute(token, way)
        sizes = load.received("ned")
        load.hold = False
        load.go_on.set()
        load.pushed(2)
        assert load.error is None, f"{way}: {load.error!r}"
        lost = WAYS[way]
        after, waiting = load.received("ned"), load.waiting("ned")
        leaks += [f"{way}: the file of {x} grew" for x in lost if after[x] != sizes[x]]
        leaks += [f"{way}: {waiting[x]} results of {x} fetched" for x in lost if waiting[x]]
        if way != "DROP ROLE nurse" and "LABEL" not in way:  # others go on
            others = load.waiting("dora")
            assert sum(others.values()) > 0, f"{way}: dora received nothing"
            kept = [x for x in WANTED if x not in lost]
            assert all(after[x] > sizes[x] for x in kept), f"{way}: {kept} should go on"
    finally:
        load.close()
        shutil.rmtree(folder)
    return leaks


def _ask(process: subprocess.Popen[str], *what: str) -> None:
    assert process.stdin is not None and process.stdout is not None
    print(json.dumps(what), file=process.stdin, flush=True)
    assert process.stdout.readline() == "done\n"


def check(first: int, trials: int, template: Template, folder: Path, elsewhere: subprocess.Popen[str]) -> None:
    for seed in range(first, first + trials):
        assert trial(seed, template, folder / "trial", elsewhere) == [], f"seed {seed}"


def test_nothing_goes_out_after_a_revocation(
    template: Template, tmp_path: Path, elsewhere: subprocess.Popen[str]
) -> None:
    check(0, 48, template, tmp_path, elsewhere)


@pytest.mark.long
def test_nothing_goes_out_after_a_revocation_in_200_trials(
    template: Template, tmp_path: Path, elsewhere: subprocess.Popen[str]
) -> None:
    check(1000, 200, template, tmp_path, elsewhere)


@pytest.mark.parametrize("exit_", ["files", "mailbox"])
def test_without_the_check_at_delivery_results_would_go_out(
    template: Template,
    tmp_path: Path,
    elsewhere: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    exit_: str,
) -> None:
    def all_of_it(_: CatalogSnapshot, result_batch: ResultBatch) -> list[ResultBatch]:
        return [result_batch]

    for module in (result_filter, delivery, mailbox, run_client):
        monkeypatch.setattr(module, "permitted", all_of_it)
    leaks = [x for seed in range(8) for x in trial(seed, template, tmp_path / "trial", elsewhere)]
    assert any(("grew" if exit_ == "files" else "fetched") in x for x in leaks)
