"""What every request passes first: a session before anything else is looked at, a limit on its body, and safe headers.

The body of a request is read here, whole, within a size, a time and a budget that all requests share; so no handler
waits for a client, and a caller without a session makes the server read nothing but a login, which is small and has a
budget apart: strangers take nothing from those who are logged in. A sender that exceeds its rate takes nothing either:
it is refused before its body is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.access.authorizer import Principal
from headgate.errors import AuthenticationFailed, HeadgateError
from headgate.logs import failure
from headgate.protocol import SUBPROTOCOL_BEARER
from headgate.server.answers import Refused, error_answer
from headgate.server.rates import Rates
from headgate.server.settings import Settings

_SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_HTTPS = {"Strict-Transport-Security": "max-age=31536000"}
_BUDGET = 8
"""The bodies of all requests together may have this many times the largest one."""
_LOGIN_BYTES, _LOGIN_BUDGET = 64 << 10, 16 << 20
"""The largest request without a session, and all of them together."""
BEARER = "bearer "
_FAULT = 1011
"""The code with which a WebSocket is closed by a fault of the server."""


@dataclass
class BodyBudget:
    """Bytes of bodies that are held at the moment, also of those that have not arrived whole."""

    most: int
    held: int = 0


class Guard:
    """`recognise` says whose session a token is, or raises, and `use` is told that it was used; `anonymous` has the
    paths that need none; `rates` limits how fast each user publishes."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        recognise: Callable[[str], Principal],
        use: Callable[[str], None],
        anonymous: frozenset[str],
        rates: Rates,
    ) -> None:
        self._app, self._settings, self._recognise, self._anonymous = app, settings, recognise, anonymous
        self._use, self._rates = use, rates
        self._budget, self._strangers = BodyBudget(_BUDGET * settings.body_bytes), BodyBudget(_LOGIN_BUDGET)

    @property
    def held(self) -> int:
        """Bytes of the bodies of logged-in callers that are held at the moment."""
        return self._budget.held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def safely(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                if not whole:  # nobody reads the rest
                    headers["Connection"] = "close"
                for name, value in (_SAFE | (_HTTPS if scope["scheme"] == "https" else {})).items():
                    headers[name] = value
            await send(message)

        held, whole = 0, not _has_body(scope)
        budget = self._strangers if scope["path"] in self._anonymous else self._budget
        try:
            user = await self._admit(scope)
            if (refusal := self._beyond_rate(scope["path"], user)) is not None:
                whole = await self._skip(receive)
                raise refusal
            body = await self._body(scope, receive, budget)
            held, whole = len(body), True
            await self._app(scope, _replayed(body, receive), safely)
        except HeadgateError as error:
            if not begun:
                await error_answer(error)(scope, receive, safely)
        except Exception as error:
            failure("server", "a request failed", error, path=scope["path"])
            if not begun:
                fault = Refused(500, "fault", "cannot answer: the server has a fault", hint="its log says which")
                await error_answer(fault)(scope, receive, safely)
        finally:
            budget.held -= held

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket that is not opened is answered like any other request."""

        async def safely(message: Message) -> None:
            if message["type"] == "websocket.http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SAFE.items():
                    headers[name] = value
            await send(message)

        try:
            await self._admit(scope)
        except HeadgateError as error:
            await error_answer(error)(scope, receive, safely)
            return
        try:
            await self._app(scope, receive, safely)
        except Exception as error:  # its text could repeat a value, and the web server would log it
            failure("server", "a request failed", error, path=scope["path"])
            await send({"type": "websocket.close", "code": _FAULT})

    async def _admit(self, scope: Scope) -> str:
        """The user whose session it is; empty where none is needed."""
        if scope["path"] in self._anonymous:
            return ""
        token = _token(scope)
        principal = await asyncio.to_thread(self._recognise, token)
        self._use(token)
        scope["headgate_token"] = token
        return principal.user

    def _beyond_rate(self, path: str, user: str) -> Refused | None:
        if _publishes(path):
            try:
                self._rates.admit(user)
            except Refused as refusal:
                return refusal
        return None

    async def _skip(self, receive: Receive) -> bool:
        """Reads a refused request and holds nothing of it: a client that is cut off while it sends does not see why.
        Returns whether it was read to its end."""
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.body_seconds):
                while size <= self._settings.body_bytes:
                    message = await receive()
                    size += len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return True
        return False

    async def _body(self, scope: Scope, receive: Receive, budget: BodyBudget) -> bytes:
        """What it returns counts as held; what does not arrive whole is released. A body that is a little too large is
        read to its end, and nothing of it is held: a client that is cut off while it sends does not see why."""
        most = self._most(scope["path"])
        longest = most + self._settings.script_bytes
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdigit() and int(announced) > longest:
            raise _too_large(most)
        parts: list[bytes] = []
        size = held = 0
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "disconnected", "cannot read the request: its end is missing")
                    part = message.get("body", b"")
                    size += len(part)
                    if size <= most:
                        parts.append(part)
                        held += len(part)
                        budget.held += len(part)
                    if budget.held > budget.most:
                        raise Refused(
                            429, "busy", "cannot take the request: the server is busy", hint="send it again", retry=1
                        )
                    if size > longest or (size > most and not message.get("more_body")):
                        raise _too_large(most)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            budget.held -= held
            hint = f"it must arrive within {self._settings.body_seconds} seconds"
            raise Refused(408, "too_slow", "cannot read the request: it comes too slowly", hint=hint) from None
        except BaseException:
            budget.held -= held
            raise

    def _most(self, path: str) -> int:
        if path in self._anonymous:
            return min(_LOGIN_BYTES, self._settings.script_bytes)
        return self._settings.body_bytes if _publishes(path) else self._settings.script_bytes


def _publishes(path: str) -> bool:
    return path.endswith("/tuples")


def _token(scope: Scope) -> str:
    """From the header `Authorization`; a browser, which cannot set it for a WebSocket, names it among subprotocols."""
    given = Headers(scope=scope).get("authorization", "")
    if given.lower().startswith(BEARER):
        return given[len(BEARER) :].strip()
    for named in scope.get("subprotocols", ()):
        if named.startswith(SUBPROTOCOL_BEARER):
            return str(named[len(SUBPROTOCOL_BEARER) :])
    raise AuthenticationFailed("no valid session", hint="log in again")


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _too_large(most: int) -> Refused:
    return Refused(
        413, "too_large", f"cannot take the request: it has more than {most:,} bytes", hint="send it in parts"
    )


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
