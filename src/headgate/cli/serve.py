"""`headgate serve`: the server, and `headgate config`: its settings."""

from __future__ import annotations

from dataclasses import fields

import click

from headgate.cli.context import Place, pass_place, reported, say

_SETTINGS = [
    click.option("--host", help="Address to listen at; default 127.0.0.1."),
    click.option("--port", type=int, help="Port to listen at; default 8443; 0: any that is free."),
    click.option(
        "--tls/--no-tls", default=None, help="Encrypt connections; default. Without it only this machine connects."
    ),
    click.option("--certificate", type=click.Path(dir_okay=False), help="PEM file to use instead of the server's own."),
    click.option("--key", type=click.Path(dir_okay=False), help="PEM file with the key of --certificate."),
    click.option("--master", help="Where Spark runs; default local[2]."),
]


@click.command()
@pass_place
def serve(place: Place, /, **given: object) -> None:
    """Serve this home folder to clients: the one process that opens the store, the keys, the sources and the engine.

    Everyone logs in over HTTPS, with `headgate --server URL`, with `headgate.connect(URL)` from Python, or with any
    HTTP client (the server describes itself at /openapi.json). Settings come from server.toml in the home folder, from
    HEADGATE_SERVE_..., and from here; `headgate config` shows them. SIGTERM and Ctrl-C end it between two batches; the
    same command goes on where it was.
    """
    from headgate.server.serve import Serving, opened
    from headgate.server.settings import read_settings

    with reported(), place.headgate() as headgate:
        settings = read_settings(place.home, given)
        with opened(place.home, headgate, settings) as parts:
            Serving(parts, place.home, lambda address: say(f"serving at {address}", err=True)).run()


@click.command()
@pass_place
def config(place: Place, /, **given: object) -> None:
    """Show the settings of the server, as `headgate serve` with the same options would use them."""
    from headgate.server.settings import read_settings

    with reported():
        settings = read_settings(place.home, given)
    for field in fields(settings):
        value = getattr(settings, field.name)
        say(f"{field.name} = {str(value).lower() if isinstance(value, bool) else repr(value)}")


for _option in reversed(_SETTINGS):
    serve, config = _option(serve), _option(config)
