"""Checks that the master of a standalone cluster answers, before Spark is started.

Spark itself tries for more than a minute and then reports little. The check requests a file that the master does not
have, in Spark's own RPC protocol, and expects the refusal.
"""

from __future__ import annotations

import re
import socket
import struct
import time

from headgate.errors import HeadgateError

ANSWERS_WITHIN = 10.0
"""Seconds, for all hosts of the master together."""
_STANDALONE = re.compile(r"spark://(?P<places>.*)")
_PLACE = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>[0-9]{1,5})")
_ASKED_FOR = b"/files/headgate"
_REQUEST = struct.pack(">qbi", 8 + 1 + 4 + len(_ASKED_FOR), 6, len(_ASKED_FOR)) + _ASKED_FOR
_HEADER = struct.Struct(">qb")
_REFUSAL = 8  # Spark's message type StreamFailure: there is no such file
_SECURED = b"\x15\x03"  # a TLS alert: the master speaks TLS only; Spark has the keys


def check_answers(master: str) -> None:
    """Raises an error if no host of a standalone master answers. Other masters (`local[2]`, `yarn`, `k8s://`) have no
    such protocol and are left to Spark."""
    standalone = _STANDALONE.fullmatch(master)
    if standalone is None:
        return
    places = standalone["places"].split(",")
    found = [place for place in map(_PLACE.fullmatch, places) if place and int(place["port"]) < 65536]
    if len(found) < len(places):
        raise HeadgateError(f"cannot use master `{master}`", hint="a standalone master is written spark://HOST:PORT")
    why = ""
    for place in found:
        try:
            if _answers(place["host"].strip("[]"), int(place["port"]), ANSWERS_WITHIN / len(found)):
                return
            why = "what is there is no master of Spark's"
        except OSError as error:
            why = error.strerror or str(error)
    hint = "look whether it runs there and can be reached, or run without `--master` on this machine"
    raise HeadgateError(f"Spark's master `{master}` does not answer: {why}", hint=hint)


def _answers(host: str, port: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    with socket.create_connection((host, port), seconds) as connection:
        connection.sendall(_REQUEST)
        answer = b""
        while len(answer) < _HEADER.size and not answer.startswith(_SECURED):
            connection.settimeout(max(0.01, until - time.monotonic()))
            more = connection.recv(_HEADER.size)
            if not more:
                return False
            answer += more
    return answer.startswith(_SECURED) or _HEADER.unpack(answer[: _HEADER.size])[1] == _REFUSAL
