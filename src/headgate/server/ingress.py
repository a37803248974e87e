"""Which ingress log the settings choose: files in the home folder, or topics of Kafka.

A home folder keeps the kind with which its first tuples were published: the engine's progress is that of one source.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from headgate.errors import Conflict
from headgate.ingress.folder_log import STORE as OF_FILES
from headgate.ingress.folder_log import FolderLog, folder_source
from headgate.ingress.ingress_log import IngressLog, PublishedSource
from headgate.ingress.topics import STORE as OF_TOPICS
from headgate.ingress.topics import Brokers, Topics, stored_identity
from headgate.server.settings import Settings


def open_log(folder: Path, settings: Settings) -> tuple[IngressLog, PublishedSource]:
    """The log of the server, and where its engine reads it."""
    check_kind(folder, settings)
    if not settings.kafka_servers:
        return FolderLog(folder, settings.ingress_bytes), folder_source(folder)
    from headgate.ingress.topic_log import TopicLog  # with Kafka's client, which not everybody has

    log = TopicLog(folder, _brokers(settings))
    return log, log.topics.source


def published_source(folder: Path, settings: Settings) -> PublishedSource:
    """Where a replay reads the log, while there is no server."""
    check_kind(folder, settings)
    if not settings.kafka_servers:
        return folder_source(folder)
    return Topics(_brokers(settings), stored_identity(folder)).source


def _brokers(settings: Settings) -> Brokers:
    brokers = Brokers(settings.kafka_servers, settings.kafka_properties, settings.kafka_topics)
    brokers.check()
    return brokers


def check_kind(folder: Path, settings: Settings) -> None:
    """Refuses to go on with tuples of the other kind: they would not be read any more."""
    chosen, other = (OF_TOPICS, OF_FILES) if settings.kafka_servers else (OF_FILES, OF_TOPICS)
    query = "SELECT number FROM latest WHERE number > 0" if settings.kafka_servers else "SELECT upto FROM topics"
    if not (folder / other).exists():
        return
    with closing(sqlite3.connect(folder / other)) as store:
        try:
            is_used = store.execute(query).fetchone() is not None
        except sqlite3.OperationalError:
            is_used = False  # it was never begun
    if is_used:
        place, hint = ("Kafka", "without `kafka_servers`") if chosen == OF_TOPICS else ("files", "with `kafka_servers`")
        raise Conflict(
            f"cannot publish into {place}: the home folder has published tuples elsewhere",
            hint=f"serve {hint} as before, or with another home folder",
        )
