"""Passwords and keys: argon2 for people, Ed25519 public keys for senders (only stored so far)."""

from __future__ import annotations

import hashlib
import secrets

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)

from headgate.errors import Conflict

MIN_PASSWORD = 8
MAX_PASSWORD = 1024


class Passwords:
    """Hashes with argon2's recommended cost; tests pass a cheaper hasher."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._nobody = self._hasher.hash(secrets.token_hex(16))

    def hash(self, password: str) -> str:
        if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
            raise Conflict(f"a password must have {MIN_PASSWORD} to {MAX_PASSWORD} characters")
        return self._hasher.hash(password)

    def verify(self, stored: str, password: str) -> bool:
        """Without a stored hash, does the same work for a random password, and answers no."""
        try:
            proved = self._hasher.verify(stored or self._nobody, password[:MAX_PASSWORD])
            return proved and bool(stored) and len(password) <= MAX_PASSWORD
        except (VerificationError, InvalidHashError, UnicodeEncodeError):
            return False

    def outdated(self, stored: str) -> bool:
        return self._hasher.check_needs_rehash(stored)


def new_token() -> str:
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """Tokens are random, so a plain hash is enough to keep them out of the store."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def read_public_key(text: str) -> str:
    """An Ed25519 public key in OpenSSH or PEM form, in its canonical OpenSSH form."""
    data = text.strip().encode()
    try:
        key = load_ssh_public_key(data) if data.startswith(b"ssh-") else load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise Conflict("this is not a public key", hint="OpenSSH form (ssh-ed25519 ...) or PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise Conflict("only Ed25519 public keys are accepted")
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
