"""Headgate at work on Spark, to be killed: run by the tests of crashes.

    python crash_service.py FOLDER PAGE

When Spark is there it says `warm`, and waits for a line: `follow` or `replay`. Then it does what `headgate run
--everyone --out` does, with the store in `FOLDER/headgate`; when the first batch comes it says `working`, and when all
is done `done`. What it is doing stands in the file PAGE at any moment, for whoever kills it.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headgate.ingress.spark import spark_session
from headgate.recovery.pipeline import Pipeline
from headgate.recovery.query_graph import QueryGraph
from headgate.recovery.state import StateFolder
from headgate.service import Headgate
from headgate.service.run_client import RunClient
from headgate.service.streams import Runner

T = TypeVar("T")
PAGE = 32


def watch(page: mmap.mmap) -> None:
    """The steps of a batch, told from outside."""
    begun: list[str] = []

    def tell(step: str) -> None:
        page[:] = step.encode().ljust(PAGE)

    def told(done: Callable[..., T], step: str, after: str = "") -> Callable[..., T]:
        def telling(*given: Any, **more: Any) -> T:
            if step == "taking" and not begun:
                begun.append(step)
                print("working", flush=True)
            tell(step)
            found = done(*given, **more)
            if after:
                tell(after)
            return found

        return telling

    for owner, name, *steps in (
        (Pipeline, "_recover", "recovering"),
        (Runner, "read", "starting streams", "Spark between batches"),
        (Pipeline, "take", "taking", "Spark between batches"),
        (QueryGraph, "batch", "computing"),
        (StateFolder, "save", "saving"),
        (Pipeline, "_deliver", "delivering"),
        (Pipeline, "end", "ending"),
    ):
        setattr(owner, str(name), told(getattr(owner, str(name)), *map(str, steps)))


def main(folder: Path, page_file: Path) -> None:
    with page_file.open("r+b") as file:
        page = mmap.mmap(file.fileno(), PAGE)
    spark_session(folder / "headgate" / "engine")
    print("warm", flush=True)
    how = sys.stdin.readline().strip()
    page[:] = b"opening".ljust(PAGE)
    watch(page)
    headgate = Headgate.at_home(folder / "headgate")
    client = RunClient(headgate, (folder / "token").read_text(), everyone=True)
    with client.at_work(folder / "headgate" / "engine", folder / "out") as work:
        (work.follow if how == "follow" else work.replay)()
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
