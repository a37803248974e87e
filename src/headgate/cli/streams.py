"""`headgate watch` and `headgate publish`: live results, and tuples to publish."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import click

import headgate.cli.bare_httpx  # noqa: F401 - before anything imports httpx
from headgate.cli.context import Place, complain, full, pass_place, reported, say, with_forms
from headgate.client import Received
from headgate.client.wire import Malformed
from headgate.plain import counted, format_csv, json_line

_SAID = {"suspended": "it is suspended", "lost": "lost"}


@click.command()
@click.argument("stream")
@with_forms
@click.option("--after", default="", metavar="POSITION", help="Go on after this position.")
@click.option("--new", is_flag=True, help="Only results that come from now on.")
@click.option("--present", is_flag=True, help="Only results that are there already; then end.")
@click.option("--most", type=click.IntRange(1), help="End after so many results.")
@pass_place
def watch(place: Place, stream: str, form: str | None, after: str, new: bool, present: bool, most: int | None) -> None:
    """Show the results of STREAM as they come; subscribes to it if that was not done. Ctrl-C ends it.

    \b
      headgate watch joe.mean
      headgate --server https://HOST:8443 watch joe.mean --json --present

    Without --server, the home folder's own server is asked. If none runs, one is started; it ends by itself.
    """
    with reported(), place.client() as client:
        if sys.stderr.isatty():
            client.told = lambda text: say(text, err=True)
        begin = "now" if new else "oldest"
        write = {"json": _write_json, "csv": _Csv().write}.get(form or "", write_text)
        came = False
        for received in client.subscribe(stream, after=after, begin=begin, follow=not present):
            came = True
            write(received)
            most = most - 1 if most is not None and received.values is not None else most
            if most == 0:
                break
        if not came:
            say("no results yet; those of windows come with a later tuple, or by DELAY", err=True)


def _write_json(received: Received) -> None:
    if received.notice is not None:
        click.echo(json_line({"position": received.position, **received.notice}))
    else:
        known = {"time": received.time_text, "label": received.label, "values": received.values}
        click.echo(json_line({"position": received.position, **known}))


class _Csv:
    """The names of columns stand before the first result; notices are told on standard error."""

    def __init__(self) -> None:
        self._named = False

    def write(self, received: Received) -> None:
        if received.values is None:
            say(notice_text(received), err=True)
            return
        rows = [["position", "time", "label", *received.values]] if not self._named else []
        self._named = True
        cells = [received.position, received.time_text, received.label, *map(full, received.values.values())]
        click.echo(format_csv([*rows, cells]))


def write_text(received: Received) -> None:
    """One line for people."""
    if received.values is None:
        say(notice_text(received))
    else:
        cells = (f"{name}={value_text(value)}" for name, value in received.values.items())
        say("  ".join([received.time_text, *cells]))


def notice_text(received: Received) -> str:
    """A notice in words."""
    return "; ".join(f"{_SAID.get(word, f'it {word}')}: {why}" for word, why in (received.notice or {}).items())


def value_text(value: Any) -> str:
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
    with reported(), place.client() as client:
        publisher = client.publisher(stream, producer=producer, begin=begin)
        for some in _requests(file, rows):
            try:
                sent += publisher.send_lines(some)
            except Malformed as error:
                for wrong in error.rows:
                    complain(f"row {sent + wrong['row']}: {wrong['message']}")
                raise
    say(f"{counted(sent, 'tuple')} published")


def _requests(file: BinaryIO, rows: int) -> Iterator[bytes]:
    while lines := list(islice(file, rows)):
        yield b"".join(lines)
