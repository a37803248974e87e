"""The command line: `headgate --help`."""

from headgate.cli.main import main

__all__ = ["main"]
