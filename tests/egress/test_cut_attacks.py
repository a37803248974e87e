"""The attack: count the tuples that one may not see by where results are cut into files and batches.

A trigger takes a bounded number of tuples, or of files, whoever may see them. So hidden tuples move the ends of
batches, and anything that is cut where a batch ends tells how many there were. Two worlds differ only in hidden
tuples; everything that the reader finds afterwards must be the same, byte by byte.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from worlds.harness import NOW, Bench, Row, stream

from egress.spark_stand_in import Written
from headgate.egress import parquet_files
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import FileSink, Sink
from headgate.egress.spark_sink import SparkSink

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")

TEXTS = ("SELECT x, name FROM s", "SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND]")
SEEN = 60


def tuples(hidden: int, seed: int) -> list[tuple[dt.datetime, Row]]:
    """The tuples that ann may see, at their times, and hidden ones among them."""
    rng = Random(seed)
    seen = [(200 * n, ("nurse" if n % 3 else "TRUE", n, f"n{n % 7}")) for n in range(SEEN)]
    others = [(rng.randrange(200 * SEEN), ("doctor", -1, "secret")) for _ in range(hidden)]
    return [(NOW + dt.timedelta(milliseconds=time), row) for time, row in sorted([*seen, *others])]


def run(hidden: int, longest: int, sinks: Iterable[Sink], bench: Bench, *, restarts: bool) -> None:
    """Batches of so many tuples, whoever may see them."""
    given = tuples(hidden, longest)
    for begin in range(0, len(given), longest):
        if bench.pipeline is None or (restarts and begin % (3 * longest) == 0):
            if bench.pipeline is not None:
                bench.pipeline.close()
            bench.begin(*sinks)
        part = given[begin : begin + longest]
        bench.take("s", *(row for _, row in part), times=[time for time, _ in part])
    bench.end()
    assert bench.pipeline is not None
    bench.pipeline.close()


def bench_at(home: Path) -> Bench:
    bench = Bench(home / "home", stream("s", "x INT, name STRING"))
    for number, text in enumerate(TEXTS):
        bench.query(f"q{number}", text)
    bench.subscribed(ann=("q0", "nurse"), bob=("q0", "nurse,doctor"), cyd=("q1", "nurse"))
    return bench


WORLDS = [(0, 1000), (0, 7), (25, 7), (200, 7), (200, 40)]
"""How many hidden tuples come, and how many tuples make a batch. Those with a trigger of 7 are the attack proper."""


def files(home: Path) -> dict[str, bytes]:
    """All that ann and cyd find: names, sizes and contents."""
    found = (x for who in ("ann", "cyd") for x in sorted((home / "out" / who).rglob("*")) if x.is_file())
    return {str(x.relative_to(home)): x.read_bytes() for x in found}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kind", [FileSink, ParquetSink])
def test_hidden_tuples_do_not_move_where_files_of_results_are_cut(
    tmp_path: Path, kind: type[FileSink] | type[ParquetSink], restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "ROWS", 16)
    found = []
    for hidden, longest in WORLDS:
        home = tmp_path / f"{hidden}-{longest}"
        bench = bench_at(home)
        run(hidden, longest, [kind(home / "out", bench)], bench, restarts=restarts)
        found.append(files(home))
    assert all(x == found[0] for x in found[1:])
    assert len(found[0]) == (2 if kind is FileSink else 4 + 1)  # 60 rows and 12, in files of 16


def test_a_parquet_file_has_one_row_group_and_a_fixed_number_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "ROWS", 16)
    bench = bench_at(tmp_path)
    run(100, 9, [ParquetSink(tmp_path / "out", bench)], bench, restarts=True)
    shapes = [pq.ParquetFile(x).metadata for x in sorted((tmp_path / "out" / "ann" / "q0").iterdir())]
    assert [(x.num_rows, x.num_row_groups) for x in shapes] == [(16, 1), (16, 1), (16, 1), (12, 1)]
    rows = [y for x in sorted((tmp_path / "out" / "ann" / "q0").iterdir()) for y in pq.read_table(x)["x"].to_pylist()]
    assert rows == list(range(SEEN))


def test_hidden_tuples_do_not_move_the_numbers_of_results_in_other_systems(tmp_path: Path) -> None:
    found = []
    for hidden, longest in WORLDS:
        home, written = tmp_path / f"{hidden}-{longest}", Written()
        bench = bench_at(home)
        run(hidden, longest, [SparkSink(written, "any", {}, bench)], bench, restarts=False)
        mine = [x for x in written.rows if x["user"] in ("ann", "cyd")]
        found.append(sorted(({**x, "key": x["key"].partition("/")[2]} for x in mine), key=lambda x: x["key"]))
    assert all(x == found[0] for x in found[1:])
