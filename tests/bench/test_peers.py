"""The comparison with other engines: what is held to be expected is right, and the files say the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.bench.peers import bytewax, flink
from headgate.bench.peers.data import generate, make, tuples_in, write
from headgate.bench.peers.expected import Stream, expected
from headgate.bench.peers.outcome import Outcome, Run, empty, expected_of, read_outcomes, results_folder
from headgate.bench.peers.subprocesses import NotInstalled
from headgate.bench.peers.workloads import (
    LEVELS,
    POLICIES,
    SIXTY,
    THREE,
    WORKLOADS,
    Reader,
    columns_of,
    known,
    readers_of,
    streams_of,
)
from headgate.labels.text import parse_roles

TUPLES = 2_000
STREAMS = {name: generate(name, TUPLES) for name in ("hr", "bp")}
Tuple = tuple[int, int, int, int, str]


def tuples_of(stream: Stream) -> list[Tuple]:
    texts = [list(POLICIES)[code] for code in stream.policy]
    columns = (stream.at, stream.patient, stream.measured, stream.lvl)
    return list(zip(*(column.tolist() for column in columns), texts, strict=True))


@cache
def sees(reader: Reader, policy: str) -> bool:
    """By the grammar and the meaning of labels, not by the table the engines are given."""
    return reader.roles is None or parse_roles(policy).satisfied_by(reader.roles)


def selection(reader: Reader) -> Iterator[tuple[float, ...]]:
    for _, patient, hr, _, policy in tuples_of(STREAMS["hr"]):
        if reader.above is not None and hr > reader.above and sees(reader, policy):
            yield patient, hr


def pairs(reader: Reader) -> Iterator[tuple[float, ...]]:
    """As tuples arrive: each meets those of the other stream that are at most a second old."""
    hr, bp = (tuples_of(STREAMS[name]) for name in ("hr", "bp"))
    arrivals = sorted([(t[0], 0, t) for t in hr] + [(t[0], 1, t) for t in bp])
    windows: tuple[list[Tuple], list[Tuple]] = ([], [])
    for at, side, arrived in arrivals:
        for window in windows:
            while window and window[0][0] < at - 1_000_000:
                window.pop(0)
        windows[side].append(arrived)
        if not sees(reader, arrived[4]):
            continue
        for other in [other for other in windows[1 - side] if other[1] == arrived[1]]:
            left, right = (arrived, other) if side == 0 else (other, arrived)
            if sees(reader, other[4]):
                yield left[1], left[2], right[2]


def averages(reader: Reader) -> Iterator[tuple[float, ...]]:
    windows: dict[int, list[int]] = {level: [] for level in range(LEVELS)}
    for _, _, hr, level, policy in tuples_of(STREAMS["hr"]):
        if sees(reader, policy):
            windows[level] = [*windows[level], hr][-20:]
            yield level, sum(windows[level]) / len(windows[level])


def outcome_of(rows: Iterable[tuple[float, ...]]) -> Outcome:
    return Outcome.of([np.array(column) for column in zip(*rows, strict=True)])


LOOPS = {"W1": selection, "W2": selection, "W3": pairs, "W4": averages}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_expected_is_what_a_plain_loop_finds(workload: str) -> None:
    found = expected(workload, STREAMS)
    assert found == {reader.name: outcome_of(LOOPS[workload[:2]](reader)) for reader in readers_of(workload)}
    assert all(outcome.rows > 0 for outcome in found.values())


def test_the_table_of_policies_says_what_the_texts_mean() -> None:
    assert all(reader.permitted == [text for text in POLICIES if sees(reader, text)] for reader in (*SIXTY, *THREE))


def test_streams_are_the_same_every_time_and_their_files_are_in_time_order(tmp_path: Path) -> None:
    write("hr", generate("hr", 1_003), tmp_path / "hr")
    files = sorted((tmp_path / "hr").iterdir())
    assert len(files) == 10
    assert all(a.stat().st_mtime < b.stat().st_mtime for a, b in pairwise(files))
    table = pa.concat_tables([pq.read_table(file) for file in files])
    again = generate("hr", 1_003)
    assert table.column("at").to_numpy().astype("datetime64[us]").astype(np.int64).tolist() == again.at.tolist()
    assert table.column("hr").to_pylist() == again.measured.tolist()
    assert table.column("policy").to_pylist() == [list(POLICIES)[code] for code in again.policy]
    assert str(table.schema.field("at").type) == "timestamp[us, tz=UTC]"


def test_a_folder_of_data_tells_what_is_expected(tmp_path: Path) -> None:
    assert expected_of(tmp_path, "W1") is None
    make(tmp_path, TUPLES)
    make(tmp_path, TUPLES)
    assert {workload: expected_of(tmp_path, workload) for workload in WORKLOADS} == {
        workload: expected(workload, STREAMS) for workload in WORKLOADS
    }
    assert tuples_in(tmp_path, streams_of("W3")) == 2 * TUPLES


def written(work: Path, rows: Mapping[str, list[float]]) -> Outcome:
    folder = results_folder(empty(work), "all")
    folder.mkdir()
    table = pa.table(dict(rows))
    half = len(table) // 2
    pq.write_table(table.slice(0, half), folder / "part-1")
    pq.write_table(table.slice(half), folder / "part-0.parquet")
    (folder / ".part-1.crc").write_bytes(b"kept beside it")
    return read_outcomes("W4", work)["all"]


def test_a_checksum_depends_on_every_row_and_not_on_their_order(tmp_path: Path) -> None:
    rows: dict[str, list[float]] = {"lvl": [1, 2, 2, 3], "average": [70.5, 61 / 3, 61 / 3, 80.0]}
    found = written(tmp_path, rows)
    assert found == written(tmp_path, {name: values[::-1] for name, values in rows.items()})
    assert found == Outcome.of([np.array(values) for values in rows.values()])
    others: list[dict[str, list[float]]] = [
        {"lvl": [1, 2, 3, 3], "average": rows["average"]},
        {"lvl": rows["lvl"], "average": [70.5, 61 / 3, 61 / 3, 80.05]},
        {"lvl": rows["lvl"], "average": [61 / 3, 70.5, 61 / 3, 80.0]},
        {name: values[1:] for name, values in rows.items()},
    ]
    assert found not in [written(tmp_path, other) for other in others]
    assert [*rows] == [*columns_of("W4")]


def test_a_workload_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="`W9` is no workload; there are W1, W2"):
        known("W9")


def test_a_run_says_whether_it_agrees() -> None:
    found = {"all": Outcome(3, "0f")}
    run = Run("an engine", "W1", "one way", 0.5, 2_000, found, {"files": 1})
    assert json.loads(run.to_json(found)) == {
        "engine": "an engine",
        "workload": "W1",
        "variant": "one way",
        "seconds": 0.5,
        "tuples": 2_000,
        "readers": {"all": {"rows": 3, "checksum": "0f"}},
        "detail": {"files": 1},
        "tuples_per_second": 4_000,
        "agrees": True,
    }
    assert json.loads(run.to_json({"all": Outcome(3, "0e")}))["agrees"] is False
    assert json.loads(run.to_json(None))["agrees"] is None


def test_an_engine_that_is_not_installed_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_PEERS", str(tmp_path))
    for run, name in ((bytewax.run, "bytewax"), (flink.run, "flink")):
        with pytest.raises(NotInstalled, match=f"{name} is not installed here: run scripts/ensure-peers.sh"):
            run("W1", tmp_path, tmp_path / "work")


def test_what_an_engine_cannot_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_PEERS", str(tmp_path))
    with pytest.raises(ValueError, match="for W1 and W2 only"):
        bytewax.run("W3", tmp_path, tmp_path / "work", variant="arrow")
    with pytest.raises(ValueError, match="time attributes only"):
        flink.run("W4r", tmp_path, tmp_path / "work", variant="together")
