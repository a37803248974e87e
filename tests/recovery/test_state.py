"""State on disk: the newest whole version counts, whatever was interrupted; results written twice are there once."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import Address, FileSink, Sink
from headgate.errors import StoreError
from headgate.labels import parse_label
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch, delivered_results
from headgate.operators.partition import PartitionState, ViewGroup
from headgate.recovery.state import FORMAT, KEPT, Saved, StateFolder


def saved(version: int) -> Saved:
    table = pa.table({"time": pa.array([1, 2, 3], pa.int64()), "name": pa.array(["a", None, "é"])})
    classes = (
        ViewGroup((0, 2), {"w1": np.array([0, 2]), "w2": np.array([1])}, {"rows": 7}),
        ViewGroup((1,), {}, {}),
    )
    other = pa.table({"time": pa.array([4], pa.int64())})
    partitions = {
        ("s.a", 0): PartitionState(table, classes),
        ("", 0): PartitionState(other, (ViewGroup((3,), {"w3": np.array([0])}, {}),)),
        ("s.a", 1): PartitionState(table.slice(1), (ViewGroup((0, 1, 2), {"w1": np.array([1])}, {}),)),
    }
    return Saved(version, partitions, {"version": version, "text": "é"})


def same(a: Saved, b: Saved) -> bool:
    def plain(x: Saved) -> object:
        return {
            name: [(c.views, {k: v.tolist() for k, v in c.held.items()}, dict(c.last)) for c in partition.classes]
            for name, partition in x.partitions.items()
        }

    tables = all(partition.table.equals(b.partitions[name].table) for name, partition in a.partitions.items())
    return (a.version, a.rest, plain(a)) == (b.version, b.rest, plain(b)) and tables


def test_saved_state_is_restored(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    assert folder.newest() is None
    folder.save(saved(1))
    found = StateFolder(tmp_path / "state").newest()
    assert found is not None and same(found, saved(1))


def test_an_empty_partition_can_be_saved(tmp_path: Path) -> None:
    StateFolder(tmp_path).save(Saved(0, {("", 0): PartitionState(saved(1).partitions["", 0].table.slice(0, 0))}, {}))
    found = StateFolder(tmp_path).newest()
    assert found is not None
    (partition,) = found.partitions.values()
    assert partition.table.num_rows == 0 and partition.classes == ()


def test_state_without_partitions_can_be_saved(tmp_path: Path) -> None:
    StateFolder(tmp_path).save(Saved(0, {}, {}))
    found = StateFolder(tmp_path).newest()
    assert found is not None and found.partitions == {}


def test_only_the_newest_versions_are_kept(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    for version in range(1, 12):
        folder.save(saved(version))
    assert folder.versions() == list(range(12 - KEPT, 12))


def test_an_interrupted_version_is_removed(tmp_path: Path) -> None:
    StateFolder(tmp_path).save(saved(1))
    half = tmp_path / "000000000000002.new"
    half.mkdir()
    (half / "tuples.arrow").write_bytes(b"half")
    found = StateFolder(tmp_path).newest()
    assert found is not None and found.version == 1
    assert not half.exists()


def test_damaged_state_is_reported_and_nothing_is_guessed(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.save(saved(3))
    (tmp_path / "000000000000003" / "tuples0.arrow").write_bytes(b"not arrow")
    with pytest.raises(StoreError, match="damaged"):
        folder.newest()


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
    folder.save(Saved(1, saved(1).partitions, {}, [RESULT_BATCH, RESULT_BATCH]))
    found = folder.newest()
    assert found is not None
    assert delivered_results(found.results) == delivered_results([RESULT_BATCH, RESULT_BATCH]) != []


class Here:
    """Every query has these columns, every subscriber a folder."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def of(self, subscriber: str, query: str) -> Address:
        return Address((subscriber, query), self.columns)

    def of_refused(self, stream: str) -> tuple[str, ...]:
        return "owner", f"{stream}.rejected"


def let_out(
    sink: Sink, results: list[ResultBatch], refused: Sequence[RejectedRows] = (), *, as_staged: bool = True
) -> None:
    sink.prepare(results, refused, as_staged=as_staged)
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
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*/*.parquet")) == [
        "ann/joe.q/000000001.parquet",
        "ann/joe.q/000000002.parquet",
        "bob/joe.q/000000001.parquet",
    ]


@pytest.mark.parametrize(("format_", "said"), [(None, "an older"), (1, "an older"), (99, "a newer")])
def test_a_state_of_another_version_is_named_as_such_and_not_as_damage(
    tmp_path: Path, format_: int | None, said: str
) -> None:
    states = StateFolder(tmp_path)
    states.save(Saved(1, {}, {}))
    (file,) = tmp_path.glob("*/state.json")
    whole = json.loads(file.read_text())
    assert whole.pop("format") == FORMAT
    file.write_text(json.dumps(whole | ({} if format_ is None else {"format": format_})))
    with pytest.raises(StoreError, match=rf"{said} version of Headgate wrote it .format .*--fresh"):
        StateFolder(tmp_path).newest()
