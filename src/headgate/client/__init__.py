"""The Python client of a Headgate server: `headgate.connect(url)`, and `await headgate.aconnect(url)`.

It knows nothing but the server's address, its certificate and a session; it opens no store and no file of the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.client.async_client import AsyncClient, AsyncPublisher, aconnect
    from headgate.client.client import Client, Publisher, connect
    from headgate.client.forms import Answer, Reasons, Received
    from headgate.client.wire import Busy, Malformed, Unreachable

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncPublisher",
    "Busy",
    "Client",
    "Malformed",
    "Publisher",
    "Reasons",
    "Received",
    "Unreachable",
    "aconnect",
    "connect",
]
_MODULES = {
    "async_client": ("AsyncClient", "AsyncPublisher", "aconnect"),
    "client": ("Client", "Publisher", "connect"),
    "forms": ("Answer", "Reasons", "Received"),
    "wire": ("Busy", "Malformed", "Unreachable"),
}


def __getattr__(name: str) -> Any:
    """A command or a program that waits for answers does not load what only an async one needs."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
