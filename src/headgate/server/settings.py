"""The settings of the server and of its engine: from a file, the environment, the command; the last one named wins."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from headgate.errors import Conflict
from headgate.model.limits import SETTINGS, Limits
from headgate.server.level_settings import LEVELS, LevelUse, level_uses

_USUAL = Limits()
EXECUTIONS = ("auto", "driver", "tasks")
ARCHITECTURES = ("trusted", "replicated", "kernelized")
FILE = "server.toml"
_PREFIX = "HEADGATE_SERVE_"


@dataclass(frozen=True)
class Settings:
    """host, port: where the server listens; port 0: any free port
    tls: whether connections are encrypted; without it only this machine can connect
    certificate, key: PEM files to use instead of the server's own
    client_authority: a PEM file with the authority whose certificates log users in; empty: passwords and API keys only
    master: where Spark runs
    execution, partitions: where windows and joins are computed (`auto`, `driver`, `tasks`), and in how many parts
    script_bytes, body_bytes, body_rows: the largest request, the largest published body and its rows
    body_seconds: how long the body of a request may take to arrive
    connections: connections at the same time
    heartbeat_seconds: how often a subscriber without results gets a sign of life
    stall_seconds: how long a subscriber may take no bytes before its connection is reset
    log_bytes, log_hours: bytes of results that are kept for readers, and for how long
    sender_rows: tuples that one user may publish in a second, on average over some seconds; 0: as many as it likes
    ingress_bytes: bytes of published tuples of one stream that may wait for the engine
    kafka_servers: brokers of Kafka whose topics are the ingress log; empty: it is files in the home folder
    kafka_properties: a file with settings of Kafka's client, such as passwords, as Kafka's own tools take it
    kafka_topics: what the names of these topics begin with
    architecture: who computes for whom: `trusted`, one processor for all levels; `replicated` or `kernelized`, a
        processor for each level, in a process of its own
    level_memory, level_backlog: what one level may use, if levels have processors of their own: bytes of memory (0: no
        limit), and bytes of tuples that may wait for it
    levels: what single levels may use of that, and their shares of the processors, by level
    view_tuples, view_rows, view_bytes, text_bytes: the limits of one view (`Limits`); their defaults follow the memory
        of the machine. `headgate run` goes by them too
    """

    host: str = "127.0.0.1"
    port: int = 8443
    tls: bool = True
    certificate: str = ""
    key: str = ""
    client_authority: str = ""
    master: str = "local[2]"
    execution: str = "auto"
    partitions: int = 8
    script_bytes: int = 1 << 20
    body_bytes: int = 16 << 20
    body_rows: int = 100_000
    body_seconds: int = 30
    connections: int = 4096
    heartbeat_seconds: int = 15
    stall_seconds: int = 60
    log_bytes: int = 1 << 30
    log_hours: int = 168
    sender_rows: int = 0
    ingress_bytes: int = 256 << 20
    kafka_servers: str = ""
    kafka_properties: str = ""
    kafka_topics: str = "headgate"
    architecture: str = "trusted"
    level_memory: int = 0
    level_backlog: int = 1 << 30
    view_tuples: int = _USUAL.tuples
    view_rows: int = _USUAL.rows
    view_bytes: int = _USUAL.bytes
    text_bytes: int = _USUAL.text
    levels: Mapping[str, LevelUse] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.tls and self.host not in ("127.0.0.1", "::1", "localhost"):
            raise Conflict("cannot serve without TLS: the server would listen beyond this machine", hint="use TLS")
        if bool(self.certificate) != bool(self.key):
            raise Conflict("cannot use the certificate: certificate and key are given together")
        if self.architecture not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise Conflict(f"there is no architecture `{self.architecture}`", hint=f"there are {known}")
        if self.execution not in EXECUTIONS:
            raise Conflict(f"there is no execution `{self.execution}`", hint=f"there are {', '.join(EXECUTIONS)}")
        if self.execution == "tasks" and self.architecture != "trusted":
            raise Conflict(
                f"cannot compute in tasks with architecture `{self.architecture}`: levels have processes of their own",
                hint="use `execution = auto` or `driver`",
            )
        if self.kafka_properties and not self.kafka_servers:
            raise Conflict("cannot use `kafka_properties`: no brokers are given", hint="set `kafka_servers`")
        if not self.partitions:
            raise Conflict("cannot compute in 0 partitions", hint="8 is usual")
        if self.client_authority and not self.tls:
            raise Conflict("cannot recognise certificates of clients: that needs TLS")

    @property
    def limits(self) -> Limits:
        return Limits(**{limit: getattr(self, setting) for limit, setting in SETTINGS.items()})


def read_settings(home: Path, given: Mapping[str, object]) -> Settings:
    """The settings of the file `server.toml` in the home folder, overridden by HEADGATE_SERVE_..., overridden by the
    command."""
    found = {name: value for chosen in _chosen(home, given).values() for name, value in chosen.items()}
    levels = level_uses(found.pop(LEVELS, {}))
    known = {field.name: type(field.default) for field in fields(Settings) if field.name != LEVELS}
    values = {name: _value(name, value, known) for name, value in found.items()}
    return replace(Settings(), levels=levels, **values)  # type: ignore[arg-type]


def origins(home: Path, given: Mapping[str, object]) -> dict[str, str]:
    """Where each setting comes from that is not the default."""
    return {name: origin for origin, chosen in _chosen(home, given).items() for name in chosen}


def _chosen(home: Path, given: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """What was chosen, by where; a later one overrides an earlier one."""
    found: dict[str, object] = {}
    path = home / FILE
    if path.exists():
        try:
            found |= tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError):
            raise Conflict(f"cannot read `{path}`: it is not TOML") from None
    names = [field.name for field in fields(Settings) if field.name != LEVELS]
    environment = {name: os.environ[_PREFIX + name.upper()] for name in names if _PREFIX + name.upper() in os.environ}
    command = {name: value for name, value in given.items() if value is not None}
    return {FILE: found, "the environment": dict(environment), "the command": command}


def _value(name: str, value: object, known: Mapping[str, type]) -> object:
    kind = known.get(name)
    if kind is None:
        raise Conflict(f"there is no setting `{name}`", hint=f"there are {', '.join(known)}")
    if kind is bool and isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if kind is int and isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if type(value) is not kind or (kind is int and isinstance(value, int) and value < 0):
        words = {bool: "true or false", int: "a whole number", str: "a text"}
        raise Conflict(f"cannot use the setting `{name}`: it must be {words[kind]}")
    return value
