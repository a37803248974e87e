"""`kill -9` at any moment of a pipeline's work: nothing is lost, nothing is there twice, nothing by half.

A process takes numbered batches, and is killed again and again, at random moments and at every step that is worth it;
when it has come to the end at last, everyone's files hold exactly what the oracle says.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headgate.egress.mailbox import Mailbox
from headgate.errors import Conflict, StoreError
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.labels import Label, Rules, parse_label
from headgate.plan.expressions import Value
from headgate.recovery.home import forget
from headgate.recovery.pipeline import Pipeline
from headgate.recovery.query_graph import Make
from headgate.service.streams import check_history, forget_unbegun
from headgate.testing import ManualClock
from headgate.testing.oracle import (
    CascadedQuery,
    CascadeSetting,
    Change,
    ClockEvent,
    Event,
    OracleResult,
    Tuple,
    cascade,
    cumulative,
    exact,
)
from system import crash_worker as worker

WORKER = Path(worker.__file__)
Line = tuple[str, str, tuple[Any, ...]]


# What goes in, and what must come out


def random_batches(rng: Random, count: int) -> list[dict[str, Any]]:
    """Of both streams in turn; times go on, with some disorder, and a tuple now and then comes too late. Some batches
    say by which time on the clock everything has been read, so that results are final by the clock."""
    batches: list[dict[str, Any]] = []
    clock, looks = 1_700_000_000_000, Random(f"looks {rng.getstate()}")
    for _ in range(count):
        stream = rng.choice(("V", "V", "W"))
        rows = []
        for _ in range(rng.randint(3, 8)):
            clock += rng.choice((0, 100, 300, 700))
            back = rng.choice((0, 0, 0, 500, 1500, 9000))
            value = {"bp": rng.randint(90, 160)} if stream == "V" else {"x": rng.randint(0, 9)}
            policy = rng.choice(("doctor", "nurse", "doctor | nurse", "doctor & nurse"))
            rows.append({"at": clock - back, "sid": rng.randint(1, 3), "policy": policy, **value})
        batches.append({"stream": stream, "rows": rows})
        if looks.random() < 0.4:
            batches[-1]["settled"] = clock + looks.choice((0, 800, 1500, 4000))
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
        events += [ClockEvent(batch["stream"], batch["settled"])] if "settled" in batch else []
    events += [x for number in range(len(batches), len(batches) + 1) for x in changes(rights, number)]
    lateness, delay = (dict.fromkeys(worker.COLUMNS, x) for x in (worker.LATENESS, worker.DELAY))
    found: dict[tuple[str, str], list[Line]] = {}
    for name, query in queries.items():
        for who in worker.PEOPLE:
            if name in worker.STAGES:
                links = CascadedQuery(queries["sums"].query, "sums_out"), CascadedQuery(query.query, name)
                setting = CascadeSetting(rules, lateness, delay)
                results = cascade(links, events, {who: worker.PEOPLE[who]}, setting)[name][who]
            else:
                means = cumulative if name in worker.CUMULATIVE else exact
                results = means(query.query, events, worker.PEOPLE, lateness=lateness, delay=delay)[who]
            found[who, name] = [line_of(x) for x in results]
    return found


def changes(rights: list[worker.Rights], number: int) -> list[Change]:
    return [Change(x.who, x.clearance) for x in rights if x.after == number]


def tuple_of(stream: str, row: dict[str, Any], rules: Rules) -> Tuple:
    label = rules.combine(Label(sources=frozenset({stream})), parse_label(row["policy"]))
    values: dict[str, Value] = {**row, "at": dt.datetime.fromtimestamp(row["at"] / 1000, dt.UTC)}
    return Tuple(stream, row["at"], values, label)


def line_of(result: OracleResult) -> Line:
    time = dt.datetime.fromtimestamp(result.time / 1000, dt.UTC).isoformat()
    return time, str(result.label), result.values


def written(folder: Path, names: Iterable[str] = tuple(worker.TEXTS)) -> dict[tuple[str, str], list[Line]]:
    return {(who, name): lines_in(folder / "out" / who / f"{name}.jsonl") for who in worker.PEOPLE for name in names}


def lines_in(file: Path) -> list[Line]:
    texts = file.read_text().splitlines() if file.exists() else []
    return [(x["time"], x["label"], tuple(x["values"].values())) for x in map(json.loads, texts)]


# Killing


@dataclass
class Victim:
    """The batches in a folder, and those that are killed over them, begotten by one process."""

    process: subprocess.Popen[str]
    folder: Path
    batches: list[dict[str, Any]]
    rights: list[worker.Rights] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        (self.folder / "in").write_text(json.dumps(self.batches))
        self.change(self.rights)

    def change(self, rights: list[worker.Rights]) -> None:
        (self.folder / "rights").write_text(json.dumps([vars(x) for x in rights]))

    def life(self, **order: object) -> bool:
        """Whether it was killed, and did not come to the end."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps({"folder": str(self.folder), **order}), file=self.process.stdin, flush=True)
        ended = json.loads(self.process.stdout.readline())
        if ended["code"] == -signal.SIGKILL:
            self.killed[ended["doing"]] += 1
            return True
        assert ended["code"] == 0, ended
        return False

    def judge(self) -> None:
        """After all that it goes on to the end, and, if asked once more, has nothing to add."""
        whole = expected(self.batches, self.rights)
        assert sum(map(len, whole.values())) > 100
        for _ in range(2):
            assert not self.life()
            found = written(self.folder)
            assert found == whole, [key for key in whole if found[key] != whole[key]]
        print(f"\nkilled {self.killed.total()} times: {dict(self.killed)}")


@pytest.fixture(scope="module")
def begetter() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def test_a_process_killed_at_every_step_loses_and_repeats_nothing(
    begetter: subprocess.Popen[str], tmp_path: Path
) -> None:
    rng = Random(2)
    victim = Victim(begetter, tmp_path, random_batches(rng, 24), random_rights(rng, 24))
    for at in (1, 2):
        for step in worker.STEPS:
            assert victim.life(step=step, at=1 if step == "recovering" else at)
    victim.judge()
    assert set(victim.killed) == set(worker.STEPS)


def test_a_process_killed_at_random_moments_loses_and_repeats_nothing(
    begetter: subprocess.Popen[str], tmp_path: Path
) -> None:
    """On a fast machine one comes to its end between two kills; then the next one begins."""
    rng, killed = Random(3), Counter[str]()
    while killed.total() < 30:
        folder = tmp_path / str(killed.total())
        folder.mkdir()
        victim = Victim(begetter, folder, random_batches(rng, 24), random_rights(rng, 24))
        while victim.killed.total() < 30 and victim.life(
            after=rng.uniform(0.0, 0.06), **({} if victim.killed.total() % 5 else {"early": True})
        ):
            pass
        victim.judge()
        killed += victim.killed


# Rights that change while nobody works


@pytest.mark.parametrize(
    ("step", "out"),
    [("state named", False), ("half a line written", False), ("note written, not named", False), ("note named", True)],
)
def test_a_lost_right_withholds_unpublished_results_and_leaves_published_ones(
    begetter: subprocess.Popen[str], tmp_path: Path, step: str, out: bool
) -> None:
    """Results that a crash caught on their way out are decided about anew; those that were out are nobody's to take."""
    batches = random_batches(Random(5), 10)
    before, after = (expected(batches, [worker.Rights(batch, "bob", None)]) for batch in (6, 7))
    late = {key for key in after if key[0] == "bob" and len(before[key]) < len(after[key])}
    assert late, "bob should receive something with this batch"
    victim = Victim(begetter, tmp_path, batches)
    assert victim.life(step="committed", at=6)
    assert victim.life(step=step)
    victim.change([worker.Rights(6, "bob", None)])
    assert not victim.life()
    right = after if out else after | {key: lines for key, lines in before.items() if key[0] == "bob"}
    assert written(tmp_path) == right


# Without a process of its own: what is found when work begins again


@dataclass
class Work:
    """Batches in a folder, and pipelines over them in this process, one after the other."""

    folder: Path
    batches: list[dict[str, Any]]

    def go_on(self, until: int | None = None, names: Iterable[str] = tuple(worker.TEXTS)) -> None:
        worker.feed(self.folder, self.snapshots(names), until=until)

    def snapshots(self, names: Iterable[str] = tuple(worker.TEXTS)) -> worker.ScriptedSnapshots:
        return worker.ScriptedSnapshots(worker.running(names), [])

    def expected(self) -> dict[tuple[str, str], list[Line]]:
        return expected(self.batches, [])

    @property
    def newest(self) -> list[Path]:
        """The files of the newest version."""
        folder = self.folder / "home" / "state"
        last = max(folder.glob("manifest-*"))
        (partition, *_) = json.loads(last.read_text())["partitions"]
        results = f"results-{last.stem.removeprefix('manifest-')}.arrows"
        return [last, *(folder / name for name in (*partition["record"]["segments"][-1:], results))]


@pytest.fixture
def work(tmp_path: Path, no_waiting_for_disks: None) -> Work:  # noqa: ARG001
    found = Work(tmp_path, random_batches(Random(6), 14))
    (tmp_path / "in").write_text(json.dumps(found.batches))
    return found


def test_results_that_cannot_be_written_are_written_later(work: Work) -> None:
    work.go_on(until=8)
    place = work.folder / "out" / "bob"
    place.rename(work.folder / "elsewhere")
    place.write_text("no folder")
    with pytest.raises(StoreError, match=r"cannot write results to .*nothing is lost"):
        work.go_on()
    with pytest.raises(StoreError, match="cannot write results to"):  # as long as it is so
        work.go_on()
    place.unlink()
    (work.folder / "elsewhere").rename(place)
    work.go_on()
    assert written(work.folder) == work.expected()


@pytest.mark.parametrize("full", ["out", "home"])
def test_a_full_disk_is_reported_and_loses_nothing(work: Work, full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is full in the middle of a file; the streams that did not notice do not go on either."""
    left = [5]

    def filling(descriptor: int) -> None:
        file = os.readlink(f"/proc/self/fd/{descriptor}")
        if file.startswith(str(work.folder / full)) and Path(file).is_file():
            left[0] -= 1
            if left[0] <= 0:
                os.truncate(file, os.fstat(descriptor).st_size - 9)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    work.go_on(until=8)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", filling)
        snapshots = work.snapshots()
        snapshots.taken = 8
        pipeline = worker.made_pipeline(work.folder, snapshots)
        numbers = Counter(batch["stream"] for batch in work.batches[:8])

        def go_on() -> None:
            for batch in work.batches[8:]:
                stream = batch["stream"]
                pipeline.take(
                    stream, numbers[stream], worker.table_of(stream, batch["rows"]), settled=batch.get("settled")
                )
                numbers[stream] += 1

        with pytest.raises(StoreError, match=r"No space left on device.*nothing is lost"):
            go_on()
        left[0] = 1000
        for stream in worker.COLUMNS:
            with pytest.raises(StoreError, match="No space left on device"):
                pipeline.take(stream, numbers[stream] + 1, worker.table_of(stream, []))
        with pytest.raises(StoreError, match="No space left on device"):
            pipeline.end()
        pipeline.close()
    work.go_on()
    assert written(work.folder) == work.expected()


def test_a_damaged_state_is_named_with_what_to_do(work: Work) -> None:
    work.go_on(until=8)
    labels = sorted(work.newest[0].parent.glob("labels-*"))
    assert labels
    for file in (*work.newest, *labels):
        content = file.read_bytes()
        assert content
        for damaged in (None, b"", content[: len(content) // 2], content[:-1], b"{}", b"nonsense"):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            with pytest.raises(StoreError, match=r"cannot read the state in .*: it is damaged .*--fresh"):
                work.go_on()
            file.write_bytes(content)
    work.go_on()
    assert written(work.folder) == work.expected()


def test_a_second_process_in_the_same_home_is_refused_and_disturbs_nothing(work: Work) -> None:
    work.go_on(until=4)
    first = worker.made_pipeline(work.folder, work.snapshots())
    with pytest.raises(Conflict, match="another process works in"):
        worker.made_pipeline(work.folder, work.snapshots())
    with pytest.raises(Conflict, match="another process works in"):
        forget(work.folder / "home")
    first.close()
    work.go_on()
    assert written(work.folder) == work.expected()


def test_after_forget_everything_is_read_anew(work: Work) -> None:
    forget(work.folder / "home")
    work.go_on(until=9)
    forget(work.folder / "home")
    (work.folder / "commits").unlink()
    work.go_on()
    assert written(work.folder) == work.expected()


def test_results_go_on_in_another_folder(work: Work) -> None:
    work.go_on(until=8)
    before = written(work.folder)
    (work.folder / "out").rename(work.folder / "before")
    work.go_on()
    after, right = written(work.folder), work.expected()
    assert all(before[key] + after[key] == right[key] for key in right)
    assert any(before.values()) and any(after.values())


def test_a_run_without_files_leaves_the_files_unchanged(work: Work) -> None:
    """Results that were printed are not in the files; those from before stay there."""
    work.go_on(until=6)
    before = written(work.folder)
    executor: Make = lambda _, program, schema: LocalExecutor(program, schema, evaluate)  # noqa: E731
    pipeline = Pipeline(work.folder / "home", work.snapshots(), executor, [Mailbox()], ManualClock(worker.LATER))
    batch = work.batches[6]
    number = sum(x["stream"] == batch["stream"] for x in work.batches[:6])
    pipeline.take(batch["stream"], number, worker.table_of(batch["stream"], batch["rows"]))
    pipeline.close()
    work.go_on()
    after = written(work.folder)
    assert all(lines == after[key][: len(lines)] for key, lines in before.items())
    assert any(lines != after[key] for key, lines in before.items())


# What is asked for changes between two runs


def test_a_new_query_begins_with_nothing_and_disturbs_no_other(work: Work) -> None:
    old = ("passing", "sums", "sliding", "over")
    work.go_on(until=8, names=old)
    work.go_on()
    right = work.expected() | {key: lines for key, lines in expected(work.batches[8:], []).items() if key[1] not in old}
    assert written(work.folder) == right


def test_a_query_that_is_dropped_leaves_its_results_and_disturbs_no_other(work: Work) -> None:
    work.go_on(until=8)
    before = written(work.folder)
    kept = ("passing", "sums", "joined")
    work.go_on(names=kept)
    found = work.expected() | {key: lines for key, lines in before.items() if key[1] not in kept}
    assert written(work.folder) == found


def test_a_stream_that_is_dropped_leaves_results_and_disturbs_no_other(work: Work) -> None:
    """Even if Spark still had a batch of it on the way."""
    work.go_on(until=8)
    before = written(work.folder)
    work.go_on(names=[name for name in worker.TEXTS if name != "joined"])
    assert any(batch["stream"] == "W" for batch in work.batches[8:])
    assert written(work.folder) == work.expected() | {key: x for key, x in before.items() if key[1] == "joined"}


# Spark's checkpoint and the state


def test_a_checkpoint_and_a_state_of_one_history_agree(tmp_path: Path) -> None:
    check_history("s", tmp_path / "nothing", -1)
    for begun, ended, done in ((0, None, -1), (0, None, 0), (0, 0, 0), (7, 6, 6), (7, 6, 7), (7, 7, 7)):
        check_history("s", checkpoint(tmp_path, begun, ended), done)


@pytest.mark.parametrize(("begun", "ended", "done"), [(None, None, 0), (0, None, 1), (3, 2, 9)])
def test_a_checkpoint_that_is_gone_or_older_is_no_reason_to_skip_batches(
    tmp_path: Path, begun: int | None, ended: int | None, done: int
) -> None:
    with pytest.raises(StoreError, match=r"is missing or older than the state.*--fresh"):
        check_history("s", checkpoint(tmp_path, begun, ended), done)


@pytest.mark.parametrize(("begun", "ended", "done"), [(0, 0, -1), (7, 6, 5), (7, 7, 6)])
def test_a_state_that_is_gone_or_older_is_no_reason_to_lose_batches(
    tmp_path: Path, begun: int, ended: int, done: int
) -> None:
    with pytest.raises(StoreError, match=r"the state is missing or older than.*--fresh"):
        check_history("s", checkpoint(tmp_path, begun, ended), done)


def test_a_first_batch_that_crashed_early_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    """Spark refuses a checkpoint without batches whose folders are not empty."""
    unbegun, begun = checkpoint(tmp_path, None, None), checkpoint(tmp_path, 0, None)
    for place in (unbegun, begun):
        (place / "offsets" / ".0.70a06031-143e-4ce8-a833-065595a0efe4.tmp").touch()
        forget_unbegun(place)
    assert not unbegun.exists()
    assert (begun / "offsets" / "0").exists()
    forget_unbegun(tmp_path / "nothing")


def checkpoint(folder: Path, begun: int | None, ended: int | None) -> Path:
    """As Spark leaves it: the last hundred batches, and sums beside them."""
    place = folder / f"{begun} {ended}"
    for name, last in (("offsets", begun), ("commits", ended)):
        (place / name).mkdir(parents=True, exist_ok=True)
        for number in range(0 if last is None else last + 1):
            (place / name / str(number)).touch()
            (place / name / f".{number}.crc").touch()
    return place
