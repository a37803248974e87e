"""Bad input: whatever the text, it is answered by a result or by an error with a place in it, and changes nothing.

A text that can be read is also run, as an administrator and as somebody with few rights, in a script whose last
statement fails: then neither the store nor the memory may differ from before, whatever the statements did.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from conftest import System, _initialised

from headgate.access import tables
from headgate.access.state import State
from headgate.cql.parser import MAX_SCRIPT, parse_script
from headgate.errors import AuthenticationFailed, HeadgateError, NotFound, Position, StoreError
from headgate.labels import LevelOrder, parse_label, parse_level, parse_roles
from headgate.labels.column import read_labels
from headgate.labels.text import MAX_TEXT
from headgate.testing.postgres import fresh_database

from . import fuzzing

LAST = 'DROP ROLE "no such role"'
ORDER = LevelOrder.total("U", "C", "S")
PARSERS: list[Callable[[str], object]] = [parse_label, parse_roles, parse_level]
MANY = 10_000  # texts for one system, after which the next one begins

Memory = dict[str, tuple[dict[Any, Any], dict[Any, Any]]]


def memory(state: State) -> Memory:
    """All rows and all indexes; copies, so that they can be compared later."""
    copied = {}
    for name, table in state.tables.items():
        found = {index: {key: dict(rows) for key, rows in kept.items()} for index, kept in table._found.items()}
        copied[name] = (dict(table._rows), found)
    return copied


@dataclass
class Fuzz:
    """One system under fire, and what was wrong so far: one example of each kind."""

    system: System
    faults: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.system.run(fuzzing.WORLD)
        self.joe = self.system.login("joe")
        self.system.run(fuzzing.JOES_WORLD, self.joe)
        self.store = self.stored()
        self.memory = memory(self.system.headgate.monitor.state)

    def stored(self) -> list[object]:
        """Every row of every table but the audit trail, and of the head what is not about the audit trail."""
        queries = [
            f'SELECT * FROM "{name}"' for name in sorted(tables.metadata.tables) if name not in ("audit", "head")
        ]
        raw = self.system.headgate.monitor.store._engine.raw_connection()
        try:
            cursor = raw.cursor()
            rows: list[object] = []
            for query in [*queries, "SELECT version, next_object FROM head"]:
                cursor.execute(query)
                rows.append(sorted(cursor.fetchall(), key=repr))
            cursor.close()
            return rows
        finally:
            raw.close()

    def loaded(self) -> Memory:
        """What a new process would read."""
        fresh, store = State(), self.system.headgate.monitor.store
        with store._engine.begin() as connection:
            store._load(connection, fresh)
        return memory(fresh)

    def fault(self, where: str, text: str, what: str) -> None:
        self.counts["faults"] += 1
        self.faults.setdefault(what[:60], f"{what}\n    at {where}\n    in {text[:300]!r}")

    def check_error(self, where: str, text: str, error: Exception) -> None:
        if not isinstance(error, HeadgateError) or isinstance(error, StoreError):
            self.fault(where, text, f"{type(error).__name__}: {error}")
        elif error.position is None:
            self.fault(where, text, f"no position: {type(error).__name__}: {error}")
        elif not 0 <= error.position.offset <= len(text) or error.position != Position.of(text, error.position.offset):
            self.fault(where, text, f"wrong position: {error}")
        elif not error.message or any(not c.isprintable() for c in str(error)):
            self.fault(where, text, f"not one printable line: {str(error)!r}")

    # One text -------------------------------------------------------------------------------------------------------

    def label(self, where: str, text: str) -> bool:
        read = 0
        for parser in PARSERS:
            try:
                value = parser(text)
            except Exception as error:
                self.check_error(where, text, error)
            else:
                read += 1
                if len(str(value)) <= MAX_TEXT and parser(str(value)) != value:
                    self.fault(where, text, f"{value} does not read back")
        self.in_a_column(where, text)
        return read > 0

    def in_a_column(self, where: str, text: str) -> None:
        """The compiled reader of columns agrees with the grammar."""
        try:
            expected = parse_label(text, ORDER)
        except HeadgateError:
            expected = None
        try:
            column = pa.array([text])
        except UnicodeEncodeError:  # no column holds half of a character
            return
        found = list(read_labels(column, ORDER).labels)
        if found != ([] if expected is None else [expected]):
            self.fault(where, text, f"a column with it has {found}, not {expected}")

    def script(self, where: str, text: str) -> bool:
        """Whether all of it could be done by the administrator."""
        try:
            parse_script(text)
        except Exception as error:
            self.check_error(where, text, error)
            return False
        if len(text) > MAX_SCRIPT - len(LAST) - 2:
            return False
        self.counts["executed"] += 1
        done = [self.execute(where, token, text) for token in (self.system.root, self.joe)]
        return done[0]

    def execute(self, where: str, token: str, text: str) -> bool:
        whole, done = f"{text}\n;{LAST}", False
        try:
            self.system.run(whole, token)
        except Exception as error:
            self.check_error(where, whole, error)
            place = error.position.offset if isinstance(error, HeadgateError) and error.position else -1
            done = isinstance(error, NotFound) and place > len(text)
        else:
            self.fault(where, text, "a script whose last statement fails was carried out")
        if self.stored() != self.store:
            self.fault(where, text, "the store was changed")
        if memory(self.system.headgate.monitor.state) != self.memory:
            self.fault(where, text, "the memory was changed")
        return done

    def run(self, seed: str) -> None:
        """One text; the seed says all about it."""
        random = Random(seed)
        kind = random.choices(["good", "damaged", "joined", "noise", "label", "bad label"], [30, 40, 5, 5, 5, 15])[0]
        self.counts[kind] += 1
        match kind:
            case "good":
                self.counts["good and done"] += self.script(seed, fuzzing.script(random))
            case "damaged":
                self.script(seed, fuzzing.damaged(random, fuzzing.script(random)))
            case "joined":
                parts = [fuzzing.damaged(random, fuzzing.script(random)), fuzzing.script(random)]
                self.script(seed, random.choice(["", ";", "\n", "/*", "'"]).join(parts))
            case "noise":
                text = fuzzing.noise(random)
                self.script(seed, text)
                self.label(seed, text)
            case "label":
                self.counts["label and read"] += self.label(seed, fuzzing.label(random))
            case _:
                self.label(seed, fuzzing.damaged(random, fuzzing.label(random)))

    def finish(self) -> None:
        """What was compared text by text is compared once more with what a new process reads."""
        if self.loaded() != self.memory:
            self.fault("the end", "", "a fresh load differs from the memory")
        if found := self.system.headgate.verify_audit():
            self.fault("the end", "", f"the audit trail is damaged: {found}")


def _fire(system: System, name: str, texts: range) -> Fuzz:
    fuzz = Fuzz(system)
    for number in texts:
        fuzz.run(f"{name}/{number}")
    fuzz.finish()
    return fuzz


def _judge(fuzz: Fuzz, texts: int) -> None:
    shown = "\n".join(fuzz.faults.values())
    assert not fuzz.faults, f"{fuzz.counts['faults']} faults in {texts} texts, of these kinds:\n{shown}"
    assert fuzz.counts["good and done"] > 0.2 * fuzz.counts["good"], "hardly any good script can be carried out"
    assert fuzz.counts["label and read"] > 0.9 * fuzz.counts["label"], "hardly any good label can be read"
    assert fuzz.counts["executed"] > fuzz.counts["good"], "no damaged text is ever carried out"


def _carry_out(url: str, seed: str, scripts: int) -> Fuzz:
    """Scripts that may succeed: then memory, store and another process's memory must say the same."""
    system = System(url)
    try:
        system.initialise()
        fuzz = Fuzz(system)
        other = system.another()
        random = Random(seed)
        for number in range(scripts):
            where, text = f"{seed}, script {number}", fuzzing.script(random)
            token = random.choice([system.root, fuzz.joe])
            fuzz.counts["good"] += 1
            try:
                system.run(text, token)
                fuzz.counts["good and done"] += 1
            except AuthenticationFailed:
                break  # an earlier script ended this session
            except Exception as error:
                fuzz.check_error(where, text, error)
            now = memory(system.headgate.monitor.state)
            if now != fuzz.loaded():
                fuzz.fault(where, text, "the store differs from the memory")
            other.monitor.store.refresh(other.monitor.state)
            if now != memory(other.monitor.state):
                fuzz.fault(where, text, "another process's memory differs")
        return fuzz
    finally:
        system.close()


def _carry_out_many(seed: str, epochs: int, tmp_path: Path, postgres_url: str) -> None:
    """A new store for each epoch, since scripts may lock everybody out; every third one is on the server."""
    counts: Counter[str] = Counter()
    faults: dict[str, str] = {}
    for epoch in range(epochs):
        url = f"sqlite:///{tmp_path / str(epoch)}" if epoch % 3 else fresh_database(postgres_url)
        fuzz = _carry_out(url, f"{seed} {epoch}", 60)
        counts += fuzz.counts
        faults = fuzz.faults | faults
    print(f"{epochs} epochs: {dict(counts)}")
    assert not faults, "\n".join(faults.values())
    assert counts["good"] > 20 * epochs
    assert counts["good and done"] > 0.2 * counts["good"]


def test_what_is_carried_out_is_the_same_in_memory_in_the_store_and_in_another_process(
    tmp_path: Path, postgres_url: str
) -> None:
    _carry_out_many("epoch", 10, tmp_path, postgres_url)


@pytest.mark.long
def test_much_that_is_carried_out_is_the_same_everywhere(tmp_path: Path, postgres_url: str) -> None:
    _carry_out_many("long epoch", 200, tmp_path, postgres_url)


def test_bad_input_is_answered_and_changes_nothing_in_memory(sqlite_system: System) -> None:
    _judge(_fire(sqlite_system, "test", range(5_000)), 5_000)


def test_bad_input_is_answered_and_changes_nothing_in_a_store(system: System) -> None:
    _judge(_fire(system, "store", range(500)), 500)


@pytest.mark.long
def test_very_much_bad_input_is_answered_and_changes_nothing() -> None:
    begun, texts = time.monotonic(), 100_000
    total: Counter[str] = Counter()
    faults: dict[str, str] = {}
    for first in range(0, texts, MANY):
        for system in _initialised("sqlite://"):
            fuzz = _fire(system, "long", range(first, first + MANY))
            total += fuzz.counts
            faults = fuzz.faults | faults
            print(f"{first + MANY} texts, {time.monotonic() - begun:.0f} s, {dict(total)}", flush=True)
    fuzz.counts, fuzz.faults = total, faults
    _judge(fuzz, texts)


@pytest.mark.long
def test_much_bad_input_is_answered_and_changes_nothing_in_a_store(system: System) -> None:
    _judge(_fire(system, "long store", range(5_000)), 5_000)
