"""A folder of results belongs to one state, and changes by others are noticed: a second engine, a file that was
truncated, extended or removed, results that were not published yet and are gone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from worlds.harness import Bench, stream

from headgate.egress import parquet_files
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import FileSink
from headgate.errors import Conflict, Fenced, HeadgateError, StoreError
from headgate.recovery.home import forget
from headgate.recovery.pipeline import Pipeline

KINDS: list[Callable[..., Any]] = [FileSink, ParquetSink]


class Killed(Exception):
    """The process ends here: after its version counted, before anything is out."""


class Engine(Bench):
    """An engine with a state of its own; several may be pointed at one folder."""

    def __init__(self, home: Path, who: str = "ann") -> None:
        super().__init__(home, stream("s", "x INT"))
        self.query("q", "SELECT x FROM s")
        self.subscribed(**{who: ("q", "r1")})

    def run(self, sink: Any, *values: int, killed: bool = False, end: bool = False) -> list[str]:
        """A process of its own: one batch, or none. What was said of it."""
        pipeline = self.begin(sink)
        try:
            if killed:
                pipeline._deliver = _killed  # type: ignore[method-assign, assignment]
            if values:
                self.take("s", *(("r1", x) for x in values))
            if end:
                pipeline.wait({"s": "gone"})
            return pipeline.warnings()
        except Killed:
            return []
        finally:
            pipeline.close()


def _killed(*_: object) -> None:
    raise Killed


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def found(out: Path, make: Callable[..., Any], who: str = "ann") -> list[int]:
    if make is FileSink:
        file = out / who / "q.jsonl"
        lines = map(json.loads, file.read_text().splitlines() if file.exists() else ())
        return [line["values"]["x"] for line in lines if "values" in line]
    files = sorted((out / who / "q").glob("*")) if (out / who).exists() else []
    return [x for file in files for x in pq.read_table(file).column("x").to_pylist()]


# Two engines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("who", ["ann", "bob"])
def test_a_folder_of_results_belongs_to_one_engine(
    tmp_path: Path, out: Path, first: Callable[..., Any], second: Callable[..., Any], who: str
) -> None:
    """One is killed after its version counted; another one writes there; then the first goes on. Thirty results of the
    first never came, and thirty of the second were removed."""
    one, other = Engine(tmp_path / "one"), Engine(tmp_path / "other", who)
    one.run(first(out, one), 1, 2)
    one.run(first(out, one), 3, 4, killed=True)
    with pytest.raises(Conflict, match="holds the results of another engine"):
        other.run(second(out, other), 7, 8)
    one.run(first(out, one))
    assert found(out, first) == [1, 2, 3, 4]
    assert found(out, second, "bob") == []


@pytest.mark.parametrize("make", KINDS)
def test_a_folder_stays_with_its_engine_after_forget(tmp_path: Path, out: Path, make: Callable[..., Any]) -> None:
    one = Engine(tmp_path / "one")
    one.run(make(out, one), 1, 2)
    forget(tmp_path / "one")
    one = Engine(tmp_path / "one")
    one.run(make(out, one), 1)
    assert found(out, make) == [1]


def test_two_processes_with_copies_of_one_state_do_not_write_at_the_same_time(tmp_path: Path, out: Path) -> None:
    one = Engine(tmp_path / "one")
    one.run(FileSink(out, one), 1)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    pipeline = one.begin(FileSink(out, one))
    copy = Engine(tmp_path / "copy")
    copy.run(FileSink(out, copy), 2)
    with pytest.raises(Fenced, match="another process has taken over"):
        one.take("s", ("r1", 3))
    pipeline.close()
    assert 3 not in found(out, FileSink)


def test_a_half_written_owner_mark_owns_nothing(tmp_path: Path, out: Path) -> None:
    one = Engine(tmp_path / "one")
    FileSink(out, one)
    mark = (out / ".headgate").read_text()
    (out / ".headgate").write_text(f"{mark} 00ff")
    one.run(FileSink(out, one), 1)
    assert (out / ".headgate").read_text().startswith(f"{mark} ") and len((out / ".headgate").read_text()) == 81


@pytest.mark.parametrize("kinds", [KINDS, KINDS[::-1]])
def test_one_engine_can_write_both_kinds_to_one_folder(tmp_path: Path, out: Path, kinds: list[Any]) -> None:
    """What is said of a query stands in a file with lines, also beside Parquet: it was begun anew, without the results
    that stood there."""
    one = Engine(tmp_path / "one")
    for number, make in enumerate([*kinds, *kinds]):
        one.run(make(out, one), number, end=True)
    assert found(out, FileSink) == ([0, 2] if kinds[0] is FileSink else [1, 3])
    assert found(out, ParquetSink) == ([1, 3] if kinds[0] is FileSink else [0, 2])
    lines = (out / "ann" / "q.jsonl").read_text().splitlines()
    assert sum("waits" in line for line in lines) == 4


# Results that were not out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["a file", "the index", "all"])
def test_missing_results_of_a_committed_version_are_reported(tmp_path: Path, out: Path, gone: str) -> None:
    one = Engine(tmp_path / "one")
    one.run(ParquetSink(out, one), 1, killed=True)
    pattern = {"a file": "*.parquet", "the index": "*.json", "all": "*"}[gone]
    for file in (out / ".staged").glob(pattern):
        file.rename(tmp_path / file.name)
    with pytest.raises(StoreError, match=r"unpublished results are missing in .*--fresh"):
        one.run(ParquetSink(out, one), 2)
    for file in tmp_path.glob("0*"):
        file.rename(out / ".staged" / file.name)
    one.run(ParquetSink(out, one))
    assert found(out, ParquetSink) == [1]


def test_results_that_wait_in_one_folder_are_not_forgotten_for_another(tmp_path: Path, out: Path) -> None:
    one = Engine(tmp_path / "one")
    one.run(ParquetSink(out, one), 1, killed=True)
    for sink in (ParquetSink(tmp_path / "elsewhere", one), FileSink(out, one)):
        with pytest.raises(StoreError, match=f"unpublished results wait in `{out}`"):
            one.run(sink)
    one.run(ParquetSink(out, one))
    one.run(ParquetSink(tmp_path / "elsewhere", one), 2)
    assert found(out, ParquetSink) == [1] and found(tmp_path / "elsewhere", ParquetSink) == [2]


@pytest.mark.parametrize("make", KINDS)
def test_a_notice_survives_a_crash(tmp_path: Path, out: Path, make: Callable[..., Any]) -> None:
    one = Engine(tmp_path / "one")
    one.run(make(out, one), end=True, killed=True)
    one.run(make(out, one))
    (line,) = (out / "ann" / "q.jsonl").read_text().splitlines()
    assert json.loads(line).keys() == {"waits"}


# What others did ------------------------------------------------------------------------------------------------------


def test_a_truncated_file_is_reported_and_the_next_line_stands_alone(tmp_path: Path, out: Path) -> None:
    one = Engine(tmp_path / "one")
    assert one.run(FileSink(out, one), 1, 2) == []
    file = out / "ann" / "q.jsonl"
    content = file.read_bytes()
    file.write_bytes(content[:-7])
    (said,) = one.run(FileSink(out, one), 3)
    assert "`ann/q.jsonl`" in said and "was cut" in said and "7 bytes" in said
    assert found(out, FileSink) == [1, 3]
    assert one.run(FileSink(out, one), 4) == []
    assert found(out, FileSink) == [1, 3, 4]


def test_an_extended_file_is_reported_and_keeps_its_content(tmp_path: Path, out: Path) -> None:
    one = Engine(tmp_path / "one")
    one.run(FileSink(out, one), 1)
    with (out / "ann" / "q.jsonl").open("a") as file:
        file.write('{"values": {"x": 77}}\n')
    (said,) = one.run(FileSink(out, one), 2)
    assert "`ann/q.jsonl`" in said and "22 bytes" in said
    assert found(out, FileSink) == [1, 77, 2]
    assert one.run(FileSink(out, one), 3) == []


def test_the_rest_of_an_interrupted_write_is_cut_without_a_report(tmp_path: Path, out: Path) -> None:
    """Then a longer file is our own, and is cut without a word, as ever."""
    one = Engine(tmp_path / "one")
    one.run(FileSink(out, one), 1)
    one.run(FileSink(out, one), 2, killed=True)
    with (out / "ann" / "q.jsonl").open("a") as file:
        file.write('{"half a li')
    assert one.run(FileSink(out, one)) == []
    assert 3 not in found(out, FileSink)


@pytest.mark.parametrize("make", KINDS)
def test_a_removed_folder_is_reported(tmp_path: Path, out: Path, make: Callable[..., Any]) -> None:
    one = Engine(tmp_path / "one")
    one.run(make(out, one), 1)
    shutil.rmtree(out)
    (said,) = one.run(make(out, one), 2)
    assert f"`{out}` was removed or replaced" in said
    assert found(out, make) == [2]
    assert one.run(make(out, one), 3) == []
    assert found(out, make) == [2, 3]


@pytest.mark.parametrize("make", KINDS)
def test_a_folder_removed_during_a_run_is_reported_and_made_again(
    tmp_path: Path, out: Path, make: Callable[..., Any]
) -> None:
    one = Engine(tmp_path / "one")
    pipeline = one.begin(make(out, one))
    one.take("s", ("r1", 1))
    shutil.rmtree(out)
    one.take("s", ("r1", 2))
    one.take("s", ("r1", 3))
    (said,) = pipeline.warnings()
    assert f"`{out}` was removed or replaced" in said and pipeline.warnings() == []
    pipeline.close()
    assert one.run(make(out, one), 4) == []
    assert found(out, make) == [2, 3, 4]


@pytest.mark.parametrize("make", KINDS)
def test_a_folder_moved_away_during_a_run_is_recognised_again(
    tmp_path: Path, out: Path, make: Callable[..., Any]
) -> None:
    one = Engine(tmp_path / "one")
    pipeline = one.begin(make(out, one))
    one.take("s", ("r1", 1))
    out.rename(tmp_path / "moved")
    one.take("s", ("r1", 2))
    pipeline.close()
    one.run(make(tmp_path / "moved", one), 3)
    assert found(out, make) == [2] and found(tmp_path / "moved", make) == [1, 3]


def test_a_file_removed_during_a_run_is_reported(tmp_path: Path, out: Path) -> None:
    one = Engine(tmp_path / "one")
    pipeline = one.begin(FileSink(out, one))
    one.take("s", ("r1", 1))
    (out / "ann" / "q.jsonl").unlink()
    one.take("s", ("r1", 2))
    (said,) = pipeline.warnings()
    assert "`ann/q.jsonl`" in said and "was cut or removed" in said
    pipeline.close()
    assert found(out, FileSink) == [2]


def test_a_truncated_or_planted_parquet_file_is_reported(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "ROWS", 1)
    one = Engine(tmp_path / "one")
    for value in (1, 2, 3):
        one.run(ParquetSink(out, one), value)
    folder = out / "ann" / "q"
    content = (folder / "000000002.parquet").read_bytes()
    (folder / "000000002.parquet").write_bytes(content[:-9])
    shutil.copy(folder / "000000001.parquet", folder / "000000004.parquet")
    said = one.run(ParquetSink(out, one))
    assert len(said) == 2
    assert "`ann/q/000000004.parquet`" in said[0] and "not written here" in said[0]
    assert "`ann/q/000000002.parquet`" in said[1] and "cut or changed" in said[1]


def test_a_refused_folder_is_not_left_locked(tmp_path: Path, out: Path) -> None:
    one, other = Engine(tmp_path / "one"), Engine(tmp_path / "other")
    one.run(FileSink(out, one), 1)
    for _ in range(2):
        with pytest.raises(HeadgateError):
            other.run(FileSink(out, other), 1)
    assert isinstance(one.begin(FileSink(out, one)), Pipeline)
    assert one.pipeline is not None
    one.pipeline.close()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_state_removed_or_replaced_during_a_run_is_noticed(tmp_path: Path, out: Path, how: str) -> None:
    """The attack: the lock goes with the folder, and a second engine begins in its place."""
    one = Engine(tmp_path / "one")
    first = one.begin(FileSink(out, one))
    one.take("s", ("r1", 1))
    (tmp_path / "one").rename(tmp_path / "away")
    if how == "replaced":
        Engine(tmp_path / "one").begin().close()
    with pytest.raises(StoreError, match="was removed or replaced during the run"):
        one.take("s", ("r1", 2))
    first.close()
    assert found(out, FileSink) == [1] and not list((tmp_path / "one").rglob("state/0*"))
