"""The operations of the server, as HTTP: each is a thin call of the facade `service.Headgate`, which decides and
records."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Query, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from headgate import __version__
from headgate.access import rows as r
from headgate.access.authorizer import shown_source
from headgate.access.permissions import Kind, Permission
from headgate.access.request import Result
from headgate.cql.parser import parse_script
from headgate.cql.reading import all_of, object_name, target
from headgate.cql.rights import permission
from headgate.egress.delivery_log import DeliveryLog, LogPosition
from headgate.egress.level_logs import LevelLogs, Logs
from headgate.egress.owner_files import last_lines
from headgate.errors import AccessDenied, Conflict, HeadgateError, NotFound, StoreError, TextError
from headgate.ingress.ingress_log import IngressLog
from headgate.labels import parse_level
from headgate.plan.expressions import Type
from headgate.protocol import EVENTS, POSITION, PRODUCER, SEQUENCE, SIGNATURE, SUBPROTOCOL
from headgate.server.answers import Refused, error_answer, headgate_error
from headgate.server.certificates import certified_user
from headgate.server.dispatch import Connection, Dispatcher
from headgate.server.engine import ServerEngine
from headgate.server.guard import BEARER, Guard
from headgate.server.metrics import Metrics
from headgate.server.positions import Positions
from headgate.server.publishing import Published, Publishing
from headgate.server.rates import Rates
from headgate.server.rendering import RENDERINGS, Lines, Rendering
from headgate.server.results import Results, ResultStream, send_over_socket
from headgate.server.settings import Settings
from headgate.service import Headgate
from headgate.service.snapshots import descriptor_of

ANONYMOUS = frozenset({"/v1/login", "/healthz", "/readyz", "/metrics", "/openapi.json"})
T = TypeVar("T")
LONGEST_POSITION = 200
LOGINS = 2
"""Passwords that are verified at the same time: each takes memory and a core."""


class Answer(BaseModel):
    """The answer to a statement: a text, or a table."""

    text: str
    columns: list[str] = []
    rows: list[list[str]] = []

    @classmethod
    def of(cls, result: Result) -> Answer:
        return cls(text=result.text, columns=list(result.columns), rows=[list(row) for row in result.rows])


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Login(_Form):
    user: str = Field(max_length=200)
    password: str | None = Field(None, max_length=10_000)
    roles: list[str] | None = Field(None, max_length=1000)
    level: str | None = Field(None, max_length=1000)


class Session(BaseModel):
    token: str
    user: str
    roles: list[str]
    level: str


class Script(_Form):
    script: str


class Asked(_Form):
    query: str
    picture: bool = False


class Explained(BaseModel):
    text: str
    picture: str = ""


class Why(_Form):
    user: str = Field(max_length=200)
    permission: str = Field(max_length=100)
    object: str = Field(max_length=1000)


class Reasons(BaseModel):
    granted: bool
    object: str
    reason: str
    details: list[str]


class Taken(BaseModel):
    """`repeat`: these tuples were taken before, with the same sequence number."""

    rows: int
    repeat: bool


@dataclass(frozen=True)
class Parts:
    """What the server is made of."""

    headgate: Headgate
    engine: ServerEngine
    log: DeliveryLog
    ingress: IngressLog
    positions: Positions
    settings: Settings
    owners: Path
    metrics_token: str = ""
    level_logs: LevelLogs | None = None
    """The logs of levels that are kept apart; None: `log` is for all levels."""

    @property
    def logs(self) -> Logs:
        return self.log if self.level_logs is None else self.level_logs


def make_app(parts: Parts) -> FastAPI:
    dispatcher = Dispatcher(parts.headgate, parts.logs, parts.positions)
    rates = Rates(parts.settings.sender_rows)
    publishing = Publishing(parts.headgate, parts.ingress, parts.settings, rates)
    metrics = Metrics(parts.engine, dispatcher, parts.logs, parts.ingress, publishing)
    operations = Operations(parts, dispatcher, metrics, publishing)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        dispatcher.start()
        parts.engine.start()
        try:
            yield
        finally:
            await asyncio.to_thread(parts.engine.stop)
            await asyncio.to_thread(dispatcher.stop)

    app = FastAPI(
        title="Headgate",
        version=__version__,
        lifespan=running,
        docs_url=None,
        redoc_url=None,
        exception_handlers={
            HeadgateError: headgate_error,
            HTTPException: _no_such_operation,
            RequestValidationError: _not_understood,
        },
    )
    operations.add_to(app)
    app.add_middleware(
        Guard,
        settings=parts.settings,
        recognise=parts.headgate.principal,
        use=dispatcher.use,
        anonymous=ANONYMOUS,
        rates=rates,
    )
    return app


async def _token(request: Request) -> str:  # else FastAPI asks a thread for it
    return str(request.scope["headgate_token"])


Token = Annotated[str, Depends(_token)]


class Operations:
    def __init__(self, parts: Parts, dispatcher: Dispatcher, metrics: Metrics, publishing: Publishing) -> None:
        self._parts, self._headgate, self._dispatcher, self._metrics = parts, parts.headgate, dispatcher, metrics
        self._publishing = publishing
        self._logins = asyncio.Semaphore(LOGINS)

    def add_to(self, app: FastAPI) -> None:
        app.post("/v1/login", tags=["session"])(self.login)
        app.post("/v1/logout", tags=["session"])(self.logout)
        app.get("/v1/session", tags=["session"])(self.session)
        app.post("/v1/statements", tags=["statements"])(self.statements)
        app.get("/v1/catalog/{what}", tags=["statements"])(self.catalog)
        app.post("/v1/explain", tags=["statements"])(self.explain)
        app.post("/v1/why", tags=["statements"])(self.why)
        app.get("/v1/audit", tags=["statements"])(self.audit)
        app.post("/v1/streams/{stream}/tuples", tags=["streams"])(self.publish)
        app.get("/v1/streams/{stream}/rejected", tags=["streams"])(self.rejected)
        app.get("/v1/streams/{stream}/results", tags=["streams"], response_class=Response)(self.results)
        app.websocket("/v1/streams/{stream}/results")(self.socket)
        app.get("/healthz", tags=["operation"], response_class=PlainTextResponse)(self.health)
        app.get("/readyz", tags=["operation"], response_class=PlainTextResponse)(self.readiness)
        app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)(self.metrics)

    # Sessions ---------------------------------------------------------------------------------------------------------

    async def login(self, request: Request, given: Login) -> Session:
        """Opens a session. Its token goes into the header `Authorization: Bearer TOKEN`. A user whom the certificate of
        the connection names needs no password."""
        level = parse_level(given.level) if given.level else None
        roles = frozenset(given.roles) if given.roles is not None else None
        source = request.client.host if request.client else f"uid {os.getuid()}"  # the socket is for this user alone

        link = request.scope.get("state", {}).get("link")
        peer = link.peer if link is not None else None

        def enter() -> Session:
            if given.password is None and peer and certified_user(peer) == given.user:
                proof = f"certificate {peer['serialNumber']}"
                return self._session(self._headgate.login_certified(given.user, roles=roles, level=level, proof=proof))
            password = given.password or ""
            token = self._headgate.login(given.user, password, roles=roles, level=level, source=source)
            return self._session(token)

        async with self._logins:
            return await asyncio.to_thread(enter)

    def _session(self, token: str) -> Session:
        who = self._headgate.principal(token)
        return Session(token=token, user=who.user, roles=sorted(who.roles), level=str(who.level))

    async def logout(self, token: Token) -> Answer:
        """Ends the session, and what it reads."""
        await asyncio.to_thread(self._headgate.logout, token)
        await self._dispatcher.settle()
        return Answer(text="logged out")

    async def session(self, token: Token) -> Session:
        """Who one is at this moment: user, active roles, level."""
        return await asyncio.to_thread(self._session, token)

    # Statements -------------------------------------------------------------------------------------------------------

    async def statements(self, token: Token, given: Script) -> list[Answer]:
        """Runs a script, as a whole or not at all. When it returns, every right it took away has ended."""
        return await self._run(token, given.script)

    async def _run(self, token: str, script: str) -> list[Answer]:
        try:
            found = await asyncio.to_thread(lambda: [Answer.of(x) for x in self._headgate.execute(token, script)])
        finally:
            await self._dispatcher.settle()
        return found

    async def catalog(self, token: Token, what: str) -> Answer:
        """What one may see: `streams`, `queries`, `roles` and whatever else SHOW knows."""
        if not re.fullmatch("[A-Za-z]{1,32}", what):
            raise NotFound("there is no such part of the catalog", hint="the words are those of SHOW")
        (found,) = await self._run(token, f"SHOW {what}")
        return found

    async def audit(self, token: Token, limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> Answer:
        """The audit records that one may see, the newest last."""
        (found,) = await self._run(token, f"SHOW AUDIT LIMIT {limit}")
        return found

    async def explain(self, token: Token, given: Asked) -> Explained:
        """The plan of a query text, of `QUERY name`, or of `QUERIES`."""
        script = f"EXPLAIN {given.query}"

        def ask() -> Explained:
            self._headgate.principal(token)
            if len(parse_script(script)) != 1:
                raise TextError("one query is explained at a time", hint="run a script for several statements")
            (found,) = self._headgate.execute(token, script)
            return Explained(text=found.text, picture=found.picture if given.picture else "")

        return await asyncio.to_thread(ask)

    async def why(self, token: Token, given: Why) -> Reasons:
        """Why a user is granted or denied a permission, such as `READ TUPLE` on `STREAM joe.pulse`."""

        def ask() -> Reasons:
            self._headgate.principal(token)
            wanted = Permission(all_of(given.permission, permission))
            found = self._headgate.why(token, given.user, wanted, all_of(given.object, target))
            decision = found.decision
            return Reasons(
                granted=decision.granted, object=decision.object, reason=decision.reason, details=list(found.details)
            )

        return await asyncio.to_thread(ask)

    # Streams ----------------------------------------------------------------------------------------------------------

    async def publish(self, request: Request, token: Token, stream: str) -> Taken:
        """Takes tuples, all or none: JSON lines (`application/x-ndjson`) or an Arrow stream
        (`application/vnd.apache.arrow.stream`). The answer comes when they are durable. `Headgate-Sequence` counts the
        requests of a `Headgate-Producer` from 1; a number that was taken is not taken again. `Headgate-Signature` is an
        Ed25519 signature."""
        owner, name = _stream_name(stream)
        headers = request.headers
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        given = Published(
            stream,
            name,
            owner,
            media_type,
            await request.body(),
            headers.get(PRODUCER, ""),
            headers.get(SEQUENCE, ""),
            headers.get(SIGNATURE, ""),
        )
        waiting = await asyncio.to_thread(self._publishing.publish, token, given)
        done = await asyncio.wrap_future(waiting)
        if done.is_repeat:
            await asyncio.to_thread(self._publishing.record_repeat, token, given)
        return Taken(rows=done.rows, repeat=done.is_repeat)

    async def rejected(
        self, token: Token, stream: str, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> list[dict[str, Any]]:
        """The newest rows that were rejected from a stream of one's own, with the reasons."""
        owner, name = _stream_name(stream)

        def find() -> list[dict[str, Any]]:
            who, thing = self._headgate.principal(token), self._headgate.stream(token, name, owner)
            if (thing.owner, thing.level) != (who.user, str(who.level)):
                raise AccessDenied("cannot show rejected rows: they are for the owner of the stream, at its level")
            path = (thing.owner, f"{shown_source(thing)}.rejected")
            return last_lines(self._parts.owners, path, limit)

        return await asyncio.to_thread(find)

    async def results(
        self,
        request: Request,
        token: Token,
        stream: str,
        after: Annotated[str, Query(max_length=LONGEST_POSITION)] = "",
        begin: Annotated[str, Query(pattern="^(oldest|now)$")] = "oldest",
        follow: bool = True,
    ) -> Response:
        """The results of a stream that one has subscribed to, as they come: server-sent events, or by `Accept` JSON
        lines or an Arrow stream. Goes on after the position `after`, or the header `Last-Event-ID`."""
        kind = request.headers.get("accept", EVENTS).partition(",")[0].partition(";")[0].strip().lower()
        rendering = RENDERINGS.get(EVENTS if kind in ("*/*", "text/*") else kind)
        if rendering is None:
            raise Refused(406, "unknown_form", f"cannot send that form: there are {', '.join(RENDERINGS)}")
        position = request.headers.get(POSITION, after)
        results = await self._results(token, stream, rendering, position, begin, follow=follow)
        return ResultStream(results, self._dispatcher.shown(results.connection))

    async def socket(self, socket: WebSocket, stream: str) -> None:
        """The results over a WebSocket, as JSON lines, with the same parameters."""
        scope, given = socket.scope, socket.query_params
        try:
            position = socket.headers.get(POSITION, given.get("after", ""))
            begin, follow = given.get("begin", "oldest"), given.get("follow", "true")
            if begin not in ("oldest", "now") or follow not in ("true", "false") or len(position) > LONGEST_POSITION:
                raise Refused(422, "not_understood", "cannot read the request: after, begin or follow")
            token = str(scope["headgate_token"])
            results = await self._results(token, stream, Lines, position, begin, follow=follow == "true")
        except HeadgateError as error:
            await error_answer(error)(scope, socket.receive, socket.send)
            return
        chosen = SUBPROTOCOL if SUBPROTOCOL in scope["subprotocols"] else ""
        await send_over_socket(results, scope, socket.receive, socket.send, chosen=chosen)

    async def _results(
        self, token: str, stream: str, rendering: type[Rendering], position: str, begin: str, *, follow: bool
    ) -> Results:
        owner, name = _stream_name(stream)

        def find() -> Connection:
            """Who has not subscribed is told so first: an engine that nobody has subscribed at does not start."""
            thing = self._headgate.stream(token, name, owner)
            standing = self._dispatcher.subscription(token, thing.id)
            if standing is None:
                raise Conflict(
                    "cannot send results: you are not subscribed to this stream", hint="run SUBSCRIBE TO first"
                )
            if not self._parts.engine.is_ready:  # the log is not read back yet
                raise StoreError("cannot send results yet: the engine is starting", hint="try again in some seconds")
            start = self._dispatcher.end(standing) if begin == "now" else LogPosition()
            if position:
                start = self._dispatcher.read_position(position, standing)
            return Connection(token, standing, start, rendering(_columns(thing)))

        connection = await asyncio.to_thread(find)
        return Results(self._dispatcher, connection, self._parts.settings, follow=follow)

    # Operation --------------------------------------------------------------------------------------------------------

    async def health(self) -> PlainTextResponse:
        """Whether the process lives."""
        return PlainTextResponse("ok\n")

    async def readiness(self) -> PlainTextResponse:
        """Whether queries are processed, or wait for somebody to subscribe."""
        ready = self._parts.engine.is_ready or self._parts.engine.is_idle
        return PlainTextResponse("ready\n" if ready else "not ready\n", 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """Metrics for Prometheus, with the operator's token (`metrics.token` in the home folder), or with a session
        that may CHANGE SYSTEM where there are no levels above its own."""
        given = request.headers.get("authorization", "")
        token = given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else ""
        known = self._parts.metrics_token
        if not (known and hmac.compare_digest(token.encode(), known.encode())):
            await asyncio.to_thread(self._need_administrator, token)
        return Response(await asyncio.to_thread(self._metrics.text), media_type="text/plain; version=0.0.4")

    def _need_administrator(self, token: str) -> None:
        if not self._headgate.check(token, Permission.CHANGE_SYSTEM, Kind.SYSTEM, "system"):
            raise AccessDenied("cannot show metrics: that needs CHANGE SYSTEM")
        if not self._headgate.dominates_all(token):
            raise AccessDenied(
                "cannot show metrics: they tell of all levels, and there are some above yours",
                hint="the operator has a token for them, `metrics.token` in the home folder",
            )


def _columns(stream: r.Object) -> tuple[tuple[str, Type], ...]:
    return descriptor_of(stream).columns


def _stream_name(text: str) -> tuple[str | None, str]:
    """`OWNER.NAME` or `NAME`, as statements write it."""
    found = all_of(text, lambda cursor: object_name(cursor, "STREAM"))
    return found.owner, found.name


async def _no_such_operation(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    kinds = {404: ("not_found", "there is no such operation"), 405: ("no_such_method", "there is no such method here")}
    kind, message = kinds.get(error.status_code, ("refused", "cannot read the request"))
    answer = error_answer(Refused(error.status_code, kind, message))
    answer.headers.update(error.headers or {})
    return answer


async def _not_understood(_: Request, error: Exception) -> JSONResponse:
    """Says where the request is wrong, and repeats nothing of it: it may be a password."""
    assert isinstance(error, RequestValidationError)  # noqa: S101
    places = [".".join(map(str, x["loc"])) for x in error.errors()]
    message = f"cannot read the request: {', '.join(dict.fromkeys(places))}"
    return error_answer(Refused(422, "not_understood", message, hint="/openapi.json describes it"))
