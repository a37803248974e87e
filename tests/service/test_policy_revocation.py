"""Rights that policies gave end while everything is full: once the statement that took them away has returned, nothing
that needed them goes out, as after REVOKE.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
from conftest import PASSWORD
from test_revocation import SETUP, WANTED, Load, Template, _ask, elsewhere, opened

from headgate.labels import parse_level
from headgate.sendlog.signing import PrivateKey, signed

__all__ = ["elsewhere"]  # a fixture of the other module
KEY = PrivateKey.new()
POLICY = f"""
CREATE USER acme; ALTER USER acme ADD KEY '{KEY.public_text()}';
CREATE POLICY staff AS $$
  plays(U, nurse) :- acme says employee(U).
  cleared(U, "C") :- acme says officer(U).
$$;
REVOKE ROLE nurse FROM USER ned; ALTER USER ned CLEARANCE U;
"""
FACTS = [("employee", ("ned",)), ("officer", ("ned",))]
WAYS = (
    "employee",  # taken back
    "officer",
    f"ALTER USER acme DROP KEY '{KEY.public_text()}'",
    "ALTER USER acme LOCK",
    "DROP USER acme",
    "DROP POLICY staff",
    "DROP ROLE nurse",
    "ALTER USER ned LOCK",
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """As for REVOKE; but ned is a nurse, and cleared, by acme's word alone."""
    store = tmp_path_factory.mktemp("template") / "headgate.db"
    headgate = opened(store)
    headgate.initialise("joe", PASSWORD)
    joe = headgate.login("joe", PASSWORD)
    headgate.execute(joe, SETUP)
    headgate.execute(joe, POLICY)
    headgate.execute(joe, f"ACCEPT STATEMENT '{signed(KEY, 'acme', address(headgate.execute(joe, SHOW)), 1, FACTS)}'")
    tokens = {user: headgate.login(user, PASSWORD, level=parse_level("C")) for user in ("ned", "dora")}
    for token in tokens.values():
        headgate.execute(token, "; ".join(f"SUBSCRIBE TO joe.{name}" for name in WANTED))
    headgate.close()
    return Template(store, joe, tokens["ned"])


SHOW = "SHOW POLICIES"


def address(results: list) -> str:  # type: ignore[type-arg]
    return str(results[0].rows[0][2])


def trial(seed: int, template: Template, folder: Path, elsewhere: subprocess.Popen[str]) -> list[str]:
    """What went out after it was forbidden."""
    rng, way = Random(seed), WAYS[seed % len(WAYS)]
    load = Load(template, folder)
    leaks = []
    try:
        if way in ("employee", "officer"):
            to = address(load.headgate.execute(template.joe, SHOW))
            way = f"ACCEPT STATEMENT '{signed(KEY, 'acme', to, 2, [(way, ('ned',))], retract=True)}'"
        load.thread.start()
        load.pushed(2)
        if rng.random() < 0.7:  # results of one batch are computed, and not out
            load.go_on.clear()
            load.hold = True
            assert load.computing.wait(60)
        before = load.received("ned")
        assert before.keys() == set(WANTED), f"{way}: full buffers: {before}, {load.error!r}"
        if seed % 2:
            _ask(elsewhere, f"sqlite:///{load.store}", template.joe, way)
        else:
            load.headgate.execute(template.joe, way)
        sizes = load.received("ned")
        load.hold = False
        load.go_on.set()
        load.pushed(2)
        assert load.error is None, f"{way}: {load.error!r}"
        after, waiting = load.received("ned"), load.waiting("ned")
        leaks += [f"{way}: the file of {x} grew" for x in WANTED if after[x] != sizes[x]]
        leaks += [f"{way}: {waiting[x]} results of {x} fetched" for x in WANTED if waiting[x]]
        if way != "DROP ROLE nurse":
            assert sum(load.waiting("dora").values()) > 0, f"{way}: dora received nothing"
    finally:
        load.close()
        shutil.rmtree(folder)
    return leaks


@pytest.mark.parametrize("seed", range(2 * len(WAYS)))
def test_nothing_goes_out_after_a_policy_has_taken_its_right_away(
    template: Template, tmp_path: Path, elsewhere: subprocess.Popen[str], seed: int
) -> None:
    assert trial(seed, template, tmp_path / "trial", elsewhere) == []


def test_nothing_goes_out_after_a_lifetime_has_passed(template: Template, tmp_path: Path) -> None:
    """Nobody does anything: the clock alone takes the right away, between two batches."""
    from headgate.testing import ManualClock

    load = Load(template, tmp_path / "trial")
    clock = ManualClock()
    load.headgate.monitor.policies._clock = clock
    try:
        load.headgate.execute(template.joe, "DROP POLICY staff")
        soft = 'materialize(employee, 60). plays(U, nurse) :- acme says employee(U). cleared(ned, "C").'
        load.headgate.execute(template.joe, f"CREATE POLICY soft AS $${soft}$$")
        to = address(load.headgate.execute(template.joe, SHOW))
        clock._now = load.headgate.monitor.clock.now()
        message = signed(KEY, "acme", to, 1, [FACTS[0]])
        load.headgate.execute(template.joe, f"ACCEPT STATEMENT '{message}'")
        clock._now = load.headgate.monitor.clock.now()
        load.thread.start()
        load.pushed(2)
        assert load.received("ned").keys() == set(WANTED)
        load.go_on.clear()
        load.hold = True
        assert load.computing.wait(60)
        before = load.received("ned")
        clock.advance(61)
        load.hold = False
        load.go_on.set()
        load.pushed(2)
        assert (load.received("ned"), sum(load.waiting("ned").values())) == (before, 0)
        assert sum(load.waiting("dora").values()) > 0
    finally:
        load.close()
