"""An engine without Spark for tests of the server: the product's own pipeline, fed straight from the ingress log.

Each file of the log is one batch, and its number is the batch's number, so an engine that is killed goes on exactly
where it was.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.clock import SystemClock
from headgate.egress.sinks import Sink
from headgate.errors import ColumnsChanged
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.expressions.sql.types import ARROW
from headgate.ingress.folder_log import folder_name
from headgate.levels.shepherd import Shepherd
from headgate.model.stream import StreamDescriptor
from headgate.protocol import PUBLISH
from headgate.recovery.counts import RunCounts
from headgate.recovery.pipeline import Pipeline
from headgate.service import Headgate
from headgate.service.runs import LevelsApart


class DirectEngine:
    """With `levels`, each level has a processor of its own."""

    def __init__(
        self,
        headgate: Headgate,
        home: Path,
        sinks: Sequence[Sink],
        ingress: Path,
        levels: LevelsApart | None = None,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._headgate, self._home, self._sinks, self._ingress = headgate, home, sinks, ingress
        self._levels = levels
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.paused = threading.Event()
        self.pipeline: Pipeline | Shepherd | None = None
        self.is_ready = self.is_idle = False
        self.failed = 0
        self.fault: Exception | None = None

    @property
    def counts(self) -> RunCounts:
        return self.pipeline.counts if self.pipeline else RunCounts()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self.pipeline = self._begun()
            self._headgate.engine = self.pipeline
            self.is_ready = True
            while not self._stopping.wait(0.005):
                if not self.paused.is_set():
                    self._round(self.pipeline)
        except Exception as error:
            self.fault = error
        finally:
            self.is_ready = False
            self._headgate.engine = None
            if self.pipeline is not None:
                self.pipeline.close()

    def _begun(self) -> Pipeline | Shepherd:
        if self._levels is not None:
            return Shepherd(self._home, self._headgate, self._levels.sinks, SystemClock(), self._levels.setting)
        return Pipeline(
            self._home,
            self._headgate,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            self._sinks,
            SystemClock(),
        )

    def _round(self, pipeline: Pipeline | Shepherd) -> None:
        snapshot = self._headgate.snapshot()
        for stream, found in self._headgate.snapshots.inputs().items():
            if found.format != PUBLISH or stream not in snapshot.descriptors:
                continue
            for path in sorted((self._ingress / folder_name(stream)).glob("*.parquet")):
                table = _shaped(pq.read_table(path), snapshot.descriptors[stream])
                try:
                    pipeline.take(stream, int(path.stem), table)
                except ColumnsChanged:
                    return
                path.unlink()
        pipeline.settle()


def _shaped(table: pa.Table, descriptor: StreamDescriptor) -> pa.Table:
    """As Spark reads files: NULL in columns that a file does not have."""
    schema = pa.schema([(name, ARROW[type_]) for name, type_ in descriptor.columns])
    return pa.concat_tables([table, schema.empty_table()], promote_options="default").select(schema.names)
