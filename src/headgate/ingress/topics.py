"""The topics of the ingress log: where the brokers are, how to log in there, and what topics are called.

Two clients of Kafka read one file of properties: Spark's, which is Java's, and librdkafka, which publishes. The file
has Java's names, as Kafka's own tools take it; what librdkafka calls otherwise is translated here. The names of topics
have an identifier of the home folder in them, so that two servers never write to one topic.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from logging import WARNING, Logger
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from headgate.errors import SourceError, StoreError, Unavailable
from headgate.ingress.folder_log import folder_name
from headgate.ingress.kafka_jars import check_connector
from headgate.ingress.kafka_options import KAFKA, client_options
from headgate.logs import event

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

STORE = "topics.db"
"""The database of the log, which holds the identity of the home folder."""
PARTITION = 0
"""All tuples of a stream are in one partition: their order is that in which they were acknowledged."""
LARGEST_MESSAGE = 20 << 20
"""Bytes of a message that a topic takes which is created here: that of one row may be as large as a request."""
SECONDS = 10.0
"""How long a broker may take to answer."""
_PAUSE = 5.0
"""How long a broker that did not answer is not asked again by whoever reads."""
_PER_BATCH = "400"
"""Offsets of one batch of the engine: half are messages, of at most a megabyte each, and half are ends of
transactions."""
_BEGINNING = re.compile(r"[A-Za-z0-9_-]{1,80}")
_SAME = ("security.protocol", "sasl.mechanism", "ssl.key.password", "ssl.endpoint.identification.algorithm", "client.")
_FOR_READERS = (
    *("fetch.", "socket.", "reconnect.", "retry.", "isolation.level", "max.partition.fetch.bytes"),
    *("request.timeout.ms", "default.api.timeout.ms", "metadata.max.age.ms"),
)
"""Settings that say how Spark reads; who publishes does without them."""
_STORES = {"ssl.truststore.": ("ssl.ca.location",), "ssl.keystore.": ("ssl.certificate.location", "ssl.key.location")}
_LOGIN = "sasl.jaas.config"


class _Complaints:
    """What Kafka's client complains about, for the log: each kind once a minute."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def __call__(self, error: KafkaError) -> None:
        now, kind = time.monotonic(), error.name()
        if now - self._logged.get(kind, -_SELDOM) >= _SELDOM:
            self._logged[kind] = now
            event("ingress", "Kafka's client complains", level=WARNING, kind=kind)


_SELDOM = 60.0
_COMPLAINTS = _Complaints()
_SILENT = Logger("kafka")
"""Kafka's client would write to standard error itself."""
_SILENT.disabled = True


@dataclass(frozen=True)
class Brokers:
    """servers: their addresses, as Kafka takes them
    properties: a file with settings of the client, such as passwords; empty: none
    beginning: what names of topics begin with
    """

    servers: str
    properties: str = ""
    beginning: str = "headgate"

    def check(self) -> None:
        """Raises an error if the settings cannot be used, or what they need is not installed."""
        if not _BEGINNING.fullmatch(self.beginning):
            raise SourceError(
                "the setting `kafka_topics` is not the beginning of a topic's name", hint="letters, digits, `_`, `-`"
            )
        if find_spec("confluent_kafka") is None:
            raise SourceError("Kafka's client is not installed", hint="run `pip install 'headgate[kafka]'`")
        check_connector()
        self.client()

    def client(self) -> dict[str, Any]:
        """The settings of librdkafka; reads the file of properties, which may have changed."""
        given = client_options({"properties": self.properties} if self.properties else {})
        settings = _translated({name.removeprefix("kafka."): value for name, value in given.items()})
        return settings | {"bootstrap.servers": self.servers, "logger": _SILENT, "error_cb": _COMPLAINTS}

    def spark(self) -> dict[str, str]:
        return {"servers": self.servers} | ({"properties": self.properties} if self.properties else {})


def _translated(given: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in given.items():
        store = next((beginning for beginning in _STORES if name.startswith(beginning)), "")
        if name == _LOGIN:
            settings |= _login(value)
        elif store and name == f"{store}location":
            settings |= dict.fromkeys(_STORES[store], value)
        elif store and name == f"{store}type" and value.upper() == "PEM":
            continue
        elif name.startswith(_SAME):
            settings[name] = value
        elif not name.startswith(_FOR_READERS):
            known = ", ".join([*_SAME[:-1], _LOGIN, "ssl.truststore.*, ssl.keystore.* of type PEM"])
            raise SourceError(f"cannot publish to Kafka with the setting `{name}`", hint=f"there are {known}")
    return settings


def _login(text: str) -> dict[str, str]:
    """User and password of a login module."""
    given = dict(re.findall(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"', text))
    if not {"username", "password"} <= given.keys():
        raise SourceError(f"cannot publish to Kafka: the setting `{_LOGIN}` has no username and password")
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", given[name]) for name in ("username", "password")}


@dataclass
class Topics:
    """The topics of one home folder, known by its `identity`. They are created when a stream is first published to or
    read."""

    brokers: Brokers
    identity: str
    seconds: float = SECONDS
    _created: set[str] = field(default_factory=set)
    _asked: float = field(default=-_PAUSE)
    _lock: Lock = field(default_factory=Lock)

    @property
    def writer(self) -> str:
        """Who writes all topics: Kafka lets one process at a time have this name."""
        return f"{self.brokers.beginning}-{self.identity}"

    def name(self, stream: str) -> str:
        return f"{self.writer}-{folder_name(stream)}"

    def create(self, stream: str) -> None:
        """Makes sure that the topic of a stream is there."""
        name = self.name(stream)
        with self._lock:
            if name not in self._created:
                _create(self.brokers.client(), name, self.seconds)
                self._created.add(name)

    def source(self, stream: str) -> tuple[str, dict[str, str]]:
        """How Spark reads what was published to a stream. What Kafka has removed before anybody read the stream is
        gone, as it would be in a folder; a reader who begins later begins with what is left."""
        if time.monotonic() - self._asked > _PAUSE:
            try:
                self.create(stream)
            except (Unavailable, SourceError, StoreError):
                self._asked = time.monotonic()  # Spark notices by itself that it cannot read
        options = {"topic": self.name(stream), "format": "arrow"}
        return KAFKA, self.brokers.spark() | options | {"maxOffsetsPerTrigger": _PER_BATCH, "failOnDataLoss": "false"}


def stored_identity(folder: Path) -> str:
    """The identity of a home folder that has published to topics."""
    if (folder / STORE).exists():
        with closing(sqlite3.connect(folder / STORE)) as store, suppress(sqlite3.OperationalError):
            for (identity,) in store.execute("SELECT identity FROM identity"):
                return str(identity)
    raise StoreError("the home folder has published nothing to Kafka yet", hint="serve it first")


def _create(client: Mapping[str, Any], name: str, seconds: float) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient(dict(client))
    try:
        if not _is_there(admin, name, seconds):
            config = {"max.message.bytes": str(LARGEST_MESSAGE)}
            made = admin.create_topics([NewTopic(name, 1, -1, config=config)], request_timeout=seconds)
            try:
                made[name].result(seconds)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            until = time.monotonic() + seconds
            while not _is_there(admin, name, seconds):
                if time.monotonic() > until:
                    raise away()
                time.sleep(0.05)
    except (KafkaException, TimeoutError) as error:
        raise away(error) from None


def _is_there(admin: AdminClient, name: str, seconds: float) -> bool:
    """Whether the topic is there, and a broker leads it."""
    known = admin.list_topics(name, timeout=seconds).topics.get(name)
    if known is None or known.error is not None or PARTITION not in known.partitions:  # it is just being created
        return False
    return known.partitions[PARTITION].leader >= 0


def away(error: Exception | None = None) -> Unavailable:
    """An error of Kafka's client in our words; its own text names brokers."""
    why = getattr(error.args[0], "name", lambda: "")() if error is not None and error.args else ""
    return Unavailable(
        f"cannot write published tuples: Kafka does not take them{f' ({why})' if why else ''}",
        hint="send them again later, with the same sequence number",
    )
