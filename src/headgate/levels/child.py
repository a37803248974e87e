"""A processor as the server sees it: a process that was started for one level, and the channel to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headgate.levels.folders import Identity
from headgate.levels.wire import Channel, ChannelClosed

COMMAND = (sys.executable, "-I", "-m", "headgate.levels.enter", "headgate.levels.processor")


@dataclass(frozen=True)
class Resources:
    """What a level may use. `nice` is the priority of its processor: greater is lower. `memory` is its limit in bytes;
    0: none. `backlog` is how many bytes of tuples may wait for it; 0: any number."""

    nice: int = 0
    memory: int = 0
    backlog: int = 0


class Child(Protocol):
    channel: Channel
    missing: Sequence[str]
    """What is not enforced."""

    def kill(self) -> None:
        """Ends it at once, and returns when it has ended."""
        ...


Start = Callable[[Path, Identity, Resources], Child]
"""Starts a processor that works in this folder."""


class ProcessChild:
    """A process of its own, with nothing but its channel and a few settings."""

    def __init__(self, folder: Path, identity: Identity, share: Resources, command: Sequence[str] = COMMAND) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": ".", **_machine_code()},
            start_new_session=True,
        )
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        self.channel = Channel(self._process.stdout, self._process.stdin)
        self.missing: Sequence[str] = ()
        try:
            self.channel.send(
                "enter",
                user=identity.user,
                group=identity.group,
                groups=list(identity.groups),
                nice=share.nice,
                memory=share.memory,
            )
            entered = self.channel.receive()
            if entered.kind != "entered":
                raise ChannelClosed
            self.missing = tuple(str(x) for x in entered.facts["missing"])
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.channel.close()


def _machine_code() -> dict[str, str]:
    """Where the server keeps compiled loops, if that was chosen. A processor reads it and cannot write there: none may
    give code to another."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return {"NUMBA_CACHE_DIR": chosen} if chosen else {}
