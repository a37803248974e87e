"""`headgate admin`: work on a home folder itself, for the operator who owns it."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click

from headgate.cli.audit import audit
from headgate.cli.context import Place, complain, pass_place, reported, say
from headgate.cli.session import init
from headgate.errors import StoreError
from headgate.plain import counted


@click.group()
def admin() -> None:
    """Work on a home folder itself: no session is needed, but the files are.

    `headgate init` and `headgate audit` are short for `headgate admin init` and `headgate admin audit`. Everything
    here but `audit` needs the folder alone: end its server first.
    """


admin.add_command(init)
admin.add_command(audit)


@admin.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@pass_place
def backup(place: Place, file: Path) -> None:
    """Write the home folder into FILE: store, keys, state, tuples that wait; all of one moment.

    FILE holds secrets: only its owner can read it. A store in PostgreSQL is not in it: back it up with its own tools
    before you start the server again.
    """
    with reported(), place.folder_alone():
        from headgate.service.backup import back_up

        count = back_up(place.home, file)
    say(f"{counted(count, 'file')} of {place.home} written to {file}")
    if place.store is not None:
        say("the store is not in it: back it up with the database's own tools", err=True)


@admin.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@pass_place
def restore(place: Place, file: Path) -> None:
    """Make the home folder anew from the backup FILE; nothing that exists is overwritten.

    The audit trail is verified before the folder gets its name.
    """
    from headgate.service import Headgate
    from headgate.service.backup import put_in_place
    from headgate.service.backup import restore as unpack

    with reported():
        place.need_folder()
        folder = unpack(file, place.home)
        try:
            headgate = Headgate.at_home(folder, place.store)
            try:
                faults = headgate.verify_audit()
                count = headgate.audit_head().count
            finally:
                headgate.close()
            for fault in faults:
                complain(fault)
            if faults:
                raise StoreError(f"cannot restore `{file}`: its audit trail is damaged")
            put_in_place(folder, place.home)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    say(f"{place.home} is restored; its audit trail is intact: {counted(count, 'record')}")


@admin.command()
@pass_place
def migrate(place: Place) -> None:
    """Bring the store to this version of Headgate. (Any command that opens an older store does so too.)"""
    with reported(), place.headgate_alone():
        pass
    say("the store has the tables of this version")


@admin.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Write results to files below this new folder, one for each subscriber and stream.",
)
@click.option("--format", "kind", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True)
@click.option("--master", default="local[2]", show_default=True, help="Where Spark runs.")
@pass_place
def replay(place: Place, out: Path, kind: str, master: str) -> None:
    """Compute everybody's results anew, from the beginning of what the sources hold to their end.

    Rights are those of now. The state of the server is neither used nor changed; published tuples that are not kept
    any more are not read.
    """
    with reported(), place.headgate_alone() as headgate:
        from headgate.server.ingress import published_source
        from headgate.server.settings import read_settings
        from headgate.service.folders import Folders
        from headgate.service.run_client import KINDS
        from headgate.service.runs import Processing, Unread

        if out.exists():
            raise StoreError(f"cannot write to `{out}`: it is there already", hint="choose another folder")
        faults: list[str] = []
        with tempfile.TemporaryDirectory(prefix="replay-", dir=place.home) as state:
            sinks = [KINDS[kind](out, Folders(headgate))]
            settings = read_settings(place.home, {})
            ingress = published_source(place.home / "ingress", settings)
            work = Processing(headgate, Path(state), sinks, master=master, ingress=ingress, limits=settings.limits)
            try:
                work.replay()
            except Unread as error:
                faults = [str(x) for x in error.streams.values()]
            finally:
                work.close()
        results = work.counts.received.total()
        for fault in faults:
            complain(fault)
    say(f"{counted(results, 'result')} of {counted(work.counts.tuples.total(), 'tuple')} written to {out}")
    sys.exit(1 if faults else 0)
