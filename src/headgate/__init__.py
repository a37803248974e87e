"""Headgate: secure shared continuous queries over live streams."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`headgate.connect`; whoever does not call it does not wait for the client's libraries."""
    if name == "connect":
        return import_module("headgate.client").connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
