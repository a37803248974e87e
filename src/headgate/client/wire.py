"""Requests to a server: one place sends them, and turns every refusal into the kind of error it was there."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from headgate.client.local import SCHEME
from headgate.errors import (
    AccessDenied,
    AuthenticationFailed,
    Conflict,
    HeadgateError,
    LabelError,
    NotFound,
    Position,
    SourceError,
    StoreError,
    TextError,
)
from headgate.home import socket_path

_SECONDS = 60
_HERE = "http://localhost"

KINDS: Mapping[str, type[HeadgateError]] = {
    "authentication_failed": AuthenticationFailed,
    "access_denied": AccessDenied,
    "not_found": NotFound,
    "conflict": Conflict,
    "text_error": TextError,
    "label_error": LabelError,
    "source_error": SourceError,
    "store_error": StoreError,
}


class Unreachable(HeadgateError):
    """The server does not answer, or another one does."""


class Malformed(HeadgateError):
    """Rows that are no tuples of the stream; `rows` names the first of them."""

    rows: list[dict[str, Any]]


class Busy(HeadgateError):
    """The server takes no more for the moment; `seconds` says when to try again."""

    seconds: float = 1.0


def error_of(answer: httpx.Response) -> HeadgateError:
    """The error that an answer reports."""
    try:
        found = json.loads(answer.read())["error"]
        kind, message, hint = found["kind"], str(found["message"]), str(found.get("hint", ""))
    except (ValueError, KeyError, TypeError):
        return HeadgateError(f"cannot understand the server's answer (status {answer.status_code})")
    position = Position(0, found["line"], found["column"]) if "line" in found else None
    if kind == "malformed":
        malformed = Malformed(message, hint=hint)
        malformed.rows = found.get("rows", [])
        return malformed
    if answer.status_code == 429:
        busy = Busy(message, hint=hint)
        busy.seconds = float(answer.headers.get("Retry-After", "1"))
        return busy
    return KINDS.get(kind, HeadgateError)(message, position=position, hint=hint)


def checked(answer: httpx.Response) -> httpx.Response:
    if answer.status_code >= 400:
        raise error_of(answer)
    return answer


def unreachable(url: str, error: Exception, *, known: bool = True) -> Unreachable:
    """`known`: whether a certificate of the server was given."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        if not known:
            return Unreachable(
                f"cannot trust the server at {url}: no certificate of it was given",
                hint='pass certificate="authority.pem", the file in `tls` of the server\'s home folder',
            )
        return Unreachable(
            f"cannot trust the server at {url}: its certificate is not the one you know",
            hint="somebody may be between you and the server; if it has a new certificate, remove the old one from "
            "servers.json in HEADGATE_CONFIG or ~/.config/headgate, or give the new one",
        )
    return Unreachable(f"cannot reach the server at {url}", hint="see that it runs, and that the address is right")


async def acheck(answer: httpx.Response) -> httpx.Response:
    if answer.status_code >= 400:
        await answer.aread()
    return checked(answer)


class _Connections:
    """What both kinds of connections to a server know: its address, and the token of the session that uses them."""

    def __init__(self, url: str, context: ssl.SSLContext | None, token: str) -> None:
        self.url, self.token = url.rstrip("/"), token
        self._known = context is not None
        self._held = ExitStack()

    def _socket(self) -> str | None:
        """The socket of a server on this machine."""
        if not self.url.startswith(SCHEME):
            return None
        return self._held.enter_context(socket_path(Path(self.url.removeprefix(SCHEME)).parent))

    def headers(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **more}

    @contextmanager
    def reaching(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, OSError) as error:
            raise unreachable(self.url, error, known=self._known) from None


class Wire(_Connections):
    def __init__(self, url: str, context: ssl.SSLContext | None, token: str) -> None:
        super().__init__(url, context, token)
        if (path := self._socket()) is not None:
            self.http = httpx.Client(base_url=_HERE, transport=httpx.HTTPTransport(uds=path), timeout=_SECONDS)
        else:
            trusted = context if context is not None else True
            self.http = httpx.Client(base_url=self.url, verify=trusted, timeout=_SECONDS)

    def close(self) -> None:
        self.http.close()
        self._held.close()

    def get(self, path: str) -> Any:
        with self.reaching():
            return checked(self.http.get(path, headers=self.headers({}))).json()

    def text(self, path: str) -> str:
        with self.reaching():
            return checked(self.http.get(path, headers=self.headers({}))).text

    def post(self, path: str, body: object) -> Any:
        with self.reaching():
            return checked(self.http.post(path, json=body, headers=self.headers({}))).json()

    def send(self, path: str, body: bytes, headers: Mapping[str, str]) -> Any:
        with self.reaching():
            return checked(self.http.post(path, content=body, headers=self.headers(headers))).json()


class AsyncWire(_Connections):
    def __init__(self, url: str, context: ssl.SSLContext | None, token: str) -> None:
        super().__init__(url, context, token)
        if (path := self._socket()) is not None:
            here = httpx.AsyncHTTPTransport(uds=path)
            self.http = httpx.AsyncClient(base_url=_HERE, transport=here, timeout=_SECONDS)
        else:
            trusted = context if context is not None else True
            self.http = httpx.AsyncClient(base_url=self.url, verify=trusted, timeout=_SECONDS)

    async def close(self) -> None:
        await self.http.aclose()
        self._held.close()

    async def get(self, path: str) -> Any:
        with self.reaching():
            return checked(await self.http.get(path, headers=self.headers({}))).json()

    async def text(self, path: str) -> str:
        with self.reaching():
            return checked(await self.http.get(path, headers=self.headers({}))).text

    async def post(self, path: str, body: object) -> Any:
        with self.reaching():
            return checked(await self.http.post(path, json=body, headers=self.headers({}))).json()

    async def send(self, path: str, body: bytes, headers: Mapping[str, str]) -> Any:
        with self.reaching():
            return checked(await self.http.post(path, content=body, headers=self.headers(headers))).json()
