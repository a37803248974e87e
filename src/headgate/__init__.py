"""Headgate: secure shared continuous queries over live streams."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "connect": "headgate.client",
    "aconnect": "headgate.client",
    "DataSource": "headgate.client.spark",
    "Engine": "headgate.service.embedded",
    "HeadgateError": "headgate.errors",
}


def __getattr__(name: str) -> Any:
    """`headgate.connect` and the other names for programs; whoever does not use one does not wait for its libraries."""
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
