"""Where Spark's connector to Kafka is: it does not come with Spark, and whoever uses no Kafka does without it."""

from __future__ import annotations

import os
from pathlib import Path

from headgate.errors import SourceError

_FOLDER = "HEADGATE_KAFKA"


def kafka_folder() -> Path:
    """The folder into which `scripts/ensure-kafka.sh` installs."""
    return Path(os.environ.get(_FOLDER) or Path.home() / ".cache/headgate/kafka")


def connector_jars() -> list[str]:
    """The jars of the connector; none if it is not installed."""
    return sorted(map(str, (kafka_folder() / "connector").glob("*.jar")))


def connector_settings(*, local: bool) -> dict[str, str]:
    """The settings of a Spark session that can reach Kafka, if the connector is installed. A session that runs takes no
    more jars, and a stream of Kafka may be created while it runs. A cluster gets copies; the driver's own process reads
    the jars where they are."""
    jars = connector_jars()
    if not jars:
        return {}
    return {"spark.driver.extraClassPath": ":".join(jars)} if local else {"spark.jars": ",".join(jars)}


def check_connector() -> None:
    if not connector_jars():
        raise SourceError(
            "Spark's connector to Kafka is not installed", hint="run `scripts/ensure-kafka.sh`, then start again"
        )
