"""The time that Spark may take for pushed-down conditions: the condition of one user must not delay all others."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

BUDGET = 30.0
"""Seconds that Spark may take for a batch with conditions of users."""


@dataclass
class TimeBudget:
    """The time budget of a batch. `given_up` holds the pushdowns (`Pushdown.keep`) that exceeded it: from then on Spark
    reads without their conditions, and the operators evaluate them."""

    seconds: float = BUDGET
    given_up: set[object] = field(default_factory=set)

    def collected(self, frame: DataFrame) -> pa.Table | None:
        """The rows of a data frame; None: it took too long and was cancelled."""
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
