"""An object store on this machine for tests: moto's server, which nobody here wrote. It holds everything in memory."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from headgate.stores import StateLocation

BUCKET = "headgate"


@contextmanager
def running_store() -> Iterator[dict[str, str]]:
    """The options of a place in its bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        with urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=30):  # noqa: S310
            pass
        yield {
            "access_key": secrets.token_hex(10),
            "secret_key": secrets.token_hex(20),
            "region": "us-east-1",
            "endpoint": endpoint,
        }
    finally:
        server.stop()


def fresh_place(options: dict[str, str]) -> StateLocation:
    return StateLocation(f"s3://{BUCKET}/{secrets.token_hex(4)}", options)
