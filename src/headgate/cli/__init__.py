"""The command line: `headgate --help`."""

import gc

gc.set_threshold(100_000, 20, 20)  # imports make many objects and no garbage: looking for it takes a tenth of a start

from headgate.cli.main import main  # noqa: E402

__all__ = ["main"]
