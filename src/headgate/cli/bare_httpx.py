"""Imports httpx without its own command line, which it would load with all its libraries where those are installed:
half of the time that a command at a server takes to start."""

import sys

_COMMAND_LINE = "httpx._main"

if _COMMAND_LINE not in sys.modules:
    sys.modules[_COMMAND_LINE] = None  # type: ignore[assignment]  # as Python documents it: this import fails
    try:
        import httpx as httpx
    finally:
        del sys.modules[_COMMAND_LINE]
