"""Certificates of clients: a user whom one names logs in without a password, and nobody else does."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conftest import PASSWORD
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headgate.errors import Conflict, StoreError
from headgate.server.certificates import tls_context
from headgate.server.settings import Settings
from server.serving import Server, served

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


class Authority:
    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.path = folder / f"{name}.pem"
        made = self._made(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
        self.path.write_bytes(made.public_bytes(Encoding.PEM))

    def _made(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        constraints: x509.BasicConstraints,
        days: int = 1,
        use: x509.ObjectIdentifier = CLIENT,
    ) -> x509.Certificate:
        end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - dt.timedelta(days=2))
            .not_valid_after(end)
            .add_extension(constraints, critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def certificate(self, *names: str, days: int = 1, use: x509.ObjectIdentifier = CLIENT) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, x) for x in names])
        made = self._made(name, key.public_key(), x509.BasicConstraints(ca=False, path_length=None), days, use)
        path = self._folder / f"{self.path.stem}-{'-'.join(names)}-{days}-{use.dotted_string}.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(made.public_bytes(Encoding.PEM) + secret)
        return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "beds")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("served"), limits={"client_authority": str(authority.path)}) as found:
        yield found


def login(server: Server, certificate: Path | None, user: str, password: str | None = None) -> httpx.Response:
    context = ssl.create_default_context(cafile=server.home / "tls" / "authority.pem")
    if certificate is not None:
        context.load_cert_chain(certificate)
    body = {"user": user, "level": "U"} | ({} if password is None else {"password": password})
    with httpx.Client(base_url=server.address, verify=context, timeout=20) as client:
        return client.post("/v1/login", json=body)


def test_a_certified_sender_logs_in_and_publishes_without_a_password(server: Server, authority: Authority) -> None:
    answer = login(server, authority.certificate("sam"), "sam")
    assert answer.status_code == 200 and answer.json()["user"] == "sam"
    server.tokens["certified@U"] = answer.json()["token"]
    assert server.publish({"pat": 1, "rate": 1, "policy": "nurse"}, user="certified").status_code == 200
    records = server.run("SHOW AUDIT LIMIT 50")[0]["rows"]
    assert any(row[1] == "sam" and row[4] == "LOGIN" and "certificate" in row[7] for row in records)


def test_passwords_go_on_working_with_and_without_a_certificate(server: Server, authority: Authority) -> None:
    assert login(server, None, "ned", PASSWORD).status_code == 200
    assert login(server, authority.certificate("sam"), "ned", PASSWORD).status_code == 200


@pytest.mark.parametrize("names", [("ned",), ("root",), ("sam", "ned"), ("nosuch",), ("SAM",)])
def test_a_certificate_logs_nobody_in_but_the_user_it_names(
    server: Server, authority: Authority, names: tuple[str, ...]
) -> None:
    for user in {"sam", "ned", "root", "nosuch"} - ({names[0]} if len(names) == 1 and names[0] != "nosuch" else set()):
        answer = login(server, authority.certificate(*names), user)
        assert answer.status_code == 401 and answer.json()["error"]["message"] == "login refused"


def test_a_wrong_password_is_not_mended_by_a_certificate(server: Server, authority: Authority) -> None:
    assert login(server, authority.certificate("dora"), "dora", "wrong password").status_code == 401
    assert login(server, authority.certificate("dora"), "dora", "").status_code == 401


def test_without_certificate_or_password_nobody_logs_in(server: Server) -> None:
    assert login(server, None, "sam").status_code == 401


def test_a_locked_user_has_no_use_of_a_certificate(server: Server, authority: Authority) -> None:
    server.run(f"CREATE USER bed9 PASSWORD '{PASSWORD}'")
    certificate = authority.certificate("bed9")
    token = login(server, certificate, "bed9").json()["token"]
    server.run("ALTER USER bed9 LOCK")
    assert login(server, certificate, "bed9").status_code == 401
    with server.client() as client:
        assert client.get("/v1/session", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_certificates_of_others_of_yesterday_and_of_servers_are_not_let_in(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").certificate("sam")
    own = server.home / "tls" / "server.pem"
    key = (server.home / "tls" / "server.key").read_bytes()
    mixed = tmp_path / "own.pem"
    mixed.write_bytes(own.read_bytes() + key)
    bad = [stranger, mixed, authority.certificate("sam", days=-1), authority.certificate("sam", use=SERVER)]
    for certificate in bad:
        with pytest.raises((httpx.HTTPError, ssl.SSLError, OSError)):
            login(server, certificate, "sam")


def test_an_authority_that_cannot_be_used_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="that needs TLS"):
        Settings(tls=False, client_authority="x.pem")
    (tmp_path / "x.pem").write_text("nonsense")
    with pytest.raises(StoreError, match="it is not a certificate"):
        tls_context(tmp_path, Settings(client_authority=str(tmp_path / "x.pem")))
