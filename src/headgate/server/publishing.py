"""Publishing: tuples of authorised senders on their way into the ingress log (paper 000, section 5.2)."""

from __future__ import annotations

import base64
import binascii
import re
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from headgate.access.definitions import PUBLISH, SIGNED
from headgate.errors import AccessDenied, Conflict
from headgate.ingress.ingress_log import IngressLog
from headgate.ingress.published import MalformedRows, TooManyRows, check_tuples, read_arrow, read_json
from headgate.ingress.sequence_numbers import Acknowledged, Producer
from headgate.model.stream import StreamDescriptor
from headgate.protocol import ARROW_STREAM, JSON_LINES, signed_message
from headgate.server.answers import Refused
from headgate.server.rates import Rates
from headgate.server.settings import Settings
from headgate.service import Headgate
from headgate.service.headgate import PublishingSession
from headgate.service.snapshots import descriptor_of

_NAME = re.compile(r"[\w.:-]{0,128}", re.ASCII)
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True)
class Published:
    """A request of a sender. `stream` is the name as written; `producer` and `sequence` tell requests apart."""

    stream: str
    name: str
    owner: str | None
    media_type: str
    body: bytes
    producer: str = ""
    sequence: str = ""
    signature: str = ""


class Publishing:
    def __init__(self, headgate: Headgate, log: IngressLog, settings: Settings, rates: Rates) -> None:
        self._headgate, self._log, self._settings, self._rates = headgate, log, settings, rates
        self._recorded: set[tuple[str, int]] = set()
        """Sessions whose publishing to a stream is on the audit trail already."""
        self.refused = 0
        """Requests that were refused for what they hold, or for a signature."""
        self._counting = threading.Lock()

    def publish(self, token: str, given: Published) -> Future[Acknowledged]:
        sender = self._sender(token, given)
        source = sender.stream.stream.input
        if source is None or source.format != PUBLISH:
            raise Conflict(
                "cannot publish to this stream: it has another source", hint="create it with `SOURCE publish`"
            )
        self._rates.admit(sender.user)  # again: other requests may have used up its share while this one arrived
        signed = dict(source.options).get(SIGNED) == "true"
        try:
            self._verify(sender, given, required=signed)
            sequence = _sequence(given)
            self._make_room(descriptor_of(sender.stream).name)
            table = self._read(descriptor_of(sender.stream), sender, given)
        except (AccessDenied, MalformedRows) as error:
            self._rates.charge(sender.user, 1)
            with self._counting:
                self.refused += 1
            self._headgate.record_refusal(token, "PUBLISH", f"stream {given.stream}", error.message)
            if isinstance(error, MalformedRows):
                rows = [{"row": x.row, "message": x.reason} for x in error.wrong.rows]
                raise Refused(400, "malformed", error.message, hint=error.hint, rows=rows) from None
            raise
        self._rates.charge(sender.user, table.num_rows)
        producer = Producer(sender.user, str(sender.level), given.producer)
        return self._log.append(descriptor_of(sender.stream).name, table, producer, sequence, for_ever=signed)

    def record_repeat(self, token: str, given: Published) -> None:
        """A sender that was not answered, or somebody who sends again what another has sent: an auditor sees which."""
        reason = f"sequence number {given.sequence} was taken before; nothing is taken again"
        self._headgate.record_refusal(token, "PUBLISH", f"stream {given.stream}", reason)

    def _make_room(self, stream: str) -> None:
        """Senders wait for an engine that is behind. They are not told whether there is a reader at all."""
        if not self._log.is_full(stream):
            return
        if stream not in self._headgate.snapshot().descriptors:
            self._log.make_room(stream)
            return
        hint = "its tuples wait to be processed; send it again later"
        raise Refused(429, "busy", "cannot take the request: the stream is full", hint=hint, retry=1)

    def _sender(self, token: str, given: Published) -> PublishingSession:
        """The permission is recorded once for each session and stream, a refusal each time."""
        sender = self._headgate.sender(token, given.name, given.owner, record=False)
        key = (sender.session, sender.stream.id)
        if key not in self._recorded:
            sender = self._headgate.sender(token, given.name, given.owner)
            if len(self._recorded) >= _MOST_REMEMBERED:
                self._recorded.clear()
            self._recorded.add(key)
        return sender

    def _read(self, descriptor: StreamDescriptor, sender: PublishingSession, given: Published) -> pa.Table:
        try:
            read = {JSON_LINES: read_json, ARROW_STREAM: read_arrow}.get(given.media_type)
            if read is None:
                kinds = f"{JSON_LINES} or {ARROW_STREAM}"
                raise Refused(415, "unknown_form", f"cannot read the request: its Content-Type must be {kinds}")
            found = read(descriptor, given.body, self._settings.body_rows)
        except TooManyRows as error:
            raise Refused(413, "too_large", error.message, hint=error.hint) from None
        check_tuples(descriptor, sender.rules, sender.level, found, int(time.time() * 1000), self._settings.limits)
        return found.table

    @staticmethod
    def _verify(sender: PublishingSession, given: Published, *, required: bool) -> None:
        """A signature must be that of one of the user's keys, over everything that the request says, with a number:
        whoever has seen a request without one could send it again."""
        if not given.signature:
            if required:
                raise AccessDenied("cannot publish: this stream takes signed requests only")
            return
        if not given.sequence:
            raise AccessDenied("cannot publish: a signed request needs a sequence number")
        message = signed_message(given.stream, sender.user, given.producer, given.sequence, given.body)
        try:
            signature = base64.b64decode(given.signature, validate=True)
        except (binascii.Error, ValueError):
            raise AccessDenied("cannot publish: the signature is not valid") from None
        for text in sender.keys:
            key = load_ssh_public_key(text.encode())
            if isinstance(key, Ed25519PublicKey):
                try:
                    key.verify(signature, message)
                    return
                except InvalidSignature:
                    continue
        raise AccessDenied("cannot publish: the signature is not valid")


def _sequence(given: Published) -> int | None:
    if not _NAME.fullmatch(given.producer):
        raise Refused(
            400, "malformed", "cannot read the name of the producer", hint="letters, digits, `_`, `.`, `:`, `-`"
        )
    if not given.sequence:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,17}", given.sequence):
        raise Refused(400, "malformed", "cannot read the sequence number", hint="it is a whole number from 1")
    return int(given.sequence)
