"""State on disk: the newest whole version counts, whatever was interrupted; results written twice are there once."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate import storage
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import Address, FileSink, Sink
from headgate.errors import StoreError
from headgate.labels import parse_label
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch, delivered_results
from headgate.recovery.state import FORMAT, KEPT, Saved, StateFolder
from headgate.storage import LocalStorage


def record(*segments: str, listed: str = "") -> dict[str, Any]:
    group = {"views": [0], "last": {}, "starts": {"w": None}, "folded": {}}
    groups = [{**group, "listed": {"w": [listed, 5]} if listed else {}}]
    return {"segments": list(segments), "groups": groups, "blocks": [["q", 0]], "columns": ["time"]}


TABLE = pa.table({"time": pa.array([1, 2, 3], pa.int64()), "name": pa.array(["a", None, "é"])})


def saved(states: StateFolder, version: int, *kept: str) -> Saved:
    """A version with a new segment, which also needs these."""
    partitions = {("s.a", 0): record(*kept, states.write(TABLE)), ("", 1): record(listed=states.write(TABLE))}
    return Saved(version, partitions, {"version": version, "text": "é"}, [])


def test_saved_state_is_restored(tmp_path: Path) -> None:
    states = StateFolder(tmp_path / "state")
    assert states.newest() is None
    version = saved(states, 1)
    states.save(version)
    again = StateFolder(tmp_path / "state")
    found = again.newest()
    assert found == version
    for stored in again.stored(found.partitions).values():
        assert [stored.read(name).equals(TABLE) for name in stored.files] == [True]


def test_state_without_partitions_can_be_saved(tmp_path: Path) -> None:
    StateFolder(tmp_path).save(Saved(0, {}, {}))
    assert StateFolder(tmp_path).newest() == Saved(0, {}, {}, [])


def test_only_files_that_a_kept_version_names_are_kept(tmp_path: Path) -> None:
    states, old = StateFolder(tmp_path), list[str]()
    for version in range(1, 12):
        now = saved(states, version, *old[:1])
        states.save(now)
        states.note_out(version, {})
        old = [*old[:1], *now.partitions["s.a", 0]["segments"][-1:]]
    assert states.versions() == list(range(12 - KEPT, 12))
    needed = {name for x in (10, 11) for name in (f"manifest-{x:015}.json", f"out-{x:015}.json")}
    needed |= {old[0], *(f"segment-{x:015}-{number}.arrow" for x in (10, 11) for number in (0, 1))}
    assert {x.name for x in tmp_path.iterdir()} == needed


def test_files_of_an_interrupted_version_are_removed(tmp_path: Path) -> None:
    states = StateFolder(tmp_path)
    states.save(saved(states, 1))
    before = {x.name for x in tmp_path.iterdir()}
    saved(states, 2)  # written, not committed
    (tmp_path / "segment-000000000000002-9.arrow.0badcafe~").write_bytes(b"half")
    found = StateFolder(tmp_path).newest()
    assert found is not None and found.version == 1
    assert {x.name for x in tmp_path.iterdir()} == before


def test_an_interruption_at_any_step_leaves_a_readable_version_and_nothing_else(tmp_path: Path) -> None:
    """Each call of the operating system that writes or removes something is the last one of its process, in turn."""
    for step in range(200):
        folder = tmp_path / str(step)
        states = StateFolder(folder)
        first = saved(states, 1)
        states.save(first)
        states.save(second := saved(states, 2, *first.partitions["s.a", 0]["segments"]))
        done = False
        with pytest.MonkeyPatch.context() as patch:
            dying(patch, step)
            with suppress(Killed):
                third = saved(states, 3)
                states.save(replace(third, results=[RESULT_BATCH]))
                done = True
        again = StateFolder(folder)
        found = again.newest()
        assert found is not None and found.version in (2, 3)
        assert found == second if found.version == 2 else found.partitions == third.partitions
        for stored in again.stored(found.partitions).values():
            assert all(stored.read(name).equals(TABLE) for name in stored.files)
        listed = {x.name for x in folder.iterdir()}
        assert listed == {name for names in again._files.values() for name in names} & listed
        if done:
            assert step > 10
            return
    raise AssertionError("it does not end")


class Killed(BaseException):
    """The process ends here."""


def dying(patch: pytest.MonkeyPatch, step: int) -> None:
    """The process ends with the system call of this number."""
    left = [step]

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def do(*given: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return act(*given, **more)

        return do

    for owner, name in ((os, "open"), (os, "fsync"), (os, "link"), (Path, "rename"), (Path, "unlink")):
        patch.setattr(owner, name, counted(getattr(owner, name)))


def test_a_version_that_somebody_else_wrote_is_not_replaced(tmp_path: Path) -> None:
    states, other = StateFolder(tmp_path), StateFolder(tmp_path)
    other.save(Saved(1, {}, {"mine": False}))
    with pytest.raises(StoreError, match=r"cannot write version 1 of the state .* another process wrote it"):
        states.save(Saved(1, {}, {"mine": True}))
    found = StateFolder(tmp_path).newest()
    assert found is not None and found.rest == {"mine": False}


@pytest.mark.parametrize("name", ["manifest-000000000000003.json", "segment-000000000000001-0.arrow"])
@pytest.mark.parametrize("content", [b"not what it was", b"{}", None])
def test_damaged_state_is_reported_and_nothing_is_guessed_or_removed(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    states = StateFolder(tmp_path)
    states.save(saved(states, 3))
    states.note_out(3, {})
    before = {x.name for x in tmp_path.iterdir()}
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    for _ in range(2):
        with pytest.raises(StoreError, match=f"cannot read the state in `{tmp_path / name}`: it is damaged"):
            StateFolder(tmp_path).newest()
        with pytest.raises(StoreError, match="damaged"):
            StateFolder(tmp_path).newest()
    assert {x.name for x in tmp_path.iterdir()} >= before - {name}


RESULT_BATCH = ResultBatch(
    ("ann/1",),
    "joe.q",
    np.array([0]),
    np.array([1_767_261_600_000]),
    (
        pa.array([1]),
        pa.array([None], pa.int32()),
        pa.array(["é"]),
        pa.array([dt.date(2026, 1, 31)]),
        pa.array([dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
        pa.array([0.5]),
        pa.array([True]),
    ),
    np.array([0]),
    (parse_label('doctor AT S FROM "joe.in1"'),),
)


def test_results_are_the_same_after_saving_and_restoring(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.save(Saved(1, {}, {}, [RESULT_BATCH, RESULT_BATCH]))
    found = folder.newest()
    assert found is not None
    assert delivered_results(found.results) == delivered_results([RESULT_BATCH, RESULT_BATCH]) != []


class Here:
    """Every query has these columns, every subscriber a folder."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def of(self, subscriber: str, query: str) -> Address:
        return Address((subscriber, query), self.columns)

    def of_rejected(self, stream: str) -> tuple[str, ...]:
        return "owner", f"{stream}.rejected"


def let_out(
    sink: Sink, results: list[ResultBatch], rejected: Sequence[RejectedRows] = (), *, as_staged: bool = True
) -> None:
    sink.prepare(results, rejected, as_staged=as_staged)
    sink.publish(lambda: None)
    sink.complete()


def test_results_that_a_crash_interrupted_are_there_once(tmp_path: Path) -> None:
    here = Here("a", "b", "c", "d", "e", "f", "g")
    sink = FileSink(tmp_path, here)
    let_out(sink, [RESULT_BATCH])
    before = sink.state()
    let_out(sink, [RESULT_BATCH], [RejectedRows("s", "why", [{"a": 1}])])
    again = FileSink(tmp_path, here)
    again.restore(before, out=False)
    let_out(again, [RESULT_BATCH], [RejectedRows("s", "why", [{"a": 1}])])
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["joe.q.jsonl", "s.rejected.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "ann%2F1/joe.q.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert lines[0]["time"] == "2026-01-01T10:00:00+00:00"
    assert lines[0]["label"] == 'doctor AT S FROM "joe.in1"'
    assert lines[0]["values"]["a"] == 1 and lines[0]["values"]["d"] == "2026-01-31"
    assert json.loads((tmp_path / "owner/s.rejected.jsonl").read_text()) == {"reason": "why", "values": {"a": 1}}


def test_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "out", Here("a"))
    for name in ("../../../etc", "..", ".", "/etc"):
        let_out(sink, [replace(RESULT_BATCH, subscribers=(name,), query="../../q", values=RESULT_BATCH.values[:1])])
    assert list(tmp_path.rglob("*.jsonl")) == list((tmp_path / "out").rglob("*.jsonl"))
    assert len(list(tmp_path.rglob("*.jsonl"))) == 4


def test_parquet_files_wait_outside_the_readers_folder_and_are_published_once(tmp_path: Path) -> None:
    here, result_batch = Here("a", "b", "c", "d", "e", "f", "g"), replace(RESULT_BATCH, subscribers=("ann", "bob"))
    sink = ParquetSink(tmp_path, here)
    before = sink.state([result_batch])
    sink.stage(1, [result_batch])
    assert {path.name for path in tmp_path.iterdir()} == {".staged", ".headgate"}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / ".staged").iterdir()} == {0o600}
    let_out(sink, [result_batch])
    again = ParquetSink(tmp_path, here)  # a crash: whether it is out was not noted, and bob has lost the right since
    again.restore(before, out=False)
    assert not list(tmp_path.rglob("000000001.parquet"))
    staged = again.staged(1)
    assert delivered_results(staged) == delivered_results([result_batch])
    let_out(again, [x for x in staged if x.subscribers == ("ann",)], as_staged=False)
    assert [path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("000000001.parquet")] == ["ann"]
    again.stage(2, [result_batch])
    let_out(again, [result_batch])
    files = sorted(tmp_path.glob("*/*/*.parquet"))  # a reader's last file grows until it is full
    assert {str(path.relative_to(tmp_path)): pq.read_metadata(path).num_rows for path in files} == {
        "ann/joe.q/000000001.parquet": 2 * len(result_batch.times),
        "bob/joe.q/000000001.parquet": len(result_batch.times),
    }


@pytest.mark.parametrize(("format_", "said"), [(None, "an older"), (1, "an older"), (99, "a newer")])
def test_a_state_of_another_version_is_named_as_such_and_nothing_of_it_is_removed(
    tmp_path: Path, format_: int | None, said: str
) -> None:
    states = StateFolder(tmp_path)
    states.save(saved(states, 1))
    (file,) = tmp_path.glob("manifest-*")
    whole = json.loads(file.read_text())
    assert whole.pop("format") == FORMAT
    file.write_text(json.dumps(whole | ({} if format_ is None else {"format": format_, "partitions": "other"})))
    before = {x.name for x in tmp_path.iterdir()}
    with pytest.raises(StoreError, match=rf"{said} version of Headgate wrote it .format .*--fresh"):
        StateFolder(tmp_path).newest()
    assert {x.name for x in tmp_path.iterdir()} == before


def test_a_state_of_folders_is_named_as_an_older_one(tmp_path: Path) -> None:
    (tmp_path / "000000000000007").mkdir()
    (tmp_path / "000000000000007" / "state.json").write_text("{}")
    with pytest.raises(StoreError, match=rf"an older version of Headgate wrote it .format 3, .* reads {FORMAT}"):
        StateFolder(tmp_path).newest()


def test_the_disk_has_the_mark_of_a_new_beginning_before_anything_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If power failed after the files were deleted and before the mark was there, nothing would say that they were
    meant to be."""
    states = StateFolder(tmp_path)
    states.save(saved(states, 1))
    flushed, deleted = list[str](), list[set[str]]()
    real, delete = storage._fsync, LocalStorage.delete

    def fsync(path: str) -> None:
        flushed.append(path)
        real(path)

    def deleting(given: LocalStorage, names: Any) -> None:
        deleted.append(set(names := list(names)))
        if any(name.startswith("manifest") for name in names):
            assert not given._unflushed
            assert flushed[-1] == str(tmp_path)
            assert (tmp_path / "base-000000000000000.json").exists()
        delete(given, names)

    monkeypatch.setattr(storage, "_fsync", fsync)
    monkeypatch.setattr(LocalStorage, "delete", deleting)
    states.clear()
    assert any(name.startswith("manifest") for names in deleted for name in names)
    assert StateFolder(tmp_path).newest() is None
