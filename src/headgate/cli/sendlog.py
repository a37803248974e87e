"""`headgate sendlog` and `headgate why`: check, explain and run programs, and see why a tuple is there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from headgate.cli.context import Place, pass_place, reported, say, say_lines, show
from headgate.clock import SystemClock
from headgate.errors import HeadgateError
from headgate.ingress.spark import spark_session
from headgate.plain import counted, format_table, visible
from headgate.sendlog import drawing, programs
from headgate.sendlog.check import load
from headgate.sendlog.core import Core
from headgate.sendlog.explain import explain as explained
from headgate.sendlog.network import Network
from headgate.sendlog.parser import parse_fact
from headgate.sendlog.process import run_node
from headgate.sendlog.provenance import Tree
from headgate.sendlog.settings import Settings
from headgate.sendlog.signing import PrivateKey, signed
from headgate.sendlog.spark import SparkNetwork, Universe
from headgate.sendlog.values import Row, shown

Found = Iterator[tuple[str, str, list[Row]]]
"""A principal, a table, its rows."""

_SCHEMES = click.Choice(["none", "hmac", "ed25519", "rsa"])
_files = click.argument("files", nargs=-1, required=True)
_scheme = click.option(
    "--scheme", type=_SCHEMES, default="ed25519", show_default=True, help="How `says` is authenticated."
)


def _text(files: tuple[str, ...]) -> str:
    """Files, or names of shipped programs, as one program."""
    parts = []
    for name in files:
        path = Path(name)
        if name in programs.NAMES and not path.exists():
            parts.append(programs.text(name))
        else:
            parts.append(path.read_text(encoding="utf-8"))
    return "\n".join(parts)


def _principals(core: Core, more: tuple[str, ...]) -> list[str]:
    found = dict.fromkeys([*more, *(r.owner for r in (*core.rules, *core.facts) if r.owner is not None)])
    if not found:
        raise HeadgateError(
            "no principal runs this program", hint="write `At NAME, ...` for its facts, or name one with --at"
        )
    return list(found)


@click.group()
def sendlog() -> None:
    """Rules in the contexts of principals, with signed statements between them.

    FILES are programs and facts, read as one text; a name such as best_path is a program that comes with Headgate.
    The language is described in docs/sendlog.md.

    \b
      headgate sendlog check policy.snd
      headgate sendlog run best_path network.snd --table best
      headgate why reachability network.snd --at a "reachable(a, c)"
    """


@sendlog.command()
@_files
def check(files: tuple[str, ...]) -> None:
    """Check a program: syntax, safety, honesty, and the order of its rules.

    An error names its place; without errors the number of rules is printed.
    """
    with reported(files[-1]):
        core = load(_text(files))
    click.echo(f"{counted(len(core.rules), 'rule')} and {counted(len(core.facts), 'fact')} are in order")


@sendlog.command("explain")
@_files
def explain_command(files: tuple[str, ...]) -> None:
    """Print the rule strands of a program: the relational plan that runs.

    One strand for each predicate whose change sets a rule off, operator by operator.
    """
    with reported(files[-1]):
        click.echo(explained(load(_text(files))))


@sendlog.command()
@_files
@click.option("--at", "principals", multiple=True, metavar="PRINCIPAL", help="A principal (may be repeated).")
@click.option("--table", "tables", multiple=True, metavar="NAME", help="A table to print; `says p` for statements.")
@click.option("--spark", is_flag=True, help="Run the principals as partitions of a Spark application.")
@_scheme
def run(files: tuple[str, ...], principals: tuple[str, ...], tables: tuple[str, ...], spark: bool, scheme: str) -> None:
    """Run a program until nobody has anything to say, and print its tables.

    Without --table all tables are printed that rules derive.
    """
    with reported(files[-1]):
        text = _text(files)
        core = load(text)
        names = _principals(core, principals)
        derived = dict.fromkeys(r.rel.name for r in core.rules if r.rel.kind == "local" and "$" not in r.rel.name)
        found = (_on_spark if spark else _embedded)(text, names, tables or tuple(derived), Settings(scheme))
    rows = [[name, table, ", ".join(map(shown, row))] for name, table, held in found for row in held]
    click.echo(format_table(["at", "table", "values"], rows))


def _embedded(text: str, names: list[str], tables: tuple[str, ...], settings: Settings) -> Found:
    network = Network(text, names, settings)
    network.run()
    for name in names:
        for table in tables:
            said = table.startswith("says ")
            yield name, table, network.said(name, table[5:]) if said else network.rows(name, table)


def _on_spark(text: str, names: list[str], tables: tuple[str, ...], settings: Settings) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        universe = Universe("program", text, tuple(names), settings)
        found = SparkNetwork(spark_session(Path(folder)), [universe]).rows(*tables)
    for name in names:
        for table in tables:
            yield name, table, found["program", name, table]


@sendlog.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def node(config: Path) -> None:
    """Run one principal as a process, as CONFIG describes it.

    The process listens for signed tuples and takes commands, one JSON object a line, from its standard input.
    """
    with reported(str(config)):
        run_node(config)


@sendlog.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def key(file: Path) -> None:
    """Make a key to sign statements with, keep it in FILE, and print its public half.

    The public half is registered where statements shall be believed, with ALTER USER ... ADD KEY. FILE must not exist
    yet, and only you can read it.
    """
    with reported(str(file)):
        made = PrivateKey.new()
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(made.to_bytes())
        say(made.public_text())


@sendlog.command()
@click.argument("facts", nargs=-1, required=True, metavar="FACT...")
@click.option("--key", "file", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The signing key.")
@click.option("--as", "sender", required=True, metavar="NAME", help="Who says it: the user that has the key there.")
@click.option("--to", "address", required=True, metavar="ADDRESS", help="The policy's address (SHOW POLICIES).")
@click.option("--retract", is_flag=True, help="Take back what was said.")
@click.option("--number", type=int, help="Larger than any before; default: the clock, in microseconds.")
def sign(facts: tuple[str, ...], file: Path, sender: str, address: str, retract: bool, number: int | None) -> None:
    """Sign FACTs for a policy of another Headgate, and print what is to be handed in there, with
    `headgate sendlog accept` or ACCEPT STATEMENT.

    \b
      headgate sendlog sign --key acme.key --as acme --to 3f1c... "employee(bob)"
      headgate sendlog sign --key acme.key --as acme --to 3f1c... --retract "employee(bob)"
    """
    with reported("<fact>"):
        parsed = [parse_fact(fact) for fact in facts]
        private = PrivateKey.of(file.read_bytes())
        counted = int(SystemClock().now() * 1_000_000) if number is None else number
        say(signed(private, sender, address, counted, parsed, retract=retract))


@sendlog.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@pass_place
def accept(place: Place, files: tuple[Path, ...]) -> None:
    """Hand in signed statements, one in each of FILES: all of them or none.

    Who signed a statement counts, not who hands it in.
    """
    with reported(", ".join(map(str, files))), place.answering() as headgate:
        messages = [file.read_text(encoding="utf-8").strip().replace("'", "''") for file in files]
        for result in headgate.execute(place.token(), "; ".join(f"ACCEPT STATEMENT '{x}'" for x in messages)):
            show(result)


@click.command()
@click.argument("files", nargs=-1)
@click.option("--at", "principal", metavar="PRINCIPAL", help="Whose tuple it is.")
@click.option("--proof", metavar="NAME", help="A proof that an audit record names, instead of a program and a fact.")
@click.option("--as", "form", type=click.Choice(["text", "json", "svg"]), default="text", show_default=True)
@_scheme
@click.argument("fact", required=False)
@pass_place
def why(
    place: Place,
    files: tuple[str, ...],
    principal: str | None,
    proof: str | None,
    form: str,
    scheme: str,
    fact: str | None,
) -> None:
    """Run a program and print why FACT is there: its derivation tree, with every signature verified.

    The expression behind the tuple says whose word it rests on: `+` joins derivations, `*` what one needs. With
    --proof, print why a policy gave a right, as it was when an audit record was written (needs VIEW AUDIT).

    \b
      headgate why reachability network.snd --at a "reachable(a, c)"
      headgate why --proof 1f0c2a9be07755d1c6a1f2ce9b1d3e40
    """
    if proof is not None:
        with reported("<proof>"), place.headgate_for_operator() as headgate:
            found = headgate.proof(place.token(), proof)
        say_lines(_drawn(found.tree, form))
        if form == "text":
            say_lines(f"the rules of policy {visible(found.policy)}:\n{found.rules}")
        return
    if fact is None or not files or principal is None:
        raise click.UsageError(
            "name programs, --at a principal and a fact, or a --proof (of SeNDlog; `headgate access why` explains "
            "rights, `headgate explain` queries)"
        )
    click.echo(_drawn(_why(files, principal, scheme, fact), form))


def _drawn(tree: Tree, form: str) -> str:
    return {"text": drawing.as_text, "json": drawing.as_json, "svg": drawing.as_svg}[form](tree)


def _why(files: tuple[str, ...], principal: str, scheme: str, fact: str) -> Tree:
    with reported("<fact>"):
        name, row = parse_fact(fact)
    with reported(files[-1]):
        text = _text(files)
        network = Network(text, _principals(load(text), (principal,)), Settings(scheme, provenance="distributed"))
        network.run()
        return network.why(principal, name, row)
