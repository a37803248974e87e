"""One Spark session for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.ingress.spark import spark_session
from headgate.ingress.spark_settings import SparkSettings


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that other tests have started, as it is, or a new one."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    home: Path = tmp_path_factory.mktemp("spark")
    session = spark_session(home, settings=SparkSettings({"spark.sql.shuffle.partitions": "2"}))
    yield session
    session.stop()
