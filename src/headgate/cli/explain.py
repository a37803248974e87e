"""`headgate explain`: plans as trees and as pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from headgate.cli.context import Place, pass_place, reported, say, say_lines
from headgate.cql.parser import parse_script
from headgate.errors import HeadgateError, TextError

_VERB = "EXPLAIN "


@click.command()
@click.argument("text", required=False)
@click.option("--query", "name", help="A query of the catalog, by its name or as OWNER.NAME, instead of a text.")
@click.option(
    "--svg",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the plan into this file, with levels and the subscribers who share results.",
)
@click.option("--analyze", is_flag=True, help="Show what the operators of --query did since the engine began.")
@pass_place
def explain(place: Place, text: str | None, name: str | None, svg: Path | None, analyze: bool) -> None:
    """Explain the query TEXT, a query of the catalog, or (without either) all running queries that you may see.

    Prints the tree of operators, what is shared with which running query and by which definition, and the labels that
    results will carry. Queries that you may not see change nothing in the answer.

    \b
    headgate explain "SELECT patID, AVG(pulseRate) FROM HRStr [RANGE 2 MINUTES] GROUP BY patID"
    headgate explain --query high --svg plan.svg
    headgate explain --analyze --query high
    """
    if text is not None and name is not None:
        raise click.UsageError("give a text or --query, not both")
    if analyze and name is None:
        raise click.UsageError("give --query with --analyze: only a query that runs has done anything")
    asked = text if text is not None else f"QUERY {name}" if name is not None else "QUERIES"
    with reported(), place.answering() as headgate, _places_in_text():
        script = _VERB + ("ANALYZE " if analyze else "") + asked
        if len(parse_script(script)) != 1:
            raise TextError("one query is explained at a time", hint="run a script for several statements")
        (result,) = headgate.execute(place.token(), script)
        say_lines(result.text)
        if svg is not None:
            svg.write_text(result.picture, encoding="utf-8")
    if svg is not None:
        say(f"drawn into {svg}")


@contextmanager
def _places_in_text() -> Iterator[None]:
    """Errors name positions in what was typed, not in the statement made of it."""
    try:
        yield
    except HeadgateError as error:
        if error.position is not None:
            shift = len(_VERB) if error.position.line == 1 else 0
            offset, column = max(0, error.position.offset - len(_VERB)), max(1, error.position.column - shift)
            error.position = replace(error.position, offset=offset, column=column)
        raise
