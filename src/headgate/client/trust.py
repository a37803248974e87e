"""Which server a client trusts: the one whose certificate it was given, or whose certificate it saw the first time."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from headgate.errors import AuthenticationFailed, Conflict


def given(certificate: Path) -> ssl.SSLContext:
    """Trusts servers whose certificate is this one or was made by the authority in this PEM file."""
    try:
        context = ssl.create_default_context(cafile=certificate)
    except (OSError, ssl.SSLError):
        raise Conflict(f"cannot use the certificate `{certificate}`: it is not a PEM file") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def pinned(certificate: str) -> ssl.SSLContext:
    """Trusts exactly this certificate (PEM), whatever names stand in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificate)
    return context


def seen(url: str) -> str:
    """The certificate that a server shows, as PEM; nothing vouches for it yet."""
    parts = urlsplit(url)
    try:
        return ssl.get_server_certificate((parts.hostname or "", parts.port or 443), timeout=10)
    except (OSError, ssl.SSLError, ValueError):
        raise AuthenticationFailed(
            f"cannot reach the server at {url}", hint="see that it runs, and that the address is right"
        ) from None


def fingerprint(certificate: str) -> str:
    """The digest by which people compare certificates."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest().upper()
    return ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))
