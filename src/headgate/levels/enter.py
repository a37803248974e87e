"""The first steps of a processor: `python -m headgate.levels.enter MODULE`, started by the server.

It imports the program, becomes the operating-system user of its level, gives up everything else, and only then reads
what the server sends. The program is imported before, because the interpreter may be readable for the server's user
alone. What the machine does not allow is told to the server by name, so that nobody relies on it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from headgate.levels.wire import Channel, ChannelClosed

_NEWNS, _NEWIPC, _NEWNET = 0x00020000, 0x08000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x4000, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
"""Folders in which every user may write: two processors could meet there."""
SAME_USER = "processors run as the server's user: files, memory and network of levels are not kept apart"

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    program = import_module(sys.argv[1])
    channel = _channel()
    try:
        setting = channel.receive().facts
    except ChannelClosed:
        return
    channel.send("entered", missing=leave(setting))
    program.main(channel)


def _channel() -> Channel:
    """Standard input and output are the channel; whoever prints must not write into it."""
    reader, writer = os.dup(0), os.dup(1)
    with open(os.devnull, "r+b", buffering=0) as nothing:
        for number in (0, 1):
            os.dup2(nothing.fileno(), number)
    return Channel(os.fdopen(reader, "rb"), os.fdopen(writer, "wb"))


def leave(setting: Mapping[str, Any]) -> list[str]:
    """Gives up what the processor does not need; returns what could not be given up."""
    missing = [] if setting["user"] is not None else [SAME_USER]
    os.nice(setting["nice"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if setting["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (setting["memory"], setting["memory"]))
    if setting["user"] is not None:
        missing += _apart()
        os.setgroups(setting["groups"])
        os.setresgid(*[setting["group"]] * 3)
        os.setresuid(*[setting["user"]] * 3)
        if os.getresuid() != (setting["user"],) * 3 or os.getresgid() != (setting["group"],) * 3:
            raise PermissionError
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0), (_PR_SET_PDEATHSIG, int(signal.SIGKILL))):
        if _libc.prctl(option, value, 0, 0, 0):
            missing.append(f"the machine does not allow prctl {option}")
    return missing


def _apart() -> list[str]:
    """No network, no shared memory, no common folders, no look at processes of others."""
    if _libc.unshare(_NEWNS | _NEWIPC | _NEWNET):
        return ["processors share network, temporary folders and the list of processes: namespaces are not allowed"]
    if _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        return ["processors share temporary folders and the list of processes: mounting is not allowed"]
    flags, missing = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, list[str]()
    for folder in filter(os.path.isdir, _SHARED):
        if _holds_code(folder) or _libc.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, b"size=64m,mode=1777"):
            missing.append(f"processors share the folder {folder}")
    if _libc.mount(b"proc", b"/proc", b"proc", flags, b"hidepid=2"):
        missing.append("processors see the list of processes")
    return missing


def _holds_code(folder: str) -> bool:
    """Whether modules are imported from there: they must stay reachable."""
    places: Sequence[str] = (*sys.path, sys.prefix, sys.base_prefix)
    return any(os.path.realpath(x).startswith(f"{folder}/") for x in places if x)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
