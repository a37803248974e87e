"""Kafka's own producer, sending the same rows to a broker on the same disk, for comparison.

`scripts/ensure-kafka.sh broker` installs the broker; without it there is no comparison, only a reason.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from importlib.resources import as_file, files

from headgate.errors import HeadgateError
from headgate.ingress.kafka_jars import kafka_folder

BROKERS: Mapping[str, Mapping[str, str]] = {"on the disk": {"log.flush.interval.messages": "1"}, "in memory": {}}
"""By where records are when a broker acknowledges them: its settings. By default they are in memory."""


def is_installed() -> bool:
    return any((kafka_folder() / "broker").glob("kafka_*.jar"))


def measure(servers: str, topic: str, rows: int, senders: int, seconds: float) -> tuple[float, list[float]]:
    """Seconds that passed, and the milliseconds of each request. Raises HeadgateError with what the producer says."""
    java = os.path.join(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else "java"
    with as_file(files(__package__) / "ProducerBench.java") as source:
        given = [servers, topic, str(rows), str(senders), str(seconds)]
        command = [java, "-cp", f"{kafka_folder() / 'broker'}/*", str(source), *given]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if "Exception" in line), f"exit code {done.returncode}")
        raise HeadgateError(f"cannot measure Kafka's producer: {why.strip()}")
    _, passed, *times = done.stdout.split()
    return float(passed), [float(x) for x in times]
