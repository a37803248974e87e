"""`headgate cluster`: what a cluster of Spark needs to run Headgate."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from headgate.cli.context import complain, reported, say
from headgate.cli.state_place import place_of, with_place


@click.group()
def cluster() -> None:
    """Prepare a cluster of Spark for Headgate."""


@cluster.command("package")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def package_command(file: Path) -> None:
    """Write Headgate and its requirements into FILE (.tar.gz), which Spark sends to its workers.

    Beside it a file of Spark settings is written, which uses it: `headgate run --conf-from FILE.conf`, or
    `spark-submit --properties-file FILE.conf`. Workers need the same version of Python and the same kind of machine.
    """
    from headgate.service.cluster import package

    with reported():
        settings = package(file)
    say(f"{file} written; use it with: headgate run --master ... --conf-from {settings}")


@cluster.command("check")
@click.option("--master", required=True, help="Where Spark runs, such as spark://HOST:PORT.")
@click.option("--conf", "conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; repeatable.")
@click.option("--conf-from", "conf_file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@with_place
def check_command(
    master: str, conf: tuple[str, ...], conf_file: Path | None, state: str | None, state_options: Path | None
) -> None:
    """Ask all workers whether they can run Headgate's code and reach the state; a line says what one lacks."""
    from headgate.ingress.spark import spark_session
    from headgate.ingress.spark_settings import spark_settings
    from headgate.service.cluster import problems

    with reported():
        place = place_of(state, state_options)
    with reported(), tempfile.TemporaryDirectory(prefix="headgate-check-") as home:
        spark = spark_session(Path(home), master=master, settings=spark_settings(conf, conf_file))
        found = problems(spark, place)
        slots = spark.sparkContext.defaultParallelism
        spark.stop()
    for line in found:
        complain(line)
    if found:
        sys.exit(1)
    say(f"{slots} slots of the cluster can run Headgate")
