"""`kill -9` at any moment of a pipeline's work: nothing is lost, nothing is there twice, nothing by half.

A process takes numbered batches, and is killed again and again, at random moments and at every step that is worth it;
when it has come to the end at last, everyone's files hold exactly what the oracle says.
"""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headgate.labels import Label, Rules, parse_label
from headgate.plan.expressions import Value
from headgate.testing.oracle import Change, Event, Result, Tuple, cumulative, exact

from . import crash_worker as worker

WORKER = Path(worker.__file__)
Line = tuple[str, str, tuple[Any, ...]]


# What goes in, and what must come out


def random_batches(rng: Random, count: int) -> list[dict[str, Any]]:
    """Of both streams in turn; times go on, with some disorder, and a tuple now and then comes too late."""
    batches, clock = [], 1_700_000_000_000
    for _ in range(count):
        stream = rng.choice(("V", "V", "W"))
        rows = []
        for _ in range(rng.randint(1, 6)):
            clock += rng.choice((0, 100, 300, 700))
            back = rng.choice((0, 0, 0, 500, 1500, 9000))
            value = {"bp": rng.randint(90, 160)} if stream == "V" else {"x": rng.randint(0, 9)}
            policy = rng.choice(("doctor", "nurse", "doctor | nurse", "doctor & nurse"))
            rows.append({"at": clock - back, "sid": rng.randint(1, 3), "policy": policy, **value})
        batches.append({"stream": stream, "rows": rows})
    return batches


def random_rights(rng: Random, batches: int) -> list[worker.Rights]:
    roles = (("doctor",), ("nurse",), ("doctor", "nurse"), None)
    return [
        worker.Rights(rng.randrange(batches), rng.choice(list(worker.PEOPLE)), rng.choice(roles))
        for _ in range(rng.randint(2, 6))
    ]


def expected(
    batches: list[dict[str, Any]], rights: list[worker.Rights], names: Iterable[str] = tuple(worker.TEXTS)
) -> dict[tuple[str, str], list[Line]]:
    """By subscriber and query, as the oracle has it."""
    rules, queries = Rules(), worker.running(names)
    events: list[Event] = []
    for number, batch in enumerate(batches):
        events += changes(rights, number)
        events += [tuple_of(batch["stream"], row, rules) for row in batch["rows"]]
    events += [x for number in range(len(batches), len(batches) + 1) for x in changes(rights, number)]
    lateness = dict.fromkeys(worker.COLUMNS, worker.LATENESS)
    found: dict[tuple[str, str], list[Line]] = {}
    for name, query in queries.items():
        for who in worker.PEOPLE:
            if name in worker.STAGES:
                given = through(
                    who, events, exact(queries["sums"].query, events, worker.PEOPLE, lateness=lateness)[who]
                )
                results = exact(query.query, given, {who: worker.PEOPLE[who]})[who]
            else:
                means = cumulative if name in worker.CUMULATIVE else exact
                results = means(query.query, events, worker.PEOPLE, lateness=lateness)[who]
            found[who, name] = [line_of(x) for x in results]
    return found


def changes(rights: list[worker.Rights], number: int) -> list[Change]:
    return [Change(x.who, x.clearance) for x in rights if x.after == number]


def through(who: str, events: list[Event], results: list[Result]) -> list[Event]:
    """What somebody received of a query as tuples of its output, where they came among the changes of its rights."""
    source, rules = Label(sources=frozenset({"sums_out"})), Rules()
    coming = [
        (
            x.after,
            1,
            Tuple(
                "sums_out", x.time, dict(zip(("sid", "s", "n"), x.values, strict=True)), rules.combine(x.label, source)
            ),
        )
        for x in results
    ]
    changing = [(number, 0, x) for number, x in enumerate(events) if isinstance(x, Change) and x.subscriber == who]
    return [x for *_, x in sorted([*coming, *changing], key=lambda x: x[:2])]


def tuple_of(stream: str, row: dict[str, Any], rules: Rules) -> Tuple:
    label = rules.combine(Label(sources=frozenset({stream})), parse_label(row["policy"]))
    values: dict[str, Value] = {**row, "at": dt.datetime.fromtimestamp(row["at"] / 1000, dt.UTC)}
    return Tuple(stream, row["at"], values, label)


def line_of(result: Result) -> Line:
    time = dt.datetime.fromtimestamp(result.time / 1000, dt.UTC).isoformat()
    return time, str(result.label), result.values


def written(folder: Path, names: Iterable[str] = tuple(worker.TEXTS)) -> dict[tuple[str, str], list[Line]]:
    return {(who, name): lines_in(folder / "out" / who / f"{name}.jsonl") for who in worker.PEOPLE for name in names}


def lines_in(file: Path) -> list[Line]:
    texts = file.read_text().splitlines() if file.exists() else []
    return [(x["time"], x["label"], tuple(x["values"].values())) for x in map(json.loads, texts)]


# Killing


class Victim:
    """A folder, the batches in it, and the process that begets those that are killed over them."""

    def __init__(self, folder: Path, seed: int, batches: int) -> None:
        rng = Random(seed)
        self.folder = folder
        self.batches = random_batches(rng, batches)
        self.rights = random_rights(rng, batches)
        self.killed: Counter[str] = Counter()
        (folder / "in").write_text(json.dumps(self.batches))
        (folder / "rights").write_text(json.dumps([vars(x) for x in self.rights]))
        command = [sys.executable, str(WORKER), str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def life(self, **order: object) -> bool:
        """Whether it was killed, and did not come to the end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        ended = json.loads(self._process.stdout.readline())
        if ended["code"] == -signal.SIGKILL:
            self.killed[ended["doing"]] += 1
            return True
        assert ended["code"] == 0, ended
        return False

    def judge(self) -> None:
        """After all that it goes on to the end, and, if asked once more, has nothing to add."""
        wanted = expected(self.batches, self.rights)
        assert sum(map(len, wanted.values())) > 100
        for _ in range(2):
            assert not self.life()
            found = written(self.folder)
            assert found == wanted, [key for key in wanted if found[key] != wanted[key]]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def victim(folder: Path, seed: int, batches: int = 60) -> Iterator[Victim]:
    found = Victim(folder, seed, batches)
    try:
        yield found
    finally:
        found.close()


def test_without_a_crash_the_files_hold_what_the_oracle_says(tmp_path: Path) -> None:
    with victim(tmp_path, 1) as process:
        process.judge()


def test_a_process_killed_at_every_step_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with victim(tmp_path, 2) as process:
        for at in (1, 2):
            for step in worker.STEPS:
                process.life(step=step, at=1 if step == "recovering" else at)
        process.judge()
        assert set(process.killed) == set(worker.STEPS)
        print(f"\nkilled {process.killed.total()} times: {dict(process.killed)}")


@pytest.mark.parametrize("seed", [3, 4])
def test_a_process_killed_at_random_moments_loses_and_repeats_nothing(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    with victim(tmp_path, seed) as process:
        for _ in range(25):
            process.life(after=rng.uniform(0.01, 0.25))
        process.judge()
        assert process.killed.total() >= 15
        print(f"\nkilled {process.killed.total()} times: {dict(process.killed)}")
