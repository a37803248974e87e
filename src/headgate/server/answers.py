"""Answers in JSON: one form for every error, from the kinds of errors that Headgate has."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from headgate.errors import (
    AccessDenied,
    AuthenticationFailed,
    Conflict,
    HeadgateError,
    LabelError,
    NotFound,
    SourceError,
    StoreError,
    TextError,
    Unavailable,
)

STATUS: dict[type[HeadgateError], tuple[int, str]] = {
    AuthenticationFailed: (401, "authentication_failed"),
    AccessDenied: (403, "access_denied"),
    NotFound: (404, "not_found"),
    Conflict: (409, "conflict"),
    TextError: (400, "text_error"),
    LabelError: (400, "label_error"),
    SourceError: (503, "source_error"),
    StoreError: (503, "store_error"),
    HeadgateError: (400, "refused"),
}
"""By kind of error: the status, and the word for it in the answer."""


class Refused(HeadgateError):
    """A request that the server refuses by itself, with a status of its own and perhaps the rows that are wrong."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        hint: str = "",
        retry: int = 0,
        rows: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.kind, self.retry, self.rows = status, kind, retry, rows or []


def error_answer(error: HeadgateError) -> JSONResponse:
    status, kind = next(STATUS[x] for x in type(error).__mro__ if x in STATUS)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = "1"
    body: dict[str, Any] = {"kind": kind, "message": error.message}
    if isinstance(error, Refused):
        status, body["kind"] = error.status, error.kind
        if error.retry:
            headers["Retry-After"] = str(error.retry)
        if error.rows:
            body["rows"] = error.rows
    if error.hint:
        body["hint"] = error.hint
    if error.position is not None:
        body |= {"line": error.position.line, "column": error.position.column}
    return JSONResponse({"error": body}, status, headers)


async def headgate_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadgateError)  # noqa: S101
    return error_answer(error)
