"""The first steps of a processor: `python -m headgate.levels.enter MODULE`, started by the server.

It leaves what processes have in common, imports the program, becomes the operating-system user of its level, and only
then lets the program read what comes. The program is imported and warmed up before, because the interpreter may be
readable for the server's user alone; namespaces are left before that, because a thread keeps those that it began with.
What the machine does not allow is told to the server by name, so that nobody relies on it.
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
from pathlib import Path
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
    channel = _channel()
    try:
        setting = channel.receive().facts
    except ChannelClosed:
        return
    missing = leave(setting)
    program = import_module(sys.argv[1])
    program.prepare()
    become(setting)
    channel.send("entered", missing=missing)
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
    os.nice(setting["nice"])
    with suppress(OSError):  # where sessions share the processor evenly, the priority of each session counts
        Path("/proc/self/autogroup").write_text(str(setting["nice"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if setting["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (setting["memory"], setting["memory"]))
    missing = [SAME_USER] if setting["user"] is None else _apart()
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        missing.append("processors can gain rights from programs of other users")
    return missing


def become(setting: Mapping[str, Any]) -> None:
    """Becomes the user of the level for good. Nobody of the same user can look into it, and it ends with the server."""
    user, group = setting["user"], setting["group"]
    if user is not None:
        os.setgroups(setting["groups"])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
        if os.getresuid() != (user,) * 3 or os.getresgid() != (group,) * 3:
            raise PermissionError
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


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
