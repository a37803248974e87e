"""Logs for operators: lifecycle, batches, failures with where they came from; as text or as JSON lines.

A log names streams, queries, numbers and kinds of errors. It never holds values of tuples, labels or secrets, so an
error is logged by its kind and its stack, never by its text: that may repeat a value. Why a source cannot be read is
logged in our own words, the ones that `run` prints for its operator.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from traceback import extract_tb
from typing import TextIO

from headgate.plain import visible

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_ROOT = logging.getLogger("headgate")
_FACTS, _STACK = "headgate_facts", "headgate_stack"


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """From now on what is at least of this level goes to standard error, or to `stream`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    _ROOT.handlers = [handler]
    _ROOT.setLevel(level.upper())
    _ROOT.propagate = False


def silence() -> None:
    """From now on nothing is logged: streams, batches and how many tuples they hold are for operators, and whoever runs
    only their own queries may not be permitted to see them."""
    _ROOT.setLevel(logging.CRITICAL + 1)


def event(name: str, what: str, *, level: int = logging.INFO, **facts: object) -> None:
    """Something happened in the part of the engine called `name`."""
    logging.getLogger(f"headgate.{name}").log(level, what, extra={_FACTS: facts})


def failure(name: str, what: str, error: BaseException, *, level: int = logging.ERROR, **facts: object) -> None:
    """Something failed: its kind, and the places it passed, innermost last."""
    stack = [f"{Path(x.filename).name}:{x.lineno} {x.name}" for x in extract_tb(error.__traceback__)]
    extra = {_FACTS: {**facts, "error": type(error).__name__}, _STACK: stack}
    logging.getLogger(f"headgate.{name}").log(level, what, extra=extra)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    facts: dict[str, object] = getattr(record, _FACTS, {})
    return facts


def _stack(record: logging.LogRecord) -> list[str]:
    stack: list[str] = getattr(record, _STACK, [])
    return stack


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={value}" for name, value in _facts(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}{facts}"
        return "\n".join((visible(line), *(f"    at {visible(place)}" for place in _stack(record))))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        known = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        line = {**known, "event": record.getMessage(), **_facts(record)}
        return json.dumps(line | ({"stack": _stack(record)} if _stack(record) else {}), default=str)
