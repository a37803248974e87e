"""The server's certificate: made at the first start, with a local authority, unless the operator gives one."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headgate.errors import StoreError
from headgate.server.settings import Settings

_YEARS = dt.timedelta(days=3650)


def tls_context(home: Path, settings: Settings) -> ssl.SSLContext:
    """TLS 1.3 only, with the given certificate or the server's own."""
    if settings.certificate:
        certificate, key = Path(settings.certificate), Path(settings.key)
    else:
        certificate, key = own_certificate(home / "tls", settings.host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError):
        raise StoreError(f"cannot use the certificate `{certificate}` with the key `{key}`") from None
    if settings.client_authority:
        try:
            context.load_verify_locations(settings.client_authority)
        except (OSError, ssl.SSLError):
            raise StoreError(
                f"cannot use the authority `{settings.client_authority}`: it is not a certificate"
            ) from None
        context.verify_mode = ssl.CERT_OPTIONAL  # a certificate that is shown must be one of that authority
    return context


def certified_user(peer: Mapping[str, Any] | None) -> str:
    """The user whom a client's certificate names: its one common name. Empty: there is no certificate, or it names
    nobody."""
    names = [value for part in (peer or {}).get("subject", ()) for kind, value in part if kind == "commonName"]
    return names[0] if len(names) == 1 else ""


def own_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """The files of certificate and key. `authority.pem` is what clients can be given beforehand."""
    certificate, key = folder / "server.pem", folder / "server.key"
    if certificate.exists() and key.exists():
        return certificate, key
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    now = dt.datetime.now(dt.UTC)
    authority_key, own_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Headgate local authority")])
    authority = (
        _begun(authority_name, authority_name, authority_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    own = (
        _begun(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Headgate")]), authority_name, own_key.public_key(), now
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write(folder / "authority.pem", authority.public_bytes(Encoding.PEM))
    _write(key, own_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    _write(certificate, own.public_bytes(Encoding.PEM))  # last: what is there is whole
    return certificate, key  # the authority's key is not kept: nobody can make another certificate with it


def _begun(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + _YEARS)
    )


def _names(host: str) -> list[x509.GeneralName]:
    names = dict.fromkeys(["localhost", socket.gethostname(), socket.getfqdn()])
    addresses = dict.fromkeys(["127.0.0.1", "::1"])
    try:
        ipaddress.ip_address(host)
        addresses[host] = None
    except ValueError:
        names[host] = None
    return [
        *(x509.DNSName(name) for name in names if name.isascii()),
        *(x509.IPAddress(ipaddress.ip_address(x)) for x in addresses),
    ]


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
