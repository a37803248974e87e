"""Headgate inside a program that has a Spark session already: `headgate.Engine(HOME, USER, PASSWORD, spark=spark)`.

The program opens the home folder itself, as `headgate run` does, so it is for whoever the folder belongs to. It runs
the subscriptions of one user; those who may not open the folder use a server.
"""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession

from headgate.access.request import Result
from headgate.egress.sinks import shown_kinds
from headgate.errors import Conflict
from headgate.home import shared
from headgate.service.headgate import Headgate
from headgate.service.run_client import RunClient


class Engine:
    def __init__(
        self, home: str | Path, user: str, password: str, *, spark: SparkSession, store: str | None = None
    ) -> None:
        """Spark goes on when the engine is closed; its settings stay as they are."""
        self._home, self._spark = Path(home).resolve(), spark  # Spark was perhaps started in another folder
        with ExitStack() as held:
            if not held.enter_context(shared(self._home)):
                raise Conflict(f"cannot open `{home}`: a server has it", hint="use headgate.connect")
            self._headgate = Headgate.at_home(self._home, store)
            held.callback(self._headgate.close)
            self._token = self._headgate.login(user, password)
            held.callback(self._headgate.logout, self._token)
            self._client = RunClient(self._headgate, self._token)
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session; what was processed is kept, and the next engine goes on after it."""
        self._held.close()

    def execute(self, script: str) -> list[Result]:
        """Runs a script of statements, as a whole or not at all."""
        return self._headgate.execute(self._token, script)

    def run(self) -> None:
        """Reads the sources of what the user has subscribed to, to their end; open windows become final. What was read
        once is not read again."""
        with self._client.at_work(self._client.home(self._home), None, spark=self._spark) as work:
            work.replay()

    def results(self, stream: str) -> list[dict[str, Any]]:
        """The results of a stream, `OWNER.NAME`, since the last call: each with its `time`, `label` and `values`."""
        address, found = self._client.results(stream)
        labels = shown_kinds([x.label for x in found], address.named)
        return [
            {
                "time": dt.datetime.fromtimestamp(x.time / 1000, dt.UTC),
                "label": label,
                "values": dict(zip(address.columns, x.values, strict=True)),
            }
            for x, label in zip(found, labels, strict=True)
        ]
