"""`headgate audit`: the trail, its head, and its verification."""

from __future__ import annotations

import sys

import click

from headgate.cli.context import Place, pass_place, reported, say
from headgate.plain import counted


@click.group()
def audit() -> None:
    """Verify the audit trail. (`headgate show audit` reads it.)"""


@audit.command()
@click.option("--expect", default="", metavar="HEAD", help="A head printed earlier by `headgate audit head`.")
@pass_place
def verify(place: Place, expect: str) -> None:
    """Find any altered, removed or reordered record.

    Needs audit.key in the home folder, not a session. Exit code 0 if the trail is intact, 1 if not. With --expect,
    a store that was rolled back to an older state as a whole is found as well.
    """
    with reported(), place.headgate_for_operator() as headgate:
        faults = headgate.verify_audit(expect)
        count = headgate.audit_head().count
    for fault in faults:
        say(f"FAULT: {fault}")
    if faults:
        sys.exit(1)
    say(f"the audit trail is intact: {counted(count, 'record')}")


@audit.command()
@pass_place
def head(place: Place) -> None:
    """Print the head of the trail, to be noted somewhere else."""
    with reported(), place.headgate_for_operator() as headgate:
        say(str(headgate.audit_head()))
