"""A sink that writes results to topics of Kafka: one for each subscriber and stream, or one for all.

It is a Spark sink: keys, numbers and the moment of the decision are the same. A message has the key of its result, so
a reader who drops repeated keys gets each result once. Transactions would spare readers this, but Spark's connector
writes without them. Who may read a topic is decided by the brokers' own access lists.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headgate.egress.sinks import Addresses
from headgate.egress.spark_sink import SparkSink
from headgate.errors import HeadgateError
from headgate.ingress.kafka_jars import check_connector
from headgate.ingress.kafka_options import KAFKA, client_options

PREFIX = "headgate."
_LONGEST = 249
_OTHER = re.compile(r"[^A-Za-z0-9-]")
_OWN = ("servers", "topic", "prefix", "properties")
_HEADERS = ("user", "level", "stream")


class KafkaSink(SparkSink):
    """`servers` are the brokers; with `topic` all results go there, else each file that a folder of results would have
    is a topic, whose name begins with `prefix`."""

    def __init__(self, spark: Callable[[], SparkSession], options: Mapping[str, str], addresses: Addresses) -> None:
        check_connector()
        own = {name.lower(): value for name, value in options.items()}
        unknown = sorted(name for name in own if name not in _OWN and not name.startswith("kafka."))
        if unknown:
            hint = f"there are {', '.join(_OWN)} and kafka.*"
            raise HeadgateError(f"cannot write to Kafka: there is no option `{unknown[0]}`", hint=hint)
        if "servers" not in own and "kafka.bootstrap.servers" not in own:
            raise HeadgateError("cannot write to Kafka: the option `servers` is missing")
        self._topic = own.get("topic")
        self._prefix = own.get("prefix", PREFIX)
        super().__init__(spark, KAFKA, client_options(own), addresses)

    def _place(self, path: tuple[str, ...], size: int) -> dict[str, pa.Array]:
        return {"topic": pa.array([self._topic or topic_name(self._prefix, path)] * size, pa.string())}

    def _shaped(self, frame: DataFrame) -> DataFrame:
        """The columns of Kafka's writer; a label and a time are in the value."""
        headers = [F.struct(F.lit(x).alias("key"), F.col(x).cast("binary").alias("value")) for x in _HEADERS]
        return frame.select("topic", "key", "value", F.array(*headers).alias("headers"))


def topic_name(prefix: str, path: tuple[str, ...]) -> str:
    """The name of a topic, a different one for every path: of a user, perhaps a level, and a stream. Kafka allows
    letters, digits and `._-`. Each other character, and `_` itself, becomes `_` and the hexadecimal digits of its
    bytes. Only a stream keeps its points, and a level begins with `_40`, as no other part does."""
    user, *level, stream = path
    parts = [_encoded(user), *(_encoded(f"@{x}") for x in level), ".".join(map(_encoded, stream.split(".")))]
    name = prefix + ".".join(parts)
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256("/".join(path).encode()).hexdigest()
    return f"{name[: _LONGEST - len(digest) - 2]}__{digest}"


def _encoded(part: str) -> str:
    return _OTHER.sub(lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode()), part)
