"""Passwords and keys: argon2 for people, Ed25519 public keys for senders (only stored so far)."""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64encode
from functools import cached_property
from typing import TYPE_CHECKING

from headgate.errors import Conflict

if TYPE_CHECKING:  # imported where passwords and keys are used: most commands use none
    from argon2 import PasswordHasher

MIN_PASSWORD = 8
MAX_PASSWORD = 1024


class Passwords:
    """Hashes with argon2's recommended cost; tests pass a cheaper hasher."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._given = hasher

    @cached_property
    def _hasher(self) -> PasswordHasher:
        from argon2 import PasswordHasher

        return self._given or PasswordHasher()

    @cached_property
    def _nobody(self) -> str:
        """A hash that no password has: as costly to verify as any other, with random bytes as its result."""
        from argon2.low_level import ARGON2_VERSION

        x = self._hasher
        salt, result = (b64encode(secrets.token_bytes(n)).rstrip(b"=").decode() for n in (x.salt_len, x.hash_len))
        cost = f"m={x.memory_cost},t={x.time_cost},p={x.parallelism}"
        return f"$argon2{x.type.name.lower()}$v={ARGON2_VERSION}${cost}${salt}${result}"

    def hash(self, password: str) -> str:
        if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
            raise Conflict(f"a password must have {MIN_PASSWORD} to {MAX_PASSWORD} characters")
        return self._hasher.hash(password)

    def verify(self, stored: str, password: str) -> bool:
        """Without a stored hash, does the same work and answers no: a user who does not exist takes no less time than
        one who does."""
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            proved = self._hasher.verify(stored or self._nobody, password[:MAX_PASSWORD])
            return proved and bool(stored) and len(password) <= MAX_PASSWORD
        except (VerificationError, InvalidHashError, UnicodeEncodeError):
            return False


def new_token() -> str:
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """Tokens are random, so a plain hash is enough to keep them out of the store."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def read_public_key(text: str) -> str:
    """An Ed25519 public key in OpenSSH or PEM form, in its canonical OpenSSH form."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
        load_ssh_public_key,
    )

    data = text.strip().encode()
    try:
        key = load_ssh_public_key(data) if data.startswith(b"ssh-") else load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise Conflict("this is not a public key", hint="OpenSSH form (ssh-ed25519 ...) or PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise Conflict("only Ed25519 public keys are accepted")
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
