"""How long Spark may take for what people ask: a condition of one reader must not hold up all others."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

BUDGET = 30.0
"""Seconds that Spark may take for a batch with conditions of people's in it."""


@dataclass
class TimeBudget:
    """How long Spark may take for a batch with conditions of people's in it, and for which it took longer: these are
    evaluated by kernels from then on, and Spark reads without them."""

    seconds: float = BUDGET
    given_up: set[object] = field(default_factory=set)

    def collected(self, frame: DataFrame) -> pa.Table | None:
        """None: it took too long, and was ended."""
        context, tag = frame.sparkSession.sparkContext, f"headgate-{uuid4().hex}"
        over = threading.Event()

        def end() -> None:
            over.set()
            context.cancelJobsWithTag(tag)

        timer = threading.Timer(self.seconds, end)
        context.addJobTag(tag)
        timer.start()
        try:
            return frame.toArrow()
        except Exception:
            if over.is_set():
                return None
            raise
        finally:
            timer.cancel()
            context.removeJobTag(tag)
