"""The Spark session of all tests as these tests need it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def usual_record_batches(request: pytest.FixtureRequest) -> None:
    """Commands that other tests ran in this process set the session to one record batch for each partition."""
    if "spark" in request.fixturenames:
        spark = request.getfixturevalue("spark")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
