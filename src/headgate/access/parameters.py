"""The system's parameters, their defaults and their permitted values."""

from __future__ import annotations

from headgate.access import rows as r
from headgate.access.state import State
from headgate.errors import Conflict, NotFound

DEFAULTS = {
    "session_minutes": "480",
    "idle_minutes": "30",
    "lockout_failures": "5",
    "lockout_minutes": "15",
    "max_sessions": "20",
    "default_rights": "OWNER",
}
_CHOICES = {"default_rights": ("OWNER", "ROLE")}
_MOST = 525_600


def read(state: State, name: str) -> str:
    found = state.parameters.get(name)
    return found.value if found else DEFAULTS[name]


def number(state: State, name: str) -> int:
    return int(read(state, name))


def write(state: State, name: str, value: str) -> None:
    if name not in DEFAULTS:
        raise NotFound(f"there is no system parameter `{name}`", hint=f"there are {', '.join(DEFAULTS)}")
    if choices := _CHOICES.get(name):
        value = value.upper()
        if value not in choices:
            raise Conflict(f"`{name}` must be {' or '.join(choices)}")
    elif not (value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST):
        raise Conflict(f"`{name}` must be a whole number from 1 to {_MOST}")
    state.parameters.put(r.Parameter(name, value))
