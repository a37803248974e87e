"""`headgate watch` and `headgate publish`: results from a server, tuples to a server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import click

from headgate.cli.context import Place, complain, pass_place, reported, say
from headgate.cli.remote import Remote
from headgate.client import Received
from headgate.client.wire import Malformed
from headgate.errors import Conflict
from headgate.plain import json_line

_SAID = {"suspended": "it is suspended", "lost": "lost"}


def _server(place: Place) -> Remote:
    if place.remote is None:
        raise Conflict("cannot do that without a server", hint="name one with --server URL")
    return place.remote


@click.command()
@click.argument("stream")
@click.option("--json", "as_json", is_flag=True, help="Write each result as one JSON object, with its position.")
@click.option("--after", default="", metavar="POSITION", help="Go on after this position.")
@click.option("--new", is_flag=True, help="Only results that come from now on.")
@click.option("--present", is_flag=True, help="Only results that are there already; then end.")
@click.option("--most", type=click.IntRange(1), help="End after so many results.")
@pass_place
def watch(place: Place, stream: str, as_json: bool, after: str, new: bool, present: bool, most: int | None) -> None:
    """Show the results of STREAM as they come; subscribes to it if that was not done. Ctrl-C ends it.

    \b
      headgate --server https://HOST:8443 watch joe.mean
      headgate --server https://HOST:8443 watch joe.mean --json --present
    """
    with reported(), _server(place).client(place.token()) as client:
        begin = "now" if new else "oldest"
        for received in islice(client.subscribe(stream, after=after, begin=begin, follow=not present), most):
            say(_as_json(received) if as_json else _as_text(received))


def _as_json(received: Received) -> str:
    if received.notice is not None:
        return json_line({"position": received.position, **received.notice})
    known = {"position": received.position, "time": received.time, "label": received.label, "values": received.values}
    return json_line(known)


def _as_text(received: Received) -> str:
    if received.notice is not None:
        return "; ".join(f"{_SAID.get(word, f'it {word}')}: {why}" for word, why in received.notice.items())
    return "  ".join([received.time, *(f"{name}={_cell(value)}" for name, value in (received.values or {}).items())])


def _cell(value: Any) -> str:
    return "NULL" if value is None else str(value)


@click.command()
@click.argument("stream")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--rows", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Rows of one request.")
@click.option(
    "--producer", default="", metavar="NAME", help="A name under which requests are numbered; default is a new one."
)
@click.option("--begin", type=click.IntRange(1), default=1, show_default=True, help="The number of the first request.")
@pass_place
def publish(place: Place, stream: str, file: BinaryIO, rows: int, producer: str, begin: int) -> None:
    """Publish the tuples in FILE (JSON lines; default standard input) to STREAM.

    Each request is taken whole or not at all, and acknowledged when it is durable. With --producer the same command can
    be run again after a failure: what was taken is not taken twice.
    """
    sent = 0
    with reported(), _server(place).client(place.token()) as client:
        publisher = client.publisher(stream, producer=producer, begin=begin)
        for some in _requests(file, rows):
            try:
                sent += publisher.send_lines(some)
            except Malformed as error:
                for wrong in error.rows:
                    complain(f"row {sent + wrong['row']}: {wrong['message']}")
                raise
    say(f"{sent:,} tuples published")


def _requests(file: BinaryIO, rows: int) -> Iterator[bytes]:
    while lines := list(islice(file, rows)):
        yield b"".join(lines)
