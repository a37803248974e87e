"""State that one program wrote goes on in another one: queries have come and gone while nothing ran, and tuples are
partitioned otherwise. Streams have other numbers then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from worlds.harness import Bench, stream

from headgate.execution.executors import Executor, LocalExecutor, PartitionedExecutor
from headgate.execution.partition_groups import partition_groups
from headgate.expressions.duck import evaluate
from headgate.model.query import ContinuousQuery
from headgate.operators.program import Program
from headgate.recovery.pipeline import Pipeline

NAMES = ("first", "second", "third")


class Divided(Bench):
    """`partitions` of each group of blocks; none: all in one."""

    partitions = 0

    def begin(self) -> Pipeline:  # type: ignore[override]
        def make(queries: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
            if not self.partitions:
                return LocalExecutor(program, schema, evaluate)
            return PartitionedExecutor(program, partition_groups(queries), self.partitions, evaluate)

        self.pipeline = Pipeline(self.home, self, make, [self.mailbox], self.clock, self.limits)
        return self.pipeline


@pytest.mark.parametrize("kept", NAMES)
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 3), (2, 2), (0, 0)])
def test_what_is_kept_of_a_stream_stays_its_own_when_queries_of_others_are_gone(
    tmp_path: Path, kept: str, before: int, after: int
) -> None:
    bench = Divided(tmp_path, *(stream(name, "k INT") for name in NAMES))
    for name in NAMES:
        bench.query(f"of_{name}", f"SELECT k, COUNT(*) AS n FROM {name} [ROWS 10] GROUP BY k")
    bench.subscribed(**{f"reader{name}": (f"of_{name}", "") for name in NAMES})
    bench.partitions = before
    for number, name in enumerate(NAMES):
        bench.take(name, ("TRUE", number), ("TRUE", number))
    assert bench.pipeline is not None
    bench.pipeline.close()
    for name in NAMES:
        bench.fetched(f"reader{name}", f"of_{name}")

    bench.partitions = after
    bench.queries = {f"of_{kept}": bench.queries[f"of_{kept}"]}
    bench.subscribed(**{f"reader{kept}": (f"of_{kept}", "")})
    bench.begin()
    bench.take(kept, ("TRUE", NAMES.index(kept)))
    bench.end()
    assert bench.fetched(f"reader{kept}", f"of_{kept}")[-1] == (NAMES.index(kept), 3)
