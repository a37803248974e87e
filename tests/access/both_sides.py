"""The system and the model side by side: what is done is done to both, and after it both are looked at."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine

from headgate.access.permissions import Kind, Permission
from headgate.access.state import State
from headgate.labels import Level as RealLevel
from headgate.service import Headgate
from headgate.testing import ManualClock

from .compared import attempt, dangling, modelled, rows, stored
from .drawing import ROOT, UNKNOWN, Pick, Statement
from .drawn_statements import Author
from .model import Model
from .model_values import APPLIES, SYSTEM, Level, Target

CHECKS_PER_STEP = 60


@dataclass
class Tally:
    """How much was really run, and how it ended."""

    sequences: int = 0
    steps: int = 0
    statements: int = 0
    checks: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __str__(self) -> str:
        kinds = sorted({kind for kind, _ in self.outcomes})
        lines = [
            f"{self.sequences} sequences, {self.steps} steps, {self.statements} statements, {self.checks} checks",
            *(
                f"  {kind}: " + ", ".join(f"{o} {n}" for (k, o), n in sorted(self.outcomes.items()) if k == kind)
                for kind in kinds
            ),
        ]
        return "\n".join(lines)


class BothSides(RuleBasedStateMachine):
    """Wherever they disagree, a test fails. What is done next is for those to say who inherit this."""

    tally = Tally()

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = Model(self.clock.now())
        self.gates: list[Headgate] = []
        self.tokens: list[str] = []  # every session there ever was
        self.resting: set[str] = set()  # sessions that nobody looks through, so that they can grow idle
        self.records = 0
        self.step = 0
        self.favourites: tuple[str, ...] = ()
        self.sound = True  # both sides agreed when they were last looked at
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    # The end --------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Everything once more; the store holds what is in memory; the audit trail is whole."""
        try:
            if self.gates and self.sound:
                self.finish()
        finally:
            for gate in self.gates:
                gate.close()
            if self.folder:
                self.folder.cleanup()

    def finish(self) -> None:
        self.look(everything=True)
        for gate in self.gates:
            assert gate.verify_audit() == []
            assert gate.audit_head().count >= self.records
            fresh = State()
            with gate.monitor.store.locked() as connection:
                gate.monitor.store._load(connection, fresh)
            gate.monitor.store.refresh(gate.monitor.state)
            assert rows(fresh) == rows(gate.monitor.state)
        self.tally.sequences += 1
        self.tally.steps += self.step - 2  # all but the looks before the first and after the last

    # Acting ---------------------------------------------------------------------------------------------------------

    def gate(self, pick: Pick) -> Headgate:
        return pick.one(self.gates)

    def live(self) -> list[str]:
        return [token for token in self.tokens if token in self.model.sessions]

    def caller(self, pick: Pick) -> str:
        live = self.live()
        return pick.one(live) if live and not pick.chance(3) else pick.one(self.tokens)

    def user_of(self, token: str) -> str:
        return self.model.sessions[token].user if token in self.model.sessions else ROOT

    def login(
        self, gate: Headgate, user: str, password: str, roles: frozenset[str] | None, level: Level | None
    ) -> str | None:
        self.sound = False
        real = RealLevel(*level) if level else None
        token, got = attempt(lambda: gate.login(user, password, roles=roles, level=real))
        expected = self.model.login(token or "refused", user, password, roles, level)
        note(f"login of {user}, roles {roles and sorted(roles)}, level {level}: {got or 'granted'}")
        assert got == expected
        self.records += 1
        self.tally.outcomes["LOGIN", got or "granted"] += 1
        if token:
            self.tokens.append(token)
        return token

    def execute(self, gate: Headgate, token: str, statements: Sequence[Statement]) -> bool:
        self.sound = False
        text = "; ".join(statement.text for statement in statements)
        before = modelled(self.model)
        user, active = self.user_of(token), self.model.sessions.get(token)
        expected = self.model.run(token, [statement.action for statement in statements])
        _, got = attempt(lambda: gate.execute(token, text))
        level = f" at {active.level}, roles {sorted(active.roles)}" if active else ", session over"
        note(f"{user} (session {self.tokens.index(token)}{level}): {text} -> {got or 'granted'}")
        assert got == expected, f"{text}: the model says {expected or 'granted'}, the system {got or 'granted'}"
        assert expected is None or modelled(self.model) == before
        self.records += max(self.model.tried, 1)
        self.tally.statements += len(statements)
        for statement in statements if got is None else statements[-1:]:
            self.tally.outcomes[statement.kind, got or "granted"] += 1
        return got is None

    def request(self, pick: Pick, kind: str) -> None:
        """One statement; for the most part one that the model expects to succeed, if a few tries find one."""
        wanted = pick.chance(80)
        for _ in range(5):
            token = self.caller(pick)
            statement = Author(pick, self.model, self.user_of(token)).write(kind)
            if not wanted or self.model.copy().run(token, [statement.action]) is None:
                break
        granted = self.execute(self.gate(pick), token, [statement])
        self.look(everything=granted and statement.kind.startswith("REVOKE"))

    def end_one(self, pick: Pick) -> None:
        gate, token = self.gate(pick), self.caller(pick)
        self.sound = False
        note(f"logout of session {self.tokens.index(token)}")
        _, got = attempt(lambda: gate.logout(token))
        assert got == self.model.logout(token)
        self.records += 1
        self.tally.outcomes["LOGOUT", got or "granted"] += 1

    def advance(self, seconds: float) -> None:
        note(f"{seconds} seconds pass")
        self.clock.advance(seconds)
        self.model.advance(seconds)

    # Looking --------------------------------------------------------------------------------------------------------

    def look(self, *, everything: bool = False) -> None:
        """Both sides agree on what is stored, who is logged in, what they may do and what they are shown."""
        self.step += 1
        self.sound = False
        for gate in self.gates:
            self.look_at_sessions(gate)
            self.look_at_rights(gate, everything)
            assert stored(gate.monitor.state) == modelled(self.model)
            assert dangling(gate.monitor.state) == []
        self.look_at_catalogs()
        self.keep_an_administrator()
        self.sound = True

    def look_at_sessions(self, gate: Headgate) -> None:
        for token in self.tokens:
            principal, got = attempt(lambda token=token: gate.principal(token))  # type: ignore[misc]
            session = self.model.sessions.get(token)
            assert got == (None if session else "AuthenticationFailed"), f"session {self.tokens.index(token)}"
            if principal and session:
                found = (principal.user, principal.roles, str(principal.level))
                assert found == (session.user, self.model.active(session), str(session.level))

    def look_at_rights(self, gate: Headgate, everything: bool) -> None:
        things = self.model.things.values()
        targets = [Target(t.kind, t.name, t.owner or None) for t in things]
        targets += [Target(t.kind, t.name) for t in things if t.owner] + [Target("STREAM", UNKNOWN)]
        asked = [(token, p, t) for token in self.live() for t in targets for p in APPLIES[t.kind]]
        if not everything and len(asked) > CHECKS_PER_STEP:
            asked = random.Random(self.step).sample(asked, CHECKS_PER_STEP)
        for token, p, t in asked:
            expected = self.model.check(token, p, t)
            decision, got = attempt(lambda: gate.check(token, Permission(p), Kind(t.kind), t.name, t.owner))  # noqa: B023
            answer = got or bool(decision)
            about = f"{p} on {t.kind} {t} for session {self.tokens.index(token)}: {decision}"
            assert answer == expected, f"{about}: the model says {expected}, the system {answer}"
        self.tally.checks += len(asked)

    def look_at_catalogs(self) -> None:
        for token in self.live():
            if token in self.resting:
                continue
            session = self.model.sessions[token]
            gate = self.gates[self.step % len(self.gates)]
            expected = self.model.run(token, [lambda m, me: m.show_catalog(me)])
            answer, got = attempt(lambda: gate.execute(token, "SHOW CATALOG"))  # noqa: B023
            assert got == expected
            self.records += 1
            self.tally.outcomes["SHOW CATALOG", got or "granted"] += 1
            if answer:
                seen = [self.model.things[i] for i in self.model.visible(session)]
                shown = sorted((t.kind.lower(), t.name, t.owner, str(t.level)) for t in seen)
                assert sorted(answer[0].rows) == shown

    def keep_an_administrator(self) -> None:
        """Somebody can always log in and change the system, and here somebody is always logged in who may."""
        able = self.model.administrators()
        assert able
        if not any(self.model.allowed(session, "CHANGE SYSTEM", SYSTEM) for session in self.model.sessions.values()):
            name, roles = min(able.items(), key=lambda item: self.model.users[item[0]].locked_until)
            if self.model.users[name].locked_until > self.model.now:
                self.advance(self.model.users[name].locked_until - self.model.now)
            for old in [x for x in self.live() if self.model.sessions[x].user == name]:  # there may be too many
                self.gates[0].logout(old)
                self.model.logout(old)
                self.records += 1
            token = self.login(self.gates[0], name, self.model.users[name].password, roles, Level())
            assert token
            assert self.gates[0].check(token, Permission.CHANGE_SYSTEM, Kind.SYSTEM, "SYSTEM")
