"""Places for state: a shared folder and an object store do what a local folder does, and no secret is shown."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from worlds.harness import Bench, stream

from headgate.errors import Fenced, HeadgateError, StoreError
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.fencing import Fence
from headgate.recovery.checkpoints import Checkpoints
from headgate.recovery.home import forget
from headgate.recovery.pipeline import Pipeline
from headgate.recovery.state import Saved, StateFolder
from headgate.storage import read_table, write_table
from headgate.stores import StateLocation
from headgate.testing.object_store import fresh_place, running_store


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with running_store() as found:
        yield found


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, options: dict[str, str]) -> StateLocation:
    return StateLocation(f"file://{tmp_path}/shared") if request.param == "file" else fresh_place(options)


def test_files_are_there_whole_and_by_their_names(place: StateLocation) -> None:
    storage = pickle.loads(pickle.dumps(place.below("state").storage()))  # noqa: S301
    assert storage.names() == []
    storage.write("a", b"one")
    storage.write("a", b"two", durable=False)
    assert storage.commit("m", b"first") and not storage.commit("m", b"second")
    assert (storage.read("a").to_pybytes(), storage.read("m").to_pybytes()) == (b"two", b"first")
    table = pa.table({"x": [1, None], "y": ["a", "é"]})
    write_table(storage, "t", table)
    assert read_table(storage, "t").equals(table)
    assert place.below("other").storage().names() == []
    storage.delete(["a", "gone"])
    assert storage.names() == ["m", "t"]
    with pytest.raises(FileNotFoundError):
        storage.read("a")


def test_epochs_and_bases_hold_there_too(place: StateLocation) -> None:
    records, state = place.below("epochs").storage(), place.below("state").storage()
    one = Fence(records, str(place))
    states = StateFolder(state, one.epoch)
    states.save(Saved(states.next, {}, {"by": "one"}))
    two = Fence(records, str(place))
    StateFolder(state, two.epoch, two.check)
    states.save(Saved(states.next, {}, {"by": "the one that was replaced"}))
    with pytest.raises(Fenced):
        one.check()
    found = StateFolder(state, Fence(records, str(place)).epoch).newest()
    assert found is not None and found.rest == {"by": "one"}


class World(Bench):
    """Homes of two machines, and one state."""

    def __init__(self, folder: Path, place: StateLocation) -> None:
        super().__init__(folder, stream("s", "x INT"))
        self.query("q", "SELECT x, COUNT(*) AS n FROM s [ROWS 2] GROUP BY x")
        self.subscribed(ann=("q", "r1"))
        self.place = place

    def on(self, machine: str) -> Pipeline:
        make: Callable[..., Any] = lambda _, program, schema: LocalExecutor(program, schema, evaluate)  # noqa: E731
        self.pipeline = Pipeline(
            self.home / machine, self, make, [self.mailbox, self.files()], self.clock, place=self.place
        )
        return self.pipeline


def test_another_machine_goes_on_with_state_and_checkpoints(tmp_path: Path, place: StateLocation) -> None:
    world = World(tmp_path / "world", place)
    first = world.on("a")
    log = world.home / "a" / "checkpoints" / "s" / "offsets"
    log.mkdir(parents=True)
    (log / "0").write_text("v1\nzero")
    world.take("s", ("r1", 1), ("r1", 2))
    second = world.on("b")
    assert (world.home / "b/checkpoints/s/offsets/0").read_text() == "v1\nzero"
    with pytest.raises(Fenced, match="has taken over"):
        first.take("s", 1, world.table("s", [("r1", 3)]))
    world.take("s", ("r1", 3))
    world.end()
    for pipeline in (first, second):
        pipeline.close()
    assert [row[-2:] for row in world.fetched("ann", "q")][-2:] == [(2, 1), (3, 1)]
    forget(world.home / "b", place)
    assert [name for name in place.below("state").storage().names() if not name.startswith("base-")] == []
    third = world.on("c")
    assert third.done("s") == -1
    third.close()


def test_a_checkpoint_is_copied_as_a_crash_could_have_left_it(tmp_path: Path) -> None:
    states, folder = StateFolder(tmp_path / "state"), tmp_path / "checkpoints"
    kept = Checkpoints(folder, states)

    def spark_wrote(*paths: str) -> None:
        for path in paths:
            (folder / "s" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "s" / path).write_text(f"content of {path}")

    spark_wrote("metadata", "sources/0/0", "offsets/0", ".offsets.crc")
    first = kept.save(1)
    assert set(first) == {"s/metadata", "s/sources/0/0", "s/offsets/0"}
    spark_wrote("commits/0", *(f"{log}/{n}" for n in range(1, 9) for log in ("sources/0", "offsets", "commits")))
    spark_wrote("sources/0/9.compact", "sources/0/10", "offsets/10")
    second = kept.save(2)
    assert set(second) == {
        "s/metadata", "s/sources/0/9.compact", "s/sources/0/10",
        *(f"s/offsets/{n}" for n in (7, 8, 10)), *(f"s/commits/{n}" for n in (6, 7, 8)),
    }  # fmt: skip
    assert second["s/metadata"] == first["s/metadata"]
    states.save(Saved(2, {}, {"checkpoints": second, "labels": {}}))
    other = tmp_path / "other"
    (other / "s" / "offsets").mkdir(parents=True)
    (other / "s" / "offsets" / "99").write_text("of another history")
    Checkpoints(other, StateFolder(tmp_path / "state")).restore(second)
    found = {str(x.relative_to(other)): x.read_text() for x in other.rglob("*") if x.is_file()}
    assert found == {name: f"content of {name[2:]}" for name in second}


def test_the_group_of_a_shared_folder_may_read_and_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    storage = StateLocation(f"file://{tmp_path}/state").storage()
    storage.write("a", b"x")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o2770
    assert stat.S_IMODE((tmp_path / "state/a").stat().st_mode) == 0o660


@pytest.mark.parametrize(
    ("uri", "given", "why"),
    [
        ("/folder", {}, "cannot keep state at"),
        ("file://host/folder", {}, "cannot keep state at"),
        ("s3://bucket", {}, "cannot keep state at"),
        ("ftp://host/folder", {}, "cannot keep state at"),
        ("s3://key:Tr0ub4dor@bucket/folder", {}, "with a password in it"),
        ("s3://bucket/folder?secret=Tr0ub4dor", {}, "cannot keep state at"),
        ("s3://bucket/folder", {"password": "Tr0ub4dor"}, "there is no option `password`"),
        ("file:///folder", {"secret_key": "Tr0ub4dor"}, "there is no option `secret_key`"),
    ],
)
def test_a_place_that_cannot_be_is_refused_and_no_secret_repeated(uri: str, given: dict[str, str], why: str) -> None:
    with pytest.raises(HeadgateError, match=why) as found:
        StateLocation(uri, given)
    assert "Tr0ub4dor" not in str(found.value)


def test_no_secret_is_in_what_a_place_shows(options: dict[str, str], tmp_path: Path) -> None:
    place = fresh_place(options)
    assert options["secret_key"] not in f"{place} {place!r} {place.storage()} {place.storage()!r}"
    closed = StateLocation(place.uri, options | {"endpoint": "http://127.0.0.1:1"})
    with pytest.raises(StoreError, match="cannot reach the state at") as found:
        World(tmp_path, closed).on("a")
    assert not [x for x in options.values() if x in str(found.value)]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadgateError, match="cannot keep state in"):
        StateLocation(f"file://{tmp_path}/file/state").storage()
    assert os.listdir(tmp_path) == ["file"]
