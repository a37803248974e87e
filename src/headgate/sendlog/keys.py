"""Keys, and the certificate authority that vouches for them (paper 003, section 5.2.1).

A level of `says` is a scheme: none, HMAC with a key of two principals, or a signature (Ed25519, or RSA as in the
paper). Public keys are fetched from the authority when they are first needed, checked against its signature, and kept.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa

from headgate.errors import HeadgateError
from headgate.sendlog.values import ValueFault, decoded, encoded

LEVELS = {"none": 0, "hmac": 1, "ed25519": 2, "rsa": 2}
_RSA_BITS = 2048
PrivateKey = ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
PublicKey = ed25519.Ed25519PublicKey | rsa.RSAPublicKey


def new_key(scheme: str) -> PrivateKey:
    """A key to sign with; principals that use MACs or nothing hold an Ed25519 key too, for higher levels."""
    if scheme == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    return ed25519.Ed25519PrivateKey.generate()


def sign(key: PrivateKey, data: bytes) -> bytes:
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(data)
    return key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def verifies(key: PublicKey, signature: bytes, data: bytes) -> bool:
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, data)
        else:
            key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def private_bytes(key: PrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, plain)


def private_key(data: bytes) -> PrivateKey:
    key = serialization.load_der_private_key(data, None)
    if not isinstance(key, ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey):
        raise HeadgateError("this key is neither Ed25519 nor RSA")
    return key


def public_bytes(key: PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class Certificate:
    """The authority's word that a key is a principal's."""

    principal: str
    key: bytes
    serial: int
    signature: bytes

    def signed_part(self) -> bytes:
        return b"sendlog certificate\0" + encoded([self.principal, base64.b64encode(self.key).decode(), self.serial])

    def to_bytes(self) -> bytes:
        key, signature = (base64.b64encode(x).decode() for x in (self.key, self.signature))
        return encoded([self.principal, key, self.serial, signature])

    @classmethod
    def from_bytes(cls, data: bytes) -> Certificate:
        try:
            principal, key, serial, signature = decoded(data)
            return cls(str(principal), base64.b64decode(key), int(serial), base64.b64decode(signature))
        except (ValueError, TypeError):
            raise ValueFault("these bytes are no certificate") from None


class Authority:
    """Certifies keys, hands out keys for MACs, and takes certificates back."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._key = (
            ed25519.Ed25519PrivateKey.from_private_bytes(secret) if secret else ed25519.Ed25519PrivateKey.generate()
        )
        self._secret = hashlib.sha256(self._key.private_bytes_raw()).digest()
        self._issued: dict[str, Certificate] = {}
        self._revoked: set[str] = set()
        self.asked = 0

    @property
    def public_key(self) -> ed25519.Ed25519PublicKey:
        return self._key.public_key()

    def certify(self, principal: str, key: PublicKey) -> Certificate:
        """One certificate for a principal: a second key for the same name is refused."""
        if principal in self._issued:
            raise HeadgateError(
                f"cannot certify `{principal}`: this principal already has a key", hint="revoke it first"
            )
        bare = Certificate(principal, public_bytes(key), len(self._issued) + 1, b"")
        made = Certificate(principal, bare.key, bare.serial, self._key.sign(bare.signed_part()))
        self._issued[principal] = made
        return made

    def fetch(self, principal: str) -> bytes | None:
        """What anybody may ask for; None for a principal without a valid certificate."""
        self.asked += 1
        found = self._issued.get(principal)
        return found.to_bytes() if found is not None and principal not in self._revoked else None

    def revoke(self, principal: str) -> None:
        self._revoked.add(principal)

    def mac_key(self, one: str, other: str) -> bytes:
        """The key of two principals; the authority tells it to these two only."""
        return hmac.digest(self._secret, encoded(sorted((one, other))), "sha256")

    @property
    def secret(self) -> bytes:
        """The authority's own key: whoever has it is the authority."""
        return self._key.private_bytes_raw()

    def enrol(self, principal: str, scheme: str = "ed25519", key: PrivateKey | None = None) -> KeyRing:
        """A key, new unless it is given, with its certificate: what a principal is set up with."""
        key = key or new_key(scheme)
        self.certify(principal, key.public_key())
        return KeyRing(principal, key, self.public_key, self.fetch, lambda peer: self.mac_key(principal, peer))


class KeyRing:
    """One principal's own key, and the keys of others as they become known."""

    def __init__(
        self,
        principal: str,
        key: PrivateKey,
        authority: ed25519.Ed25519PublicKey,
        fetch: Callable[[str], bytes | None],
        mac_key: Callable[[str], bytes],
    ) -> None:
        self.principal = principal
        self._key = key
        self._authority = authority
        self._fetch = fetch
        self._mac_key = mac_key
        self._public: dict[str, PublicKey] = {}
        self._shared: dict[str, bytes] = {}
        self.fetched = 0

    @property
    def signature_scheme(self) -> str:
        return "ed25519" if isinstance(self._key, ed25519.Ed25519PrivateKey) else "rsa"

    def tag(self, scheme: str, to: str, data: bytes) -> bytes:
        """What authenticates `data` for `to`: nothing, a MAC or a signature."""
        if scheme == "none":
            return b""
        if scheme == "hmac":
            return hmac.digest(self._mac(to), data, "sha256")
        return sign(self._key, data)

    def authentic(self, scheme: str, speaker: str, tag: bytes, data: bytes) -> bool:
        """Whether `speaker` made this tag for us; what cannot be decided is not."""
        if scheme == "none":
            return tag == b""
        if scheme == "hmac":
            return hmac.compare_digest(tag, hmac.digest(self._mac(speaker), data, "sha256"))
        key = self.public_key(speaker)
        fits = isinstance(key, ed25519.Ed25519PublicKey if scheme == "ed25519" else rsa.RSAPublicKey)
        return key is not None and fits and verifies(key, tag, data)

    def public_key(self, principal: str) -> PublicKey | None:
        """From the cache, or fetched and checked; None where the authority does not vouch for it."""
        if principal not in self._public:
            self.fetched += 1
            data = self._fetch(principal)
            key = self._certified(principal, data) if data is not None else None
            if key is None:
                return None
            self._public[principal] = key
        return self._public[principal]

    def forget(self, principal: str) -> None:
        """After a revocation: the next message makes us ask the authority again."""
        self._public.pop(principal, None)

    def _certified(self, principal: str, data: bytes) -> PublicKey | None:
        try:
            found = Certificate.from_bytes(data)
            key = serialization.load_der_public_key(found.key)
        except (HeadgateError, ValueError, UnsupportedAlgorithm):
            return None
        if found.principal != principal or not verifies(self._authority, found.signature, found.signed_part()):
            return None
        return key if isinstance(key, ed25519.Ed25519PublicKey | rsa.RSAPublicKey) else None

    def _mac(self, peer: str) -> bytes:
        if peer not in self._shared:
            self._shared[peer] = self._mac_key(peer)
        return self._shared[peer]
