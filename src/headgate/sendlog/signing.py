"""Signed statements as texts: what somebody signs in one place and hands in at another, where only the key is known.

The form is that of messages between nodes (`packets`), addressed to a policy. Sender, address and a number that only
grows are signed with each statement, so that none can be attributed to another, moved to another policy, or used again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from headgate.sendlog import keys
from headgate.sendlog.packets import DELETE, INSERT, Header, Packet, Statement, pack, proven, unpack
from headgate.sendlog.values import Row, ValueFault

SCHEME = "ed25519"
MAX_MESSAGE = 64_000
_NOT_SIGNED = "this is not a signed statement"
Fact = tuple[str, Row]


@dataclass(frozen=True)
class PrivateKey:
    """Signs as one principal (a packets.Signer)."""

    key: Ed25519PrivateKey

    def tag(self, scheme: str, to: str, data: bytes) -> bytes:  # noqa: ARG002 - a signature is the same for everyone
        return keys.sign(self.key, data)

    def public_text(self) -> str:
        """The public key in OpenSSH form, as `ALTER USER ... ADD KEY` takes it."""
        form = serialization.PublicFormat.OpenSSH
        return self.key.public_key().public_bytes(serialization.Encoding.OpenSSH, form).decode()

    def to_bytes(self) -> bytes:
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, form, plain)

    @classmethod
    def of(cls, data: bytes) -> PrivateKey:
        try:
            key = serialization.load_pem_private_key(data, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ValueFault("this is not a private key", hint="make one with `headgate sendlog key`") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueFault("only Ed25519 keys sign statements")
        return cls(key)

    @classmethod
    def new(cls) -> PrivateKey:
        return cls(Ed25519PrivateKey.generate())


@dataclass(frozen=True)
class PublicKey:
    """Checks signatures by one key, whoever is said to have signed (a packets.Verifier)."""

    key: Ed25519PublicKey

    @classmethod
    def of(cls, text: str) -> PublicKey:
        """From OpenSSH form."""
        key = serialization.load_ssh_public_key(text.encode())
        if not isinstance(key, Ed25519PublicKey):
            raise ValueFault("only Ed25519 keys sign statements")
        return cls(key)

    def authentic(self, scheme: str, speaker: str, tag: bytes, data: bytes) -> bool:  # noqa: ARG002
        return scheme == SCHEME and keys.verifies(self.key, tag, data)


def signed(
    key: PrivateKey, sender: str, address: str, number: int, facts: Sequence[Fact], *, retract: bool = False
) -> str:
    """`sender says` these facts, or takes them back, to the policy with this address. `number` must be larger than any
    that this key has signed for this policy before."""
    header = Header(sender, 0, address, 0, number)
    op = DELETE if retract else INSERT
    data = pack(key, SCHEME, header, [Statement(op, name, sender, row) for name, row in facts])
    return base64.urlsafe_b64encode(data).decode()


def read(text: str) -> Packet:
    """What `signed` wrote; a ValueFault for anything else. Nothing of it is believed yet."""
    if len(text) > MAX_MESSAGE:
        raise ValueFault(f"a signed statement must not be longer than {MAX_MESSAGE:,} characters")
    try:
        packet = unpack(base64.b64decode("".join(text.split()), altchars=b"-_", validate=True))
    except (ValueFault, binascii.Error, ValueError):
        raise ValueFault(_NOT_SIGNED, hint="hand in what `headgate sendlog sign` printed") from None
    if packet.scheme != SCHEME:
        raise ValueFault(_NOT_SIGNED, hint="statements are signed with Ed25519")
    return packet


def signer(packet: Packet, known: Iterable[str]) -> str | None:
    """The one of these public keys that signed the message, in OpenSSH form; None if none did."""
    return next((text for text in known if packet.authentic(PublicKey.of(text))), None)


def verified(proof: Any, key: str, address: str, speaker: str, fact: Fact) -> bool:
    """Whether a proof of one statement proves this one: signed by this key, to this address, about this fact."""
    try:
        found = proven(PublicKey.of(key), proof)
        to = proof[1][2]
    except (ValueError, TypeError, IndexError, UnsupportedAlgorithm, ValueFault):
        return False
    return found is not None and (to, found.speaker, found.name, found.row) == (address, speaker, *fact)
