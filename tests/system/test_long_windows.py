"""Windows over millions of tuples: none ends, and each reader receives what DuckDB computes over the tuples they may
see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from worlds.from_outside import Asked, Readers, differences, expected, received
from worlds.harness import NOW, stream

from headgate.model.limits import Limits

BEGIN = int(NOW.timestamp() * 1000)
WARDS = ("ward1", "ward2", "ward1 | ward2")
MUCH = Limits(tuples=100_000_000)
"""An hour holds 18 million tuples."""
READERS = Readers({"ann": "ward1", "bob": "ward2"}, {"ann": ("ward1", "ward1 | ward2"), "bob": WARDS[1:]})
HR = stream("HR", "n BIGINT, pat INT, rate INT, bidder BIGINT")
PATIENTS = 1_000
AN_HOUR = Asked(
    {"average": "SELECT pat, AVG(rate) AS average FROM HR [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY pat"},
    """WITH panes AS (
         SELECT pat, (epoch_ms(HR.at) + 59999) // 60000 AS minute,
                min(n) AS first, sum(rate) AS total, count(*) AS count
         FROM HR GROUP BY ALL
       ), instants AS (
         SELECT unnest(range((SELECT min(minute) FROM panes), (SELECT max(minute) + 60 FROM panes))) AS instant
       )
       SELECT pat, sum(total) / sum(count), instant * 60000
       FROM instants JOIN panes ON minute BETWEEN instant - 59 AND instant
       GROUP BY instant, pat ORDER BY instant, min(first)""",
)
"""A tuple is in the pane of the first instant that sees it, and so in the windows of sixty instants."""
BIDDERS = Asked(
    {"bidders": "SELECT COUNT(DISTINCT bidder) AS bidders FROM HR [UNBOUNDED]"},
    "SELECT sum(CAST(first AS INT)) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING), epoch_ms(moment) "
    "FROM (SELECT n, HR.at AS moment, row_number() OVER (PARTITION BY bidder ORDER BY n) = 1 AS first FROM HR) "
    "ORDER BY n",
)


class Rates:
    """So many tuples of a thousand patients, five in a millisecond, in files below a folder."""

    def __init__(self, folder: Path, tuples: int, files: int) -> None:
        self._folder = folder
        folder.mkdir()
        size = -(-tuples // files)
        for number in range(files):
            n = np.arange(number * size, min((number + 1) * size, tuples))
            pq.write_table(_rates(n, np.random.default_rng(number)), folder / f"{number:03}.parquet")

    def files(self) -> Iterator[dict[str, pa.Table]]:
        for file in sorted(self._folder.iterdir()):
            yield {"HR": pq.read_table(file)}

    def seen(self, who: str) -> ds.Dataset:
        return ds.dataset(self._folder).filter(ds.field("policy").isin(READERS.policies[who]))


def _rates(n: np.ndarray[tuple[int], np.dtype[np.int64]], drawn: np.random.Generator) -> pa.Table:
    policy = pa.array(drawn.integers(0, len(WARDS), len(n)), pa.int32())
    return pa.table(
        {
            "n": n,
            "pat": pa.array(drawn.integers(0, PATIENTS, len(n)), pa.int32()),
            "rate": pa.array(drawn.integers(40, 200, len(n)), pa.int32()),
            "bidder": drawn.geometric(1e-5, len(n)),
            "at": pa.array((BEGIN + n // 5) * 1000, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "policy": pa.DictionaryArray.from_arrays(policy, pa.array(WARDS)).cast(pa.string()),
        }
    )


def check(home: Path, asked: Asked, rates: Rates, limits: Limits | None = None) -> int:
    """How many results all readers received together; all of them are right."""
    found = received(home, asked, [HR], rates.files(), READERS, limits)
    for who, results in found.items():
        assert differences(results, expected(asked, {"HR": rates.seen(who)})) == []
    return sum(results.num_rows for results in found.values())


@pytest.mark.parametrize(("tuples", "files"), [(40_000, 1), (40_000, 9)])
def test_a_sliding_average_is_that_of_the_tuples_that_each_reader_may_see(
    tuples: int, files: int, tmp_path: Path
) -> None:
    assert check(tmp_path / "home", AN_HOUR, Rates(tmp_path / "rates", tuples, files)) > 2 * 60 * PATIENTS


@pytest.mark.parametrize("files", [1, 9])
def test_distinct_values_are_counted_over_the_tuples_that_each_reader_may_see(files: int, tmp_path: Path) -> None:
    assert check(tmp_path / "home", BIDDERS, Rates(tmp_path / "rates", 20_000, files)) > 20_000


@pytest.mark.long
@pytest.mark.parametrize(("tuples", "files"), [(5_000_000, 1), (5_000_000, 20), (50_000_000, 50)])
def test_a_sliding_average_over_millions_does_not_end(tuples: int, files: int, tmp_path: Path) -> None:
    assert check(tmp_path / "home", AN_HOUR, Rates(tmp_path / "rates", tuples, files), MUCH) > 70 * PATIENTS


@pytest.mark.long
@pytest.mark.parametrize("files", [1, 100])
def test_distinct_values_of_a_million_are_counted(files: int, tmp_path: Path) -> None:
    assert check(tmp_path / "home", BIDDERS, Rates(tmp_path / "rates", 1_000_000, files)) > 1_000_000
