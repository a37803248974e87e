"""The whole of OxRBAC against a second one, written plainly from SPEC.md (model.py).

Random sessions, the unprivileged ones included, run random statements on both. Outcomes must agree, and after each
step so must everything stored, every decision asked for, and what each session is shown.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import argon2
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from headgate.access.passwords import Passwords
from headgate.service import Headgate

from .both_sides import BothSides, Tally
from .drawing import PASSWORDS, ROLES, ROOT, UNKNOWN, Pick, Statement
from .drawn_statements import AUTHORS, Author
from .model_values import Level
from .population import OBJECTS, POPULATION

MOST_SESSIONS = 5
CHEAP = Passwords(argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
_ALL = tuple(AUTHORS)
# What a step does, with its weight.
_WEIGHTS = {"GRANT": 6} | dict.fromkeys(_ALL, 2)  # hypothesis likes the first best
_WEIGHTS |= {
    "SHOW CATALOG": 0,  # everyone looks after each step
    "CREATE STREAM": 5,
    "CREATE QUERY": 6,
    "START QUERY": 4,
    "DROP OBJECT": 4,
    "ALTER USER": 5,
    "GRANT": 6,
    "REVOKE": 6,
    "GRANT ROLE": 5,
    "REVOKE ROLE": 3,
    "SET ROLE": 3,
    "CREATE COMPARTMENT": 1,
    "DROP COMPARTMENT": 1,
    "script": 8,
    "login": 8,
    "logout": 1,
    "time": 3,
    "wrong password": 1,
}
_ACTS = tuple(act for act, weight in _WEIGHTS.items() for _ in range(weight))
_SESSION_KINDS = ("LOGIN", "LOGOUT")


class Catalogs(BothSides):
    """Random sessions and what they do."""

    # The beginning --------------------------------------------------------------------------------------------------

    @initialize(
        place=st.integers(0, 19), populated=st.integers(0, 9), favourites=st.tuples(*[st.sampled_from(_ACTS)] * 2)
    )
    def begin(self, place: int, populated: int, favourites: tuple[str, ...]) -> None:
        """Mostly in memory; in one run of twenty, two systems share a file, as two processes would."""
        url = "sqlite://"
        if place == 19:
            self.folder = tempfile.TemporaryDirectory()
            url = f"sqlite:///{Path(self.folder.name) / 'store.db'}"
        self.favourites = favourites
        count = 2 if self.folder else 1
        self.gates = [Headgate(url, b"k" * 32, clock=self.clock, passwords=CHEAP) for _ in range(count)]
        self.gates[0].initialise(ROOT, PASSWORDS[0])
        self.model.initialise(ROOT, PASSWORDS[0])
        self.records = 1
        self.login(self.gates[0], ROOT, PASSWORDS[0], None, None)
        if populated:
            self.populate(self.gates[0])
        self.look(everything=True)

    def populate(self, gate: Headgate) -> None:
        """A catalog with some life in it; most runs begin here."""
        self.execute(gate, self.tokens[0], POPULATION)
        self.login(gate, "ann", PASSWORDS[0], None, Level())
        self.execute(gate, self.tokens[1], OBJECTS)
        self.login(gate, "ann", PASSWORDS[0], frozenset({"r1"}), None)
        self.login(gate, "bob", PASSWORDS[0], None, Level())

    # Rules ----------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """One rule that weighs its choices itself: hypothesis would choose as many separations as streams."""
        pick = Pick(data)
        what = pick.one(self.favourites) if pick.chance(30) else pick.one(_ACTS)
        other = {
            "script": self.script,
            "login": self.log_in,
            "logout": self.log_out,
            "time": self.time_passes,
            "wrong password": self.wrong_passwords,
        }
        if what in other:
            other[what](pick)
        else:
            self.request(pick, what)

    def script(self, pick: Pick) -> None:
        """Several statements by one session; in half of them the last is refused after the others were carried out."""
        token, fail = self.caller(pick), pick.chance(50)
        author, trial = Author(pick, self.model, self.user_of(token)), self.model.copy()
        statements = []
        for _ in range(pick.one((2, 3))):
            statement = author.write(pick.one(_ALL))
            if not fail or trial.run(token, [statement.action]) is None:
                statements.append(statement)
        if fail:
            name = f"{UNKNOWN}_here"
            statements.append(Statement("DROP ROLE", f"DROP ROLE {name}", lambda m, me: m.drop_role(me, name)))
        self.execute(self.gate(pick), token, statements)
        self.look()

    def log_in(self, pick: Pick) -> None:
        if len(self.live()) >= MOST_SESSIONS:
            self.end_one(pick)
        author = Author(pick, self.model, ROOT)
        name = author.a_user()
        known = self.model.users.get(name)
        password = known.password if known and not pick.chance(10) else pick.one((*PASSWORDS, "something else"))
        roles = None
        if pick.chance(50):
            roles = frozenset(pick.some(lambda: pick.name(sorted(self.model.authorised(name)), ROLES)))
        level = author.a_level() if pick.chance(60) else None
        token = self.login(self.gate(pick), name, password, roles, level)
        if token and pick.chance(30):
            self.resting.add(token)
        self.look()

    def log_out(self, pick: Pick) -> None:
        self.end_one(pick)
        self.look()

    def time_passes(self, pick: Pick) -> None:
        self.advance(60 * pick.one((1, 1, 6, 6, 15, 31, 61, 481)))
        self.look()

    def wrong_passwords(self, pick: Pick) -> None:
        gate, name = self.gate(pick), Author(pick, self.model, ROOT).a_user()
        for _ in range(pick.one((1, 2, 3))):
            self.login(gate, name, "not the password", None, None)
        self.look()


def run(sequences: int, steps: int) -> Tally:
    machine = type("Run", (Catalogs,), {"tally": Tally()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    tally: Tally = machine.tally  # type: ignore[attr-defined]
    print(tally)
    return tally


def test_the_system_does_what_the_plain_model_does() -> None:
    tally = run(sequences=60, steps=30)
    assert tally.sequences >= 60
    assert tally.steps >= 60 * 25


@pytest.mark.long
def test_the_system_does_what_the_plain_model_does_at_length() -> None:
    tally = run(sequences=2000, steps=50)
    assert tally.sequences >= 2000
    assert tally.steps >= 2000 * 45
    for kind in (*_ALL, *_SESSION_KINDS):
        outcomes = {outcome for k, outcome in tally.outcomes if k == kind}
        assert "granted" in outcomes and len(outcomes) > 1, f"{kind}: {outcomes}"
