"""The options of Kafka sources and sinks, in our words; Spark gets its own.

The list is closed, as for text files: an unknown option is an error, because its author expects an effect. Passwords
are among the values, so no error repeats a value, and `properties` keeps them in a file that only the engine reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.errors import SourceError
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type

KAFKA = "kafka"
MOST_MESSAGES = 200_000
"""Messages of one batch, unless `maxOffsetsPerTrigger` says otherwise. Results do not depend on this number."""
VALUES = ("json", "arrow")
STREAMING = frozenset({"maxOffsetsPerTrigger", "startingOffsets"})
"""Options that a table does not have: it is the whole topic."""

_OF_MESSAGES = {
    "key": (Type.BINARY, Type.STRING),
    "timestamp": (Type.TIMESTAMP,),
    "partition": (Type.INT,),
    "offset": (Type.BIGINT,),
}
"""What a message has besides its value, and the types of columns that may hold it."""
HEADER = "header."
_OF_HEADERS = (Type.STRING, Type.BINARY)
_OWN = frozenset({"servers", "topic", "format", "starting", "properties", *_OF_MESSAGES})
_OF_SPARK = {"maxoffsetspertrigger": "maxOffsetsPerTrigger", "failondataloss": "failOnDataLoss"}
_CLIENT = (
    *("security.protocol", "sasl.", "ssl.", "fetch.", "socket.", "reconnect.", "retry.", "client.", "isolation.level"),
    *("max.partition.fetch.bytes", "request.timeout.ms", "default.api.timeout.ms", "metadata.max.age.ms"),
)
"""Settings of Kafka's client that a source may have, by the beginning of their names; none names a class."""
_LOGIN = "sasl.jaas.config"
_LOGIN_MODULES = tuple(
    f"org.apache.kafka.common.security.{x}LoginModule"
    for x in ("plain.Plain", "scram.Scram", "oauthbearer.OAuthBearer")
)
_LARGEST_PROPERTIES = 1 << 16
_USUAL = {
    "kafka.isolation.level": "read_committed",  # messages of an aborted transaction are no tuples
    "kafka.fetch.max.wait.ms": "20",  # behind the last message of a transaction stands its end: readers wait for that
    "kafka.request.timeout.ms": "10000",  # so that a broker that is gone is noticed within seconds
    "kafka.default.api.timeout.ms": "15000",
}


@dataclass(frozen=True)
class Topic:
    """A topic, and how its messages become tuples. `repr` leaves the options out: one may be a password.

    format: what values are, one of VALUES
    parts: the columns that do not come from the value: by column the part of the message (`key`, `header.x`)
    given: the options of the source
    """

    descriptor: StreamDescriptor
    format: str
    parts: Mapping[str, str]
    given: Mapping[str, str] = field(repr=False)

    @property
    def value_columns(self) -> tuple[tuple[str, Type], ...]:
        return tuple((name, type_) for name, type_ in self.descriptor.columns if name not in self.parts)

    @property
    def headers(self) -> bool:
        return any(part.startswith(HEADER) for part in self.parts.values())

    def spark_options(self) -> dict[str, str]:
        """The options of Spark's reader; reads the file of properties, which may have changed."""
        given = self.given
        found = _USUAL | {"maxOffsetsPerTrigger": str(MOST_MESSAGES)} | client_options(given)
        found |= {_OF_SPARK[name]: value for name, value in given.items() if name in _OF_SPARK}
        found |= {"subscribe": given["topic"], "startingOffsets": given.get("starting", "earliest")}
        return found | ({"includeHeaders": "true"} if self.headers else {})


def topic_of(descriptor: StreamDescriptor, options: Mapping[str, str]) -> Topic:
    """Reads the options of a source."""
    given = {_folded(name): value for name, value in options.items()}
    for name in given:
        known = name in _OWN or name in _OF_SPARK or name.startswith(HEADER) or _of_client(name)
        if not known:
            hint = f"there are {', '.join(sorted(_OWN))}, {HEADER}NAME, {', '.join(_OF_SPARK.values())} and kafka.*"
            raise SourceError(f"`{KAFKA}` has no option `{name}` here", hint=hint)
    for name in ("servers", "topic"):
        if not given.get(name):
            raise SourceError(f"the option `{name}` is missing")
    format_ = given.get("format", VALUES[0])
    if format_ not in VALUES:
        raise SourceError("the option `format` is none of the formats of values", hint=f"there are {', '.join(VALUES)}")
    if given.get("starting", "earliest") not in ("earliest", "latest"):
        raise SourceError("the option `starting` is neither earliest nor latest")
    found = Topic(descriptor, format_, _parts(descriptor, given), given)
    if not found.value_columns and format_ == "arrow":
        raise SourceError("no column of the stream comes from the value", hint="leave the option `format` out")
    return found


def client_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark that say where the brokers are and how to log in: `servers`, `properties`, `kafka.*`."""
    found: dict[str, str] = {}
    if "properties" in given:
        found |= {f"kafka.{name}": value for name, value in _read_properties(given["properties"]).items()}
    found |= {name: value for name, value in given.items() if name.startswith("kafka.")}
    if "servers" in given:
        found["kafka.bootstrap.servers"] = given["servers"]
    _check_login(found)
    return found


def _folded(name: str) -> str:
    """Options ignore case, but headers have the names that their senders gave them."""
    return HEADER + name[len(HEADER) :] if name.lower().startswith(HEADER) else name.lower()


def _of_client(name: str) -> bool:
    return name.startswith(tuple(f"kafka.{beginning}" for beginning in _CLIENT)) and not name.endswith(".class")


def _parts(descriptor: StreamDescriptor, given: Mapping[str, str]) -> dict[str, str]:
    """The columns that parts of messages other than the value go to."""
    columns = {name.casefold(): (name, type_) for name, type_ in descriptor.columns}
    parts: dict[str, str] = {}
    for part in sorted(x for x in given if x in _OF_MESSAGES or x.startswith(HEADER)):
        name, type_ = columns.get(given[part].casefold(), (given[part], None))
        types = _OF_MESSAGES.get(part, _OF_HEADERS)
        if type_ is None:
            raise SourceError(f"the option `{part}` names `{name}`, which is no column of the stream")
        if type_ not in types:
            raise SourceError(f"the option `{part}` names `{name}`, which is {type_}, not {' or '.join(types)}")
        if name in parts:
            raise SourceError(f"the column `{name}` is named by two options, `{parts[name]}` and `{part}`")
        parts[name] = part
    return parts


def _read_properties(path: str) -> dict[str, str]:
    """A file as Kafka's own tools take it (`client.properties`): NAME=VALUE a line, # begins a comment. Whoever names
    it need not be permitted to read it: errors repeat nothing of what is in it."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its writer
            raise SourceError(f"cannot read the properties `{path}`: it is not a file")
        with open(path, "rb") as file:
            lines = [line.strip() for line in file.read(_LARGEST_PROPERTIES).decode().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read the properties `{path}`: {type(error).__name__}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            if not _of_client(f"kafka.{name.strip()}"):
                raise SourceError(f"cannot use the properties `{path}`: line {number} is no setting that a source has")
            found[name.strip()] = value.strip()
    return found


def _check_login(options: Mapping[str, str]) -> None:
    """The setting for logins names a class, which Kafka's client loads: only Kafka's own."""
    for name, value in options.items():
        if name.endswith(_LOGIN) and value.split()[:1] not in [[module] for module in _LOGIN_MODULES]:
            raise SourceError(f"the setting `{_LOGIN}` does not begin with one of Kafka's own login modules")
