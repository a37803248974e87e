"""`headgate serve`: the server, and `headgate config`: its settings."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import click

from headgate.cli.context import Place, pass_place, reported, say
from headgate.cli.limit_options import with_limits

_SETTINGS = [
    click.option("--host", help="Address to listen at; default 127.0.0.1."),
    click.option("--port", type=int, help="Port to listen at; default 8443; 0: any that is free."),
    click.option(
        "--tls/--no-tls", default=None, help="Encrypt connections; default. Without it only this machine connects."
    ),
    click.option("--certificate", type=click.Path(dir_okay=False), help="PEM file to use instead of the server's own."),
    click.option("--key", type=click.Path(dir_okay=False), help="PEM file with the key of --certificate."),
    click.option(
        "--client-authority",
        type=click.Path(dir_okay=False),
        help="PEM file with the authority whose certificates log users in.",
    ),
    click.option("--master", help="Where Spark runs; default local[2]."),
    click.option("--execution", help="Where windows and joins are computed: auto (default), driver, tasks."),
    click.option("--partitions", type=int, help="In how many parts tasks compute them; default 8."),
    click.option("--architecture", help="Who computes: trusted (default), replicated, kernelized."),
    click.option("--kafka-servers", help="Brokers of Kafka; published tuples then go into their topics."),
    click.option(
        "--kafka-properties",
        type=click.Path(dir_okay=False),
        help="File with settings of Kafka's client, such as passwords.",
    ),
    click.option("--kafka-topics", help="What the names of these topics begin with; default headgate."),
    with_limits,
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

    with reported(), place.headgate_alone() as headgate:
        settings = read_settings(place.home, given)
        with opened(place.home, headgate, settings) as parts:
            Serving(parts, place.home, lambda address: say(f"serving at {address}", err=True)).run()


@click.command()
@pass_place
def config(place: Place, /, **given: object) -> None:
    """Show the settings of the server and of its engine, as `headgate serve` with the same options would use them, and
    where each comes from that is not the default."""
    from headgate.server.level_settings import LEVELS
    from headgate.server.settings import origins, read_settings

    with reported():
        settings, chosen = read_settings(place.home, given), origins(place.home, given)
    for field in fields(settings):
        if field.name == LEVELS:
            continue
        value = getattr(settings, field.name)
        origin = f"  # {chosen[field.name]}" if field.name in chosen else ""
        say(f"{field.name} = {str(value).lower() if isinstance(value, bool) else repr(value)}{origin}")
    for level, use in settings.levels.items():
        say(f"[{LEVELS}.{json.dumps(level)}]  # {chosen[LEVELS]}")
        for name, value in asdict(use).items():
            if value is not None:
                say(f"{name} = {value}")


for _option in reversed(_SETTINGS):
    serve, config = _option(serve), _option(config)
