"""Hosts in network namespaces, joined by a bridge; only where the machine lets us make them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from headgate.sendlog.cluster import Place

_BRIDGE = f"hgb{os.getpid() % 100_000}"
GATEWAY = "10.213.0.1"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def hosts(names: list[str]) -> Iterator[dict[str, Place]]:
    """A namespace with an address for each name; an OSError or CalledProcessError where this is not allowed."""
    made: list[tuple[str, ...]] = []
    try:
        _ip("link", "add", _BRIDGE, "type", "bridge")
        made.append(("link", "del", _BRIDGE))
        _ip("addr", "add", f"{GATEWAY}/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        places = {}
        for number, name in enumerate(names):
            space, outside, address = f"{_BRIDGE}n{number}", f"{_BRIDGE}v{number}", f"10.213.0.{number + 2}"
            _ip("netns", "add", space)
            made.append(("netns", "del", space))
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outside, "master", _BRIDGE, "up")
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            places[name] = Place(address, ("ip", "netns", "exec", space))
        yield places
    finally:
        for words in reversed(made):
            _ip(*words)
